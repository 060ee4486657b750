"""Routing: votes (and activations) in, class capsules and a trace of every iteration out.

Votes are (N, K, I, D): input capsule i's prediction for class capsule k. Each module follows one
paper; all are batched matrix products without Einsum, loops or scattering in the exported graph.
"""
