"""Looking inside: sweeps of a pose, routing, equivariance. The maths knows nothing of HTTP."""
