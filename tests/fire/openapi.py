"""Requests that follow from the OpenAPI document, and ones that it forbids, by schemathesis."""

from __future__ import annotations

import base64
import math
import random
from collections import Counter
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import hypothesis
import requests as http
import schemathesis
from hypothesis import strategies
from schemathesis import APIOperation, Case, GenerationMode
from schemathesis.checks import CHECKS

from tests.fire.images import originals

_CHECKS = (
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "negative_data_rejection",
)
_REFUSALS = (400, 401, 403, 404, 405, 406, 408, 409, 413, 415, 422, 429, 503, 504)
"""Answers that are right where the document forbids a request."""
_ROUND = 50
"""Requests in a row of one kind to one route."""
_LIKELY = 0.8
"""How often a request that is allowed names no model, and has images that are some."""


def fuzz(base_url: str, requests: int, seed: int) -> Counter[int]:
    """Send so many requests or a few more, half of them forbidden; how often each status came.

    Raises:
        AssertionError: an answer is a 5xx other than 503 and 504.
        schemathesis.core.failures.FailureGroup: an answer is none that the document names, or a
            forbidden request was not refused. Both name the request.
    """
    files = strategies.sampled_from(list(originals().values()))
    schemathesis.openapi.format("binary", files)
    schemathesis.openapi.media_type("image/*", files)
    schema = schemathesis.openapi.from_url(f"{base_url}/openapi.json")
    schema.config.checks.negative_data_rejection.expected_statuses = list(map(str, _REFUSALS))
    kinds = [(one.ok(), mode) for one in schema.get_all_operations() for mode in GenerationMode]
    statuses: Counter[int] = Counter()
    rng = random.Random(seed)  # noqa: S311
    with http.Session() as session:
        session.trust_env = False
        while statuses.total() < requests:
            each = min(_ROUND, math.ceil((requests - statuses.total()) / len(kinds)))
            for operation, mode in kinds:
                statuses += _ask(base_url, session, operation, mode, requests=each, rng=rng)
    return statuses


def _ask(
    base_url: str,
    session: http.Session,
    operation: APIOperation,
    mode: GenerationMode,
    *,
    requests: int,
    rng: random.Random,
) -> Counter[int]:
    """Send up to so many requests of one kind to one route."""
    statuses: Counter[int] = Counter()

    @hypothesis.seed(rng.getrandbits(64))
    @hypothesis.settings(
        max_examples=requests,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(case=operation.as_strategy(generation_mode=mode))
    def ask(case: Case) -> None:
        if mode is GenerationMode.POSITIVE and rng.random() < _LIKELY:
            _make_likely(case, rng)
        answer = case.call(base_url=base_url, session=session, timeout=60)
        statuses[answer.status_code] += 1
        told = f"{answer.status_code}: {case.as_curl_command()}"
        assert answer.status_code < 500 or answer.status_code in (503, 504), told
        if answer.status_code != HTTPStatus.REQUEST_URI_TOO_LONG:  # refused before any route
            case.validate_response(answer, checks=CHECKS.get_by_names(_CHECKS))

    with suppress(hypothesis.errors.Unsatisfiable):  # there is nothing to do wrong
        ask()
    return statuses


def _make_likely(case: Case, rng: random.Random) -> None:
    """Name no model, and send images that are some: chance finds neither."""
    if case.query:
        case.query.pop("model", None)
    body: Any = case.body
    if isinstance(body, dict):
        files = [base64.b64encode(one).decode() for one in originals().values()]
        if isinstance(body.get("image"), str):
            body["image"] = rng.choice(files)
        if isinstance(body.get("images"), list) and isinstance(body["images"][0], str):
            body["images"] = [rng.choice(files) for _ in body["images"][:4]]
