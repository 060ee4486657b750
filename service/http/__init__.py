"""HTTP, as far as all routes share it."""
