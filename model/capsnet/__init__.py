"""Capsule networks in torch, one module for each family; `families` is the registry.

Nothing outside this package and `training` may import torch.
"""

from model.capsnet.families import FAMILIES, Family, build, config_from_dict, family_of, load
from model.capsnet.network import Network, NetworkConfig
from model.outputs import Encoding, Trace

__all__ = [
    "FAMILIES",
    "Encoding",
    "Family",
    "Network",
    "NetworkConfig",
    "Trace",
    "build",
    "config_from_dict",
    "family_of",
    "load",
]
