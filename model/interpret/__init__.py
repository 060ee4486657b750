"""Looking inside, in numpy: sweeps, named dimensions, routing, masks, movement, novelty."""
