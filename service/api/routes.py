"""The list of the API's routes: the views and all others."""

from __future__ import annotations

from functools import partial
from typing import Any

from service.api.models import list_models, reload_models, show_health, show_model
from service.api.probes import livez, metrics, readyz
from service.api.samples import (
    list_samples,
    overlay_images,
    overlay_samples,
    show_sample,
    show_sample_of,
)
from service.errors import (
    BundleRefused,
    Busy,
    Forbidden,
    KeysRefused,
    NoSpace,
    NotOffered,
    ReloadNotOffered,
    ReloadUnderWay,
    Unavailable,
    UnknownModel,
)
from service.http.keys import SECURITY_SCHEMES, Access
from service.http.openapi import image_body
from service.http.route import Route
from service.views import IMAGE_PROBLEMS, VIEWS, view_route

TAGS = {
    "classify": "Images in; labels, reconstructions and masks out.",
    "interpret": "What capsules encode and how they agree: poses, routing, equivariance.",
    "sample images": "Images to try the other routes on.",
    "models": "The networks that are loaded.",
    "operations": "Probes and metrics.",
}
"""Descriptions of the groups of routes for the OpenAPI document, in its order."""
RELOAD_PROBLEMS = [
    BundleRefused,
    KeysRefused,
    NoSpace,
    ReloadUnderWay,
    ReloadNotOffered,
    Forbidden,
    Unavailable,
]


def max_view_rows(max_pictures: int) -> int:
    """Return the rows of the largest request that a view accepts.

    Args:
        max_pictures: of one request to `/classify`.
    """
    return max(view.count_most_rows(max_pictures) for view in VIEWS)


def api_routes(access: Access, *, max_pictures: int) -> list[Route]:
    """The routes, those that are asked most first.

    Without admin keys, `POST /models/reload` needs none: it answers 403 and names the setting.
    """
    schemes = SECURITY_SCHEMES if access.api else []
    post = partial(Route, "POST", dependencies=schemes)
    get = partial(Route, "GET", dependencies=schemes)
    admin = partial(post, needs_models=False)
    if access.admin:
        admin = partial(admin, permission="admin", dependencies=SECURITY_SCHEMES)
    probe = partial(Route, "GET", needs_models=False, tags=["operations"])
    public_probe = partial(probe, permission="public", problems=[Unavailable])
    samples: Any = {"tags": ["sample images"]}
    overlay: Any = {**samples, "max_rows": 2}
    return [
        *(view_route(view, max_pictures, dependencies=schemes) for view in VIEWS),
        get("/samples/{label}.png", show_sample, needs_models=False, **samples),
        get("/overlay", overlay_samples, problems=[Busy], **overlay),
        post(
            "/overlay",
            overlay_images,
            openapi=image_body(least=2, most=2),
            problems=IMAGE_PROBLEMS,
            **overlay,
        ),
        get("/models", list_models, fixed=True, tags=["models"]),
        get("/models/{name}", show_model, fixed=True, problems=[UnknownModel], tags=["models"]),
        get(
            "/models/{name}/health",
            show_health,
            drawn="process",
            problems=[UnknownModel, NotOffered, Busy],
            tags=["models"],
        ),
        get(
            "/models/{name}/samples",
            list_samples,
            fixed=True,
            problems=[UnknownModel],
            **samples,
        ),
        get("/models/{name}/samples/{file}", show_sample_of, problems=[UnknownModel], **samples),
        admin(
            "/models/reload",
            reload_models,
            problems=RELOAD_PROBLEMS,
            tags=["models"],
        ),
        public_probe("/livez", livez),
        public_probe("/readyz", readyz),
        probe("/metrics", metrics, dependencies=schemes, problems=[Busy]),
    ]
