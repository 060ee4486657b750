"""The capsule network of Sabour, Frosst and Hinton, "Dynamic Routing Between Capsules" (2017).

Nothing outside this package and `training` may import torch.
"""

from model.capsnet.config import CapsNetConfig
from model.capsnet.network import CapsNet

__all__ = ["CapsNet", "CapsNetConfig"]
