"""Looking inside, in numpy: sweeps, named pose dimensions, masks of pairs, novelty."""
