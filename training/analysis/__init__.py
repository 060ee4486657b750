"""Analysis of finished bundles."""
