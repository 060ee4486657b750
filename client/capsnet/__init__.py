"""Look inside capsule networks: `CapsNet("http://localhost:8000").classify("7.png")`."""

from capsnet.answers import (
    Answer,
    DecodeAnswer,
    EquivarianceAnswer,
    FailedPrediction,
    ModelsAnswer,
    PerturbAnswer,
    Prediction,
    ReconstructAnswer,
    RoutingAnswer,
    SegmentAnswer,
    SweepAnswer,
)
from capsnet.client import AsyncCapsNet, AsyncDrawings, CapsNet, Drawings
from capsnet.errors import CapsNetError, DeadlineExceeded, InvalidAnswer, Problem, Unreachable
from capsnet.images import ImageLike
from capsnet.local import NoLocalService, serve

__all__ = [
    "Answer",
    "AsyncCapsNet",
    "AsyncDrawings",
    "CapsNet",
    "CapsNetError",
    "DeadlineExceeded",
    "DecodeAnswer",
    "Drawings",
    "EquivarianceAnswer",
    "FailedPrediction",
    "ImageLike",
    "InvalidAnswer",
    "ModelsAnswer",
    "NoLocalService",
    "PerturbAnswer",
    "Prediction",
    "Problem",
    "ReconstructAnswer",
    "RoutingAnswer",
    "SegmentAnswer",
    "SweepAnswer",
    "Unreachable",
    "serve",
]
