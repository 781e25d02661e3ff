"""Benchmarks: speed and memory, measured and printed as JSON; nothing here passes or fails."""
