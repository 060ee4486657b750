"""The views of `model.views` as routes: uploads in, JSON or a PNG out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property, partial
from types import GenericAlias
from typing import Any, ClassVar

from pydantic import Field, ValidationError, create_model

from model.bundle import Manifest
from model.preprocess import Prepared
from model.preprocess.picture import MAX_TIMES
from model.views import all_views
from model.views.view import FEW_PICTURES, PictureQuery, View, ViewQuery
from service.errors import (
    Busy,
    InvalidParameter,
    MalformedRequest,
    NotOffered,
    Problem,
    TooLarge,
    UnknownModel,
    UnreadablePicture,
    UnsupportedFormat,
    UploadTimeout,
    unwrap,
)
from service.http.openapi import image_body, json_body
from service.http.request import (
    FILE_FIELD,
    JSON,
    Request,
    content_type,
    invalid,
    read_picture,
    read_pictures,
)
from service.http.route import Draw, Handler, Query, Route, to_json
from service.inference.engine import graph_of
from service.pictures import ImageSpec, Upload, Weighed

AnyView = View[Any, Any]
VIEWS: list[AnyView] = all_views()
"""All views in the order in which they are listed and matched, the most requested first."""
MAX_JSON_BYTES = 500_000
"""A body of parameters may have this many bytes. The most poses, of 16 numbers, take a fifth."""
BODY_PROBLEMS = (MalformedRequest, UploadTimeout, TooLarge, UnsupportedFormat, Busy)
"""The problems of any request body."""
IMAGE_PROBLEMS = (*BODY_PROBLEMS, UnreadablePicture)
"""The problems of a body of images."""


class ModelQuery(Query):
    """The parameters of every route that needs a model."""

    model: str | None = Field(None, description="A bundle of `GET /models`.", examples=["mnist"])
    view_query_type: ClassVar[type[ViewQuery]]
    """The class of `view_query`."""

    @cached_property
    def view_query(self) -> ViewQuery:
        """The view's own query, checked by the route. It pickles, and lacks what a body adds."""
        values = {name: value for name, value in self if name != "model"}
        return self.view_query_type.model_construct(**values)


def view_route(view: AnyView, max_pictures: int, **options: Any) -> Route:
    """The route of a view, where a request may have so many pictures.

    The OpenAPI document, from which the client is generated, and the limit of admission follow from
    the view's declaration.
    """
    least, most = view.pictures
    images = partial(image_body, least=least, most=most or max_pictures, example=view.example)
    body = json_body(view.body.model_json_schema()) if view.body else images()
    needs = {"x-needs": view.needs} if view.needs else {}
    lacking = (UnknownModel, NotOffered) if view.needs or view.may_need else (UnknownModel,)
    return Route(
        "POST",
        f"/{view.name}",
        _handler(view),
        max_rows=view.count_most_rows(max_pictures),
        drawn=("process" if view.figure else "thread") if view.draw else None,
        problems=(*(BODY_PROBLEMS if view.body else IMAGE_PROBLEMS), *lacking),
        tags=[view.tag],
        openapi={**body, **needs},
        **options,
    )


def _query_type(view: AnyView) -> type[ModelQuery]:
    """The query string's parameters: those of the view that its body has not, and the model."""
    name, fields = view.query.__name__, dict[str, Any]()
    if view.of_pairs:
        text = "A bundle for overlapping digits."
        fields["model"] = (str | None, Field(None, description=text))
    if view.body is None:
        kind: type[ModelQuery] = create_model(name, __base__=(view.query, ModelQuery), **fields)
    else:
        for parameter, field in view.query.model_fields.items():
            if parameter not in view.body.model_fields:
                fields[parameter] = (field.annotation, field)
        kind = create_model(name, __base__=ModelQuery, **fields)
    kind.view_query_type = view.query
    return kind


def _handler(view: AnyView) -> Handler:
    """The function that answers requests to a view."""

    async def handler(request: Request, query: Any) -> Any:
        view_query: ViewQuery = query.view_query
        if view.body:
            view_query = view_query.model_copy(update=await _read_body(view, request))
        manifest = _find_manifest(view, request, query.model)
        view_query.check(manifest)
        pictures, readable = await _read_admit_and_decode(view, view_query, manifest, request)
        answer = await view.ask(request.net(manifest), view_query, *pictures)
        if view.draw:
            return answer, answer.png
        if readable > FEW_PICTURES:
            return await request.context.slow.run(to_json, answer)
        return answer

    handler.__name__ = handler.__qualname__ = view.compute.__name__
    handler.__doc__ = view.compute.__doc__
    returned: Any = GenericAlias(tuple, (view.answer, Draw)) if view.draw else view.answer
    handler.__annotations__ = {"request": Request, "query": _query_type(view), "return": returned}
    return handler


