"""All routes of the API."""

from __future__ import annotations

from functools import partial

from service.api.classify import classify
from service.api.decode import POSES_BODY, decode
from service.api.equivariance import equivariance
from service.api.models import list_models, reload_models, show_model
from service.api.overlay import overlay_pictures, overlay_samples
from service.api.perturb import perturb
from service.api.probes import livez, metrics, readyz
from service.api.reconstruct import reconstruct
from service.api.routing import routing
from service.api.samples import show_sample
from service.api.segment import segment_picture
from service.api.sweep import sweep
from service.http.keys import SECURITY_SCHEMES, Access
from service.http.openapi import picture_body, two_pictures_body
from service.http.route import Route


def api_routes(access: Access) -> list[Route]:
    """The routes, those that are asked most first.

    Bundles are loaded anew over HTTP only where there are admin keys.
    """
    schemes = SECURITY_SCHEMES if access.api else []
    post = partial(Route, "POST", dependencies=schemes)
    with_picture = partial(post, openapi=picture_body())
    get = partial(Route, "GET", dependencies=schemes)
    at_once = partial(Route, "GET", needs_networks=False)
    routes = [
        with_picture("/classify", classify),
        with_picture("/reconstruct", reconstruct),
        with_picture("/perturb", perturb),
        post("/decode", decode, openapi=POSES_BODY),
        with_picture("/perturb/sweep", sweep),
        with_picture("/routing", routing),
        with_picture("/equivariance", equivariance),
        with_picture("/segment", segment_picture),
        post("/overlay", overlay_pictures, openapi=two_pictures_body()),
        get("/overlay", overlay_samples),
        get("/models", list_models),
        get("/models/{name}", show_model),
        at_once("/samples/{label}.png", show_sample, dependencies=schemes),
        at_once("/metrics", metrics, dependencies=schemes),
        at_once("/livez", livez),
        at_once("/readyz", readyz),
    ]
    if access.admin:
        reload = partial(Route, needs_networks=False, dependencies=SECURITY_SCHEMES)
        routes.append(reload("POST", "/models/reload", reload_models))
    return routes
