"""Routing algorithms: from votes (and activations) to class capsules and a trace.

Votes are (N, K, I, D): input capsule i's prediction for class capsule k. Each module follows one
paper; all are batched matrix products without Einsum, loops or scattering in the exported graph.
"""
