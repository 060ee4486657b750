"""Comparisons of networks: declared, run one row at a time, and reported in docs/results.md."""
