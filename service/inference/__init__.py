"""Admit jobs, form batches and compute them. This package knows no HTTP."""
