"""Look inside capsule networks: `CapsNet("http://localhost:8000").classify("7.png")`."""

from capsnet import _generated
from capsnet._generated import *  # noqa: F403  the answers
from capsnet.answers import Answer
from capsnet.client import AsyncCapsNet, AsyncDrawings, CapsNet, Drawings
from capsnet.errors import (
    CapsNetError,
    DeadlineExceeded,
    InvalidAnswer,
    NoLocalBundle,
    Problem,
    Unreachable,
)
from capsnet.images import ImageLike

__all__ = [
    "Answer",
    "AsyncCapsNet",
    "AsyncDrawings",
    "CapsNet",
    "CapsNetError",
    "DeadlineExceeded",
    "Drawings",
    "ImageLike",
    "InvalidAnswer",
    "NoLocalBundle",
    "Problem",
    "Unreachable",
]
__all__ += _generated.__all__
