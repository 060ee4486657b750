"""`GET /models`, `GET /models/{name}` and `POST /models/reload`."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

from pydantic import BaseModel, Field

from model.bundle.directions import summarise_directions
from model.bundle.health import CapsuleHealth, CouplingHealth, Explained
from model.bundle.manifest import Offer, PresenceKind
from model.views.answers import ModelAnswer, answer_fields
from model.views.figure import draw_health
from service.errors import Forbidden, NotOffered, ReloadNotOffered
from service.http.request import Request
from service.http.route import Draw, Query
from service.inference.engine import Engine
from service.settings import Settings
from service.views import VIEWS


class DirectionReport(BaseModel):
    """A direction of poses that /perturb takes, over all classes that have it."""

    name: str
    unit: str = Field(description="The unit of `delta`; empty for shares of the full brightness.")
    labels: list[int] = Field(description="The classes that have it.")
    low: float = Field(description="5 % of the images of the class with the lowest values.")
    high: float = Field(description="95 % of the images of the class with the highest values.")
    got: float = Field(description="The mean change of the drawing, for one that is asked for.")
    same_way: float = Field(description="The share of images whose drawing moves as asked.")
    largest_other: float = Field(
        description="The largest mean change of another measure, in its standard deviations."
    )
    r2: float = Field(description="The share of the variance that reading a pose explains.")
    mean_error: float = Field(description="The mean error of reading a pose, in the unit.")


class ModelSummary(BaseModel):
    """A model that the service has loaded."""

    name: str
    version: str = Field(description="Version of the weights.")
    family: str = Field(description="The kind of network.")
    family_title: str = Field(description="The name of the family, in a few words.")
    dataset: str
    class_names: list[str]
    channels: int = Field(description="Channels of the network's images: 1 for grey, 3 for colour.")
    height: int = Field(description="Height of the network's images, in pixels.")
    width: int
    any_size: bool = Field(description="Whether /classify also takes larger images, `fit=none`.")
    class_dim: int = Field(description="D, the size of a pose; 0 where there are none.")
    presence: PresenceKind = Field(description="What `length` and `lengths` in answers are.")
    offers: list[Offer] = Field(description="`decode`: routes that reconstruct; `trace`: /routing.")
    default: bool = Field(description="Whether this model answers requests without `model`.")
    metrics: dict[str, Any]
    calibrated: bool = Field(description="Whether /classify takes `coverage`.")
    explained: Explained | None = Field(
        description="The share of the images' variance that poses explain, compared with PCA; null "
        "if it was not measured."
    )
    directions: list[DirectionReport] = Field(
        description="What /perturb moves poses along; `GET /models/{name}` has each class's own."
    )
    notes: dict[str, list[str]] = Field(
        description="What limits the answers of some views, in sentences, by the view's name."
    )


class Limits(BaseModel):
    """The limits of one request."""

    images: int = Field(description="Most images of one request to /classify.")
    body_bytes: int


class ModelsAnswer(BaseModel):
    """The loaded models and the limits of a request."""

    provider: str = Field(description="The onnxruntime provider in use.")
    limits: Limits
    models: list[ModelSummary]


class HealthAnswer(ModelAnswer):
    """The health of the capsules of a model, measured on training images."""

    images: str = Field(description="The images that it was measured on.")
    count: int = Field(description="The number of those images.")
    capsules: list[CapsuleHealth] = Field(description="The capsules of each layer.")
    couplings: list[CouplingHealth] = Field(description="The couplings of each routed layer.")
    parse_trees: float = Field(description="Mean number of different parse trees of a class.")
    images_per_class: float = Field(description="The largest possible `parse_trees`.")
    negated_changed_percent: float | None = Field(
        description="Percentage of answers that change if all input capsules change their sign; "
        "null where the family does not allow that."
    )
    negated_presence_change: float | None = Field(
        description="Mean change of presence if all input capsules change their sign."
    )
    effective_dims: float = Field(description="Mean effective dimensions of a class's poses.")
    class_dim: int = Field(description="D, the numbers of a pose.")


class ModelPath(Query):
    """The parameters of `/models/{name}`."""

    name: str = Field(description="A bundle of `GET /models`.", examples=["mnist"])


async def list_models(request: Request) -> ModelsAnswer:
    """List the loaded models."""
    return summarise(request.engine, request.context.settings)


async def show_model(request: Request, query: ModelPath) -> dict[str, Any]:
    """Show a model's manifest."""
    return request.manifest(query.name).to_dict()


async def show_health(request: Request, query: ModelPath) -> tuple[HealthAnswer, Draw]:
    """Show the health of a network.

    Each number is defined in the documentation, on the page "Health of a network".

    Raises:
        NotOffered: the model has no routing, or its health was not measured.
    """
    manifest = request.manifest(query.name)
    if manifest.health is None:
        raise NotOffered(f"the health of {manifest.name!r} was not measured")
    request.admit(0)
    fields = {**answer_fields(manifest), **asdict(manifest.health)}
    draw = partial(draw_health, manifest.health, title=manifest.name)
    return HealthAnswer.model_validate(fields), draw


async def reload_models(request: Request) -> ModelsAnswer:
    """Reload all models.

    The key files are read first, and all workers use the new keys. Then each model is opened in
    a process of its own, workers load the models, and these replace the old ones. If a model
    cannot be loaded, the old models stay.

    Raises:
        Forbidden: no admin key is set, so nobody may reload.
        ReloadNotOffered: there is no supervisor to reload the other workers.
    """
    context, settings = request.context, request.context.settings
    if not (settings.admin_keys or settings.admin_keys_file):
        raise Forbidden(
            "no admin key is set: set CAPSNET_ADMIN_KEYS, or send SIGHUP to the supervisor"
        )
    if context.reload is None:
        raise ReloadNotOffered(
            "this process has no supervisor: restart it, or deploy it again, to load other bundles"
        )
    await context.finish(context.reload())
    return summarise(request.engine, settings)


def summarise(engine: Engine, settings: Settings) -> ModelsAnswer:
    """Describe the loaded models."""
    default = engine.default_model(settings.default_model)
    models = [
        ModelSummary.model_validate(
            {
                **vars(manifest),
                "any_size": manifest.any_size,
                "directions": summarise_directions(manifest.directions),
                "calibrated": manifest.confidence is not None,
                "family_title": manifest.family_title or manifest.family,
                "default": name == default,
                "notes": {view.name: notes for view in VIEWS if (notes := view.notes_on(manifest))},
            }
        )
        for name, manifest in sorted(engine.manifests.items())
    ]
    limits = Limits(images=settings.max_pictures, body_bytes=settings.max_body_bytes)
    return ModelsAnswer(provider=engine.provider, limits=limits, models=models)
