"""Callers over HTTP and gRPC who send digits one after the other and check every label."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count, islice
from typing import Any, NamedTuple

import grpc
import httpx
import numpy as np
from tritonclient.grpc import service_pb2

from service.api.v2.grpc import SERVICE
from service.api.v2.tensors import LENGTH
from tests.attack.service import Service
from tests.fire.generator import pictures
from tests.processes import PATIENCE_S, PLAIN

PICTURES = [(asked.label, asked.content) for asked in pictures()]
"""Labels and files: drawings, and photographs, which other processes decode."""
RIGHT, WRONG, LOST, UNCONNECTED = "right", "wrong", "lost", "not connected"
_REQUESTS = 10
"""Sent over one connection or channel; then the caller makes another."""
_TIMEOUT_S = 60.0


class Call(NamedTuple):
    """One request, and what came of it."""

    sent: float
    """When, in seconds of `time.monotonic`."""
    seconds: float
    """Until the answer, or until it was clear that there is none."""
    outcome: str
    """`right`, `wrong`, `lost` (no answer), `not connected`, or the status of a refusal."""


_STATUSES = {"RESOURCE_EXHAUSTED": "429", "DEADLINE_EXCEEDED": "504", "INTERNAL": "500"}
"""What the codes of gRPC are over HTTP."""
Ask = Callable[[bytes], tuple[str, int]]
"""Sends a picture: an outcome, and the label of the answer where it is `right`."""


class Callers:
    """Threads that ask a service again and again.

    Args:
        service: receives the requests.
        model: the bundle of each request.
        threads: of each kind.
        pause_s: between an answer and the next request of a caller.
    """

    def __init__(
        self, service: Service, model: str, *, threads: int = 4, pause_s: float = 0.02
    ) -> None:
        self.calls: list[Call] = []
        self._service, self._model, self._pause_s = service, model, pause_s
        self._threads = [
            threading.Thread(target=self._call, args=(kind, first))
            for first in range(threads)
            for kind in (self._http, self._grpc)
        ]
        self._over = threading.Event()

    @property
    def count(self) -> int:
        """How many callers there are."""
        return len(self._threads)

    def outcomes(self) -> Counter[str]:
        """How many requests had each outcome."""
        return Counter(call.outcome for call in self.calls)

    def right(self) -> int:
        """How many answers were right so far."""
        return self.outcomes()[RIGHT]

    @contextmanager
    def calling(self) -> Iterator[None]:
        """Call meanwhile."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join(2 * _TIMEOUT_S)

    def wait(self, answers: int) -> None:
        """Return when so many more have been answered right.

        Raises:
            TimeoutError: they have not been for two minutes.
        """
        aim, deadline = self.right() + answers, time.monotonic() + PATIENCE_S
        while self.right() < aim:
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {answers} right answers in {PATIENCE_S} s")
            time.sleep(0.05)

    def _call(self, connect: Callable[[], Any], first: int) -> None:
        turns = count(3 * first)
        while not self._over.is_set():
            with connect() as ask:
                for turn in islice(turns, _REQUESTS):
                    label, picture = PICTURES[turn % len(PICTURES)]
                    sent = time.monotonic()
                    outcome, found = ask(picture)
                    if outcome == RIGHT and found != label:
                        outcome = WRONG
                    self.calls.append(Call(sent, time.monotonic() - sent, outcome))
                    if self._over.wait(self._pause_s) or outcome in (LOST, UNCONNECTED):
                        break

    @contextmanager
    def _http(self) -> Iterator[Ask]:
        """Over one kept connection."""
        url, key = f"http://127.0.0.1:{self._service.target.port}", self._service.target.key
        headers = {"X-API-Key": key} if key else {}
        with httpx.Client(timeout=_TIMEOUT_S, verify=PLAIN, headers=headers) as client:

            def ask(picture: bytes) -> tuple[str, int]:
                route = f"{url}/classify?model={self._model}"
                try:
                    answer = client.post(route, files={"file": picture})
                except httpx.ConnectError:
                    return UNCONNECTED, -1
                except httpx.TransportError:
                    return LOST, -1
                if answer.status_code != httpx.codes.OK:
                    return str(answer.status_code), -1
                return RIGHT, answer.json()["predictions"][0]["label"]

            yield ask

    @contextmanager
    def _grpc(self) -> Iterator[Ask]:
        """Over one channel, whose connection is not shared with others."""
        key, infer_request = self._service.target.key, service_pb2.ModelInferRequest
        metadata = [("x-api-key", key)] if key else []
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self._service.grpc_address, options) as channel:
            call = channel.unary_unary(
                f"/{SERVICE}/ModelInfer",
                request_serializer=infer_request.SerializeToString,
                response_deserializer=service_pb2.ModelInferResponse.FromString,
            )

            def ask(picture: bytes) -> tuple[str, int]:
                image = infer_request.InferInputTensor(name="image", datatype="BYTES", shape=[1, 1])
                label = infer_request.InferRequestedOutputTensor(name="label")
                request = infer_request(
                    model_name=self._model,
                    inputs=[image],
                    outputs=[label],
                    raw_input_contents=[LENGTH.pack(len(picture)) + picture],
                )
                try:
                    answer = call(request, timeout=_TIMEOUT_S, metadata=metadata)
                except grpc.RpcError as error:
                    return _status(error), -1
                return RIGHT, int(np.frombuffer(answer.raw_output_contents[0], np.int64)[0])

            yield ask


def _status(error: Any) -> str:
    """As over HTTP; a connection that was lost has the code of 503, without its metadata."""
    name = error.code().name
    if name != "UNAVAILABLE":
        return _STATUSES.get(name, name)
    if "retry-after" in dict(error.trailing_metadata() or ()):
        return "503"
    return UNCONNECTED if "failed to connect" in error.details() else LOST
