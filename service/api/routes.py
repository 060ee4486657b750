"""All routes of the API."""

from __future__ import annotations

from functools import partial
from typing import Any

from model.interpret.equivariance import MAX_STEPS
from model.interpret.sweep import MAX_PICTURES
from service.api.classify import classify
from service.api.decode import POSES_BODY, decode
from service.api.equivariance import equivariance
from service.api.models import list_models, reload_models, show_model
from service.api.overlay import overlay_images, overlay_samples
from service.api.perturb import perturb
from service.api.probes import livez, metrics, readyz
from service.api.reconstruct import reconstruct
from service.api.routing import routing
from service.api.samples import list_samples, show_sample, show_sample_of
from service.api.segment import MAX_SEGMENTS, segment_image
from service.api.sweep import sweep
from service.errors import (
    BundleRefused,
    Busy,
    Forbidden,
    MalformedRequest,
    NotOffered,
    TooLarge,
    Unavailable,
    UnknownModel,
    UnreadablePicture,
    UnsupportedFormat,
    UploadTimeout,
)
from service.http.keys import SECURITY_SCHEMES, Access
from service.http.openapi import image_body
from service.http.route import ANSWER, Route

TAGS = {
    "classify": "Images in; labels, reconstructions and masks out.",
    "interpret": "What capsules encode and how they agree: poses, routing, equivariance.",
    "sample images": "Images to try the other routes on.",
    "models": "The networks that are loaded.",
    "operations": "Probes and metrics.",
}
"""What the OpenAPI document says of each group of routes, in this order."""
_BODY = (MalformedRequest, UploadTimeout, TooLarge, UnsupportedFormat, Busy)
_IMAGE = (*_BODY, UnreadablePicture)
"""What can be wrong with a request body, and with one of images."""


def largest_job(max_images: int) -> int:
    """Rows of the most expensive request that the routes accept.

    Args:
        max_images: of one request to `/classify`, each encoded and, for its novelty, decoded.
    """
    return max(
        2 * max_images + ANSWER, 1 + MAX_PICTURES + ANSWER, 1 + MAX_STEPS + ANSWER, 1 + MAX_SEGMENTS
    )


def api_routes(access: Access, *, max_images: int) -> list[Route]:
    """The routes, those that are asked most first.

    Where there are no admin keys, the reload refuses everybody, who needs no such key to be told.
    """
    schemes = SECURITY_SCHEMES if access.api else []
    post = partial(Route, "POST", dependencies=schemes)
    get = partial(Route, "GET", dependencies=schemes)
    admin = partial(post, needs_networks=False)
    if access.admin:
        admin = partial(admin, permission="admin", dependencies=SECURITY_SCHEMES)
    probe = partial(Route, "GET", needs_networks=False, tags=["operations"])
    open_probe = partial(probe, permission="open", problems=[Unavailable])
    image: Any = {"openapi": image_body(), "problems": (*_IMAGE, UnknownModel, NotOffered)}
    classifying = partial(post, tags=["classify"], **image)
    interpreting = partial(post, tags=["interpret"], **image)
    several = image_body(most=max_images)
    pair = image_body(example="/overlay?first=3&second=5")
    two = image_body(least=2, most=2)
    samples: Any = {"tags": ["sample images"]}
    return [
        classifying("/classify", classify, openapi=several),
        classifying("/reconstruct", reconstruct),
        interpreting("/perturb", perturb),
        interpreting(
            "/decode", decode, openapi=POSES_BODY, problems=(*_BODY, UnknownModel, NotOffered)
        ),
        interpreting("/perturb/sweep", sweep),
        interpreting("/routing", routing),
        interpreting("/equivariance", equivariance, problems=(*_IMAGE, UnknownModel)),
        classifying("/segment", segment_image, openapi=pair),
        get("/samples/{label}.png", show_sample, needs_networks=False, **samples),
        get("/overlay", overlay_samples, problems=[Busy], **samples),
        post("/overlay", overlay_images, openapi=two, problems=_IMAGE, **samples),
        get("/models", list_models, tags=["models"]),
        get("/models/{name}", show_model, problems=[UnknownModel], tags=["models"]),
        get("/models/{name}/samples", list_samples, problems=[UnknownModel], **samples),
        get("/models/{name}/samples/{file}", show_sample_of, problems=[UnknownModel], **samples),
        admin(
            "/models/reload", reload_models, problems=[BundleRefused, Forbidden], tags=["models"]
        ),
        open_probe("/livez", livez),
        open_probe("/readyz", readyz),
        probe("/metrics", metrics, dependencies=schemes),
    ]
