"""Form batches of rows and compute them. This package knows no HTTP."""