async def _read_body(view: AnyView, request: Request) -> dict[str, Any]:
    """The parameters in a JSON body.

    Raises:
        TooLarge, UnsupportedFormat, MalformedRequest, InvalidParameter: it cannot be read.
    """
    assert view.body
    content = await request.body()
    if len(content) > MAX_JSON_BYTES:
        raise TooLarge(f"poses may have {MAX_JSON_BYTES:,} bytes")
    if content_type(request) != JSON:
        raise UnsupportedFormat("send application/json")
    try:
        return dict(view.body.model_validate_json(content))
    except ValidationError as error:
        raise invalid(error) from error


def _find_manifest(view: AnyView, request: Request, model: str | None) -> Manifest:
    """The manifest of the named network, or of the first that suits the view.

    Raises:
        UnknownModel: it is not loaded, or none suits.
        NotOffered: it cannot do what the view needs.
        InvalidParameter: it does not suit the view.
    """
    if not view.of_pairs:
        return request.manifest(model, needs=view.needs)
    manifests = request.engine.manifests.items()
    suited = sorted(name for name, manifest in manifests if manifest.of_pairs)
    if not (model or suited):
        raise UnknownModel("no model for overlapping digits is loaded", parameter="model")
    manifest = request.manifest(model or suited[0], needs=view.needs)
    if not manifest.of_pairs:
        raise InvalidParameter(
            f"{model!r} was not trained on overlapping digits; loaded models for these: "
            f"{', '.join(suited) or 'none'}",
            parameter="model",
        )
    return manifest


async def _read_admit_and_decode(
    view: AnyView, view_query: ViewQuery, manifest: Manifest, request: Request
) -> tuple[list[Prepared | Problem], int]:
    """Read as many pictures as the view takes, admit the request, and fit them.

    Returns:
        The pictures, and how many of them could be read at first. Those that failed are their
        problems, where the view takes any number.
    """
    price = request.engine.price(manifest.name, graph_of(view.needs))
    if not isinstance(view_query, PictureQuery):
        request.admit(view.count_rows(view_query.rows(manifest), 0), price=price)
        return [], 0
    spec = ImageSpec(
        manifest.image_shape,
        manifest.preprocess,
        view_query.fit,
        view_query.polarity,
        view_query.any_size(manifest),
    )
    uploads = await _read_uploads(view, spec, request)
    readable = sum(not isinstance(upload, Problem) for upload in uploads)
    request.admit(
        view.count_rows(view_query.rows(manifest), readable),
        files=len(uploads),
        price=price,
        relative_size=relative_size(uploads, spec),
    )
    prepared = await request.context.pictures.decode(uploads, spec)
    if view.pictures[1] is not None or len(prepared) == 1:
        prepared = list(map(unwrap, prepared))
    return prepared, readable


async def _read_uploads(
    view: AnyView, spec: ImageSpec, request: Request
) -> Sequence[Upload | Weighed]:
    """Read the uploads; of any number, with the problems that their headers announce."""
    least, most = view.pictures
    if most == 1:
        return [await read_picture(request)]
    uploads = await read_pictures(request, max_pictures=most or 0)
    if len(uploads) < least:
        raise InvalidParameter("send two images of one class", parameter=FILE_FIELD)
    return uploads if most else [*await request.context.pictures.weigh(uploads, spec)]


def relative_size(uploads: Sequence[Upload | Weighed], spec: ImageSpec) -> int:
    """The mean of file pixels / network pixels, rounded up; 1 where files are scaled.

    Files that are too large for `fit=none` cost no more than the largest that fit.
    """
    files = [upload.header for upload in uploads if isinstance(upload, Weighed)]
    if not (spec.any_size and spec.fit == "none" and files):
        return 1
    _, height, width = spec.shape
    most = MAX_TIMES * height * width
    pixels = sum(min(most, header.width * header.height) for header in files)
    return max(1, math.ceil(pixels / (len(files) * height * width)))
