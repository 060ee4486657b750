"""Metrics, logs, timings and traces."""
