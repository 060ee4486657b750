"""Interpretation in numpy: sweeps, named dimensions, routing, masks, movement, novelty."""
