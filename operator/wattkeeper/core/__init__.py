"""Decisions: values in, a decision with its reasons out. No I/O, no clock, no logging."""
