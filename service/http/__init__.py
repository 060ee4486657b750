"""HTTP: what is the same for every route."""
