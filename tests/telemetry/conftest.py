"""Fixtures of a real Prometheus for these tests."""

from tests.prometheus.fixtures import prometheus, prometheus_factory

__all__ = ["prometheus", "prometheus_factory"]
