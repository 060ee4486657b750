"""The routes, a file for each: its query, its handler and its answer."""
