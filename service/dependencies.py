"""What handlers are given beside their parameters: a deadline, the inspector, the lifecycle."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, Header, Request

from service.inspector import Inspector
from service.lifecycle import Lifecycle
from service.problems import TooLate, Unavailable
from service.serving import Serving

TIMEOUT_HEADER = "X-Request-Timeout"


async def _deadline(
    request: Request,
    wanted_s: Annotated[
        float | None,
        Header(
            alias=TIMEOUT_HEADER,
            gt=0,
            allow_inf_nan=False,
            description="Seconds after which the answer is of no use; at most the service's own.",
        ),
    ] = None,
) -> AsyncIterator[None]:
    limit_s = min(wanted_s or math.inf, request.app.state.settings.request_timeout_s)
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        raise TooLate(f"no answer within {limit_s:g} s") from error


async def _inspector(request: Request) -> AsyncIterator[Inspector]:
    serving: Serving = request.app.state.serving
    with serving.inspector() as inspector:
        if inspector is None:
            raise Unavailable("the service is starting", retry_after_s=1)
        yield inspector


async def _lifecycle(request: Request) -> Lifecycle:
    lifecycle: Lifecycle = request.app.state.lifecycle
    return lifecycle


TheInspector = Annotated[Inspector, Depends(_inspector, scope="function")]
TheLifecycle = Annotated[Lifecycle, Depends(_lifecycle)]
IN_TIME = [Depends(_deadline, scope="function")]
"""The limit is on making the answer; how fast the client takes it is the client's affair."""
