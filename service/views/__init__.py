"""The views: what one may ask about an image or a pose, one module each."""

from service.views import (
    classify,
    decode,
    equivariance,
    morph,
    neighbours,
    occlusion,
    perturb,
    reconstruct,
    rivals,
    routing,
    routing_off,
    segment,
    sweep,
    trajectory,
)
from service.views.view import View

VIEWS: list[View] = [
    classify.VIEW,
    reconstruct.VIEW,
    perturb.VIEW,
    decode.VIEW,
    sweep.VIEW,
    routing.VIEW,
    routing_off.VIEW,
    equivariance.VIEW,
    occlusion.VIEW,
    segment.VIEW,
    trajectory.VIEW,
    rivals.VIEW,
    morph.VIEW,
    neighbours.VIEW,
]
"""All views in the order in which they are listed and matched, the most requested first."""
