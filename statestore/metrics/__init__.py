"""Metrics of runs: what there is, what a report says of it, and how it is exported (docs/metrics.md)."""
