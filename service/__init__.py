"""Serves capsule networks over HTTP."""

VERSION = "0.1.0"
