"""Attacks on the service, and what others notice of them: `make attack`."""
