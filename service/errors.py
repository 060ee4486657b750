"""Every way a request can fail in the app: `service.http.middleware` answers (RFC 9457)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Self, TypeVar

from model.errors import (
    InvalidParameter,
    NotOffered,
    Problem,
    TooLarge,
    UnreadablePicture,
    UnsupportedFormat,
    unwrap,
)

__all__ = [
    # of `model.errors`
    "InvalidParameter",
    "NotOffered",
    "Problem",
    "TooLarge",
    "UnreadablePicture",
    "UnsupportedFormat",
    "unwrap",
]
Error = TypeVar("Error", bound=BaseException)


def release(error: Error) -> Error:
    """Drop an error's traceback and causes, whose frames would keep uploads in memory.

    Where a frame holds the error, only the garbage collector would free both, much later.
    """
    link: BaseException | None = error
    while link is not None:
        before = link.__cause__ or link.__context__
        link.__traceback__ = link.__cause__ = link.__context__ = None
        link = before
    return error


class MalformedRequest(Problem, status=400, slug="malformed-request", title="Malformed request"):
    """The body is not what its content type says, or lacks the image."""


class UnknownHost(Problem, status=400, slug="unknown-host", title="Unknown host"):
    """The `Host` is none of `CAPSNET_ALLOWED_HOSTS`: a web page may have rebound its name."""


class Unauthorized(Problem, status=401, slug="unauthorized", title="API key required"):
    """No API key, or one that the service does not know (RFC 9110, section 11.6.1)."""

    headers: Mapping[str, str] = {"WWW-Authenticate": 'Bearer realm="capsnet-service"'}


class Forbidden(Problem, status=403, slug="forbidden", title="Admin key required"):
    """An API key where an admin key is needed."""


class CrossSite(Problem, status=403, slug="cross-site", title="Cross-site request"):
    """A web page of another site asks, and `CAPSNET_CORS_ORIGINS` does not allow it."""


class UnknownModel(Problem, status=404, slug="unknown-model", title="Model not found"):
    """No model of that name is loaded."""


class NotFound(Problem, status=404, slug="not-found", title="Not found"):
    """The path is none of the API's."""


class MethodNotAllowed(Problem, status=405, slug="method-not-allowed", title="Method not allowed"):
    """A route, but not with this method."""

    @classmethod
    def of(cls, methods: Collection[str]) -> Self:
        """The problem of a path with these methods; GET includes HEAD."""
        names = {*methods, *(("HEAD",) if "GET" in methods else ())}
        allowed = ", ".join(sorted(names))
        return cls(f"allowed methods: {allowed}", headers={"Allow": allowed})


class NotAcceptable(Problem, status=406, slug="not-acceptable", title="Not acceptable"):
    """The answer does not exist in any of the media types that were asked for."""


class UploadTimeout(Problem, status=408, slug="upload-timeout", title="Upload timed out"):
    """The body did not arrive in time."""

    headers: Mapping[str, str] = {"Connection": "close"}


class BundleRefused(Problem, status=409, slug="bundle-refused", title="Bundle cannot be loaded"):
    """A bundle could not be loaded. The bundles that were loaded before are still served."""


class KeysRefused(Problem, status=409, slug="keys-refused", title="Keys cannot be used"):
    """A file of keys cannot be read, or has an unfit key. Nothing has changed."""


class NoSpace(Problem, status=409, slug="no-space", title="No space for the bundles"):
    """The service's temporary folder has no room for a copy. The old bundles are still served."""


class ReloadUnderWay(Problem, status=409, slug="reload-under-way", title="Reload under way"):
    """Another reload of the bundles has not ended. The keys have been reloaded."""


class ReloadNotOffered(
    Problem, status=409, slug="reload-not-offered", title="Reload not supported"
):
    """This process has no supervisor that could have all workers reload."""


class Busy(Problem, status=429, slug="busy", title="Queue full"):
    """More work waits than the service takes in; try again after `Retry-After` seconds."""


class RateLimited(Problem, status=429, slug="rate-limited", title="Rate limit exceeded"):
    """A key, or an address, asks for more rows a second than it may."""


class Unavailable(Problem, status=503, slug="unavailable", title="Service unavailable"):
    """The service is starting or draining, or has failed; another instance may answer."""


class TooLate(Problem, status=504, slug="too-late", title="Deadline exceeded"):
    """The answer was not ready within the request's time."""
