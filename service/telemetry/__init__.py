"""Metrics and logs."""

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable of the folder that the processes of one service share."""
