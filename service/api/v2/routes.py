"""All routes of the protocol. They are not in the OpenAPI document: the protocol has its own."""

from __future__ import annotations

from functools import partial

from model.views.decode import MAX_POSES
from service.api.v2.infer import infer
from service.api.v2.metadata import (
    check_model,
    describe_model,
    describe_server,
    live,
    ready,
    show_config,
)
from service.http.route import Route

_NAMED = "/v2/models/{name}"
_VERSIONED = "/v2/models/{name}/versions/{version}"


def v2_routes(*, max_pictures: int, grpc: bool = False) -> list[Route]:
    """The routes, those that are asked most first, and with gRPC those of its methods.

    Args:
        max_pictures: of one request; each is encoded and, for its novelty, decoded. A decoder
            takes MAX_POSES poses all the same.
        grpc: whether there is a port for it.
    """
    max_cost = max(2 * max_pictures, MAX_POSES)
    post, get = (
        partial(Route, "POST", include_in_schema=False),
        partial(Route, "GET", include_in_schema=False),
    )
    plain = partial(get, needs_models=False)
    probe = partial(plain, permission="public")
    of_models = [
        route
        for path in (_NAMED, _VERSIONED)
        for route in (
            post(f"{path}/infer", infer, max_cost=max_cost),
            get(path, describe_model, fixed=True),
            get(f"{path}/ready", check_model),
            get(f"{path}/config", show_config, fixed=True),
        )
    ]
    probes = [probe("/v2/health/live", live), probe("/v2/health/ready", ready)]
    routes = [*of_models, *probes, plain("/v2", describe_server)]
    if grpc:
        from service.api.v2.calls import grpc_routes  # noqa: PLC0415  an extra

        routes += grpc_routes(max_cost)
    return routes
