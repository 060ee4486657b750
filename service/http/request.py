"""What a handler receives: the HTTP request, what it may compute, and its deadline."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cached_property

import fastapi
from starlette.types import Receive, Scope, Send

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.preprocess import Prepared
from model.views.net import require
from service.admission import Claim
from service.errors import InvalidParameter, Problem, UnknownModel
from service.http.context import Context
from service.http.middleware import TIMEOUT_HEADER
from service.inference.engine import Engine, ServedNet
from service.pictures import ImageSpec, Upload, Weighed


class Request(fastapi.Request):
    """A request, which is admitted and charged before it computes.

    Args:
        scope: ASGI's, and so are the next two.
        receive: gives the body.
        send: takes the answer.
        max_cost: the most rows that a request to this route may cost.
    """

    engine: Engine
    """What computes it, whatever is loaded meanwhile; set only where the route has `needs_models`.
    """
    media_type: str
    """The media type of the answer, negotiated from `Accept`; set only on routes that negotiate."""
    timeout: asyncio.Timeout | None = None
    """Ends the handling of the request at its deadline."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, max_cost: int = 0) -> None:
        super().__init__(scope, receive, send)
        self.context: Context = scope["app"].state
        self.claim: Claim = scope["state"]["claim"]
        self._max_cost = max_cost

    @cached_property
    def limit_s(self) -> float:
        """The seconds from the end of the body until the answer has to be ready.

        Raises:
            InvalidParameter: the client asks for none.
        """
        longest_s = self.context.settings.request_timeout_s
        try:
            wanted_s = float(self.headers.get(TIMEOUT_HEADER, longest_s))
        except ValueError:
            wanted_s = math.nan
        if not 0 < wanted_s < math.inf:
            text = f"{TIMEOUT_HEADER} is a positive number of seconds"
            raise InvalidParameter(text, parameter=TIMEOUT_HEADER)
        return min(wanted_s, longest_s)

    async def body(self) -> bytes:
        """Read the whole body, once: it is not kept.

        The deadline starts at its end: the upload has its own time limit.
        """
        content = b"".join([part async for part in self.stream()])
        self.start_deadline()
        return content

    def start_deadline(self) -> None:
        """Let the time run, for the request and its rows, if the route has a limit."""
        if self.timeout:
            limit_s = self.limit_s
            self.claim.deadline = time.monotonic() + limit_s
            self.timeout.reschedule(asyncio.get_running_loop().time() + limit_s)

    def admit(self, rows: int, *, files: int = 0, price: int = 1, size: int = 1) -> None:
        """Admit the request with the price of its rows, before files are decoded.

        Args:
            rows: of the request.
            files: that are decoded.
            price: of one row: see `Engine.price`.
            size: of the images: a row of larger images costs so many rows.

        Raises:
            Busy, RateLimited, TooLate: see `Claim.admit`.
            ValueError: the route declares less, by which the limit of admission is chosen.
        """
        if rows > self._max_cost:
            raise ValueError(f"the route declares at most {self._max_cost} rows, not {rows}")
        self.claim.image_price = size
        self.claim.admit(rows * price * size, files=files)

    def manifest(self, model: str | None, *, needs: Offer | None = None) -> Manifest:
        """The manifest of a loaded bundle, or of the default one.

        Raises:
            UnknownModel: it is not loaded.
            NotOffered: its network cannot do what is needed.
        """
        manifests = self.engine.manifests
        name = model or self.engine.default_model(self.context.settings.default_model)
        if name not in manifests:
            near = get_close_matches(name, manifests, 1)
            hint = "".join(f". Did you mean {known!r}?" for known in near)
            loaded = ", ".join(sorted(manifests))
            raise UnknownModel(f"{name!r} is not loaded; loaded: {loaded}{hint}", parameter="model")
        require(manifests[name], needs)
        return manifests[name]

    def net(self, manifest: Manifest) -> ServedNet:
        """The network of a manifest, for this request's rows."""
        return ServedNet(manifest, self.engine, self.claim, self.context.slow)

    async def decode(
        self, uploads: Sequence[Upload | Weighed], spec: ImageSpec
    ) -> list[Prepared | Problem]:
        """Decode and fit all uploads, in order. One that cannot be read yields its problem."""
        return await self.context.pictures.decode(uploads, spec)
