"""Metrics for Prometheus: counters of requests and the text format."""
