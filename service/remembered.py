"""A way past the reading of queries that were read before, which takes longer than the rest."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from fastapi import Request
from pydantic import BaseModel

Endpoint = Callable[..., Coroutine[Any, Any, Any]]
MAX_QUERIES = 256
"""Different query strings that are remembered for a route."""
_MAX_QUERY_BYTES = 256


class RememberedQueries:
    """What FastAPI made of an endpoint's query strings, which never changes.

    Args:
        endpoint: called with a request and its query. One that reads anything else has nothing
            remembered.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._queries: dict[bytes, BaseModel] = {}

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._queries)

    def of(self, request: Request) -> BaseModel | None:
        """The query of a request, if one with the same string was read before."""
        return self._queries.get(request.scope["query_string"])

    def noting(self) -> Endpoint:
        """The same endpoint, for FastAPI to call; notes each query that it is called with."""
        endpoint = self._endpoint
        if list(inspect.signature(endpoint).parameters) != ["request", "query"]:
            return endpoint

        @wraps(endpoint)
        async def note_and_look(request: Request, query: BaseModel) -> Any:
            self._note(request.scope["query_string"], query)
            return await endpoint(request, query)

        return note_and_look

    def _note(self, raw: bytes, query: BaseModel) -> None:
        if len(raw) <= _MAX_QUERY_BYTES:
            if len(self._queries) >= MAX_QUERIES:
                self._queries.clear()
            self._queries[raw] = query
