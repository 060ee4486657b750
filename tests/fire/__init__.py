"""Load, faults and malice, and what callers see of them: `make fire`."""
