"""The declaration of a view, with which each module of this package ends, and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Concatenate, Generic, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.canvas import write_below
from model.errors import InvalidParameter
from model.preprocess import Fit, Polarity, Prepared
from model.views.answers import ModelAnswer
from model.views.net import Net, check_label

MAX_CLASSES = 1000
"""Labels and dimensions in queries may have this many values; models have fewer."""
Delta = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Index = Annotated[int, Field(ge=0, le=MAX_CLASSES - 1)]
SCALE_TEXT = "PNG: each pixel becomes scale x scale, or less in a very large drawing."
Scale = Annotated[int, Field(ge=1, le=32, description=SCALE_TEXT)]
FEW_PICTURES = 4
"""Without a drawing, the answer about so many pictures is formed on the event loop."""
RESPONSE_COST_ROWS = 1
"""The rows that forming a response costs, where it takes as long as inference."""
Note = Callable[[Manifest], str | None]
"""A sentence on what limits a network's answers; None where it does not apply."""
Q = TypeVar("Q", bound="ViewQuery")
A = TypeVar("A", bound=ModelAnswer)


class Query(BaseModel):
    """Parameters by name. Unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    lists: ClassVar[frozenset[str]] = frozenset()
    """Parameters that may be repeated. If another parameter is repeated, its last value counts."""


class ViewQuery(Query):
    """The parameters of a view."""

    max_rows: ClassVar[int] = 0
    """The largest number of `rows` of any query, for any network."""

    def check(self, manifest: Manifest) -> None:
        """Refuse parameters that do not fit this network, before any picture is read.

        Raises:
            InvalidParameter: a parameter is out of the network's range.
            NotOffered: the network cannot do what the parameters need.
        """
        self.rows(manifest)

    def rows(self, manifest: Manifest) -> int:  # noqa: ARG002
        """The images and poses that are computed for each picture after its encoding.

        Raises:
            InvalidParameter: a parameter is out of the network's range.
        """
        return self.max_rows


class FitQuery(Query):
    """How images are fitted to the network's size."""

    fit: Fit = Field(
        "auto",
        description="`none` requires the network's size, or a larger one in `/classify` if the "
        "model has `any_size`; `stretch` scales the whole image; `crop` "
        "takes the centre; `digit` and `pair` find the strokes of one or two digits; `auto` is "
        "`none` if the size matches, else the rule `preprocess` of the model.",
    )
    polarity: Polarity = Field(
        "auto",
        description="`auto` detects it; not used for photographs.",
    )


class PictureQuery(FitQuery, ViewQuery):
    """The parameters of every view of pictures."""

    def any_size(self, manifest: Manifest) -> bool:  # noqa: ARG002
        """Whether pictures may be larger than the network's image."""
        return False


class TargetQuery(PictureQuery):
    """The parameters of every view of one class of an image."""

    target: Index | None = Field(
        None, description="The label of a class. The default is the class of the longest capsule."
    )

    def check(self, manifest: Manifest) -> None:
        """Refuse a label that the network does not have."""
        check_label(manifest, self.target)
        super().check(manifest)


def read_query(kind: type[Q], parameters: Mapping[str, object]) -> Q:
    """Make a query. Parameters that are None have their defaults.

    Raises:
        InvalidParameter: a parameter is missing, unknown or wrong.
    """
    try:
        return kind.model_validate(
            {name: value for name, value in parameters.items() if value is not None}
        )
    except ValidationError as error:
        raise describe_fault(error) from error


def describe_fault(error: ValidationError) -> InvalidParameter:
    """The first fault of a query that pydantic refused; a fault of the body has no parameter."""
    fault = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, fault["loc"]))
    names = [part for part in fault["loc"] if isinstance(part, str)]
    if not names:
        return InvalidParameter(fault["msg"])
    texts = {"extra_forbidden": f"unknown parameter {where}", "missing": f"{where} is required"}
    text = texts.get(fault["type"], f"{where}: {fault['msg']}")
    return InvalidParameter(text, parameter=names[0])


def poor_decoder(manifest: Manifest) -> str | None:
    """What pictures of the decoder lack, where poses explain less than half or a linear code."""
    explained = manifest.explained
    if explained is None or not (explained.is_weak or explained.is_low):
        return None
    found = f"A pose of {manifest.name} explains only {100 * explained.pose:.0f} % of the variance "
    if explained.pose < 0:
        found = f"What a pose of {manifest.name} draws is further from an image than the mean "
    if explained.is_weak:
        return (
            f"{found}of images, so what it draws says little: look at neighbours, occlusion, "
            "routing and confidence instead. To improve it, train with more images of each class. "
            "For photographs, train with --stem pretrained."
        )
    return (
        f"{found}of images; PCA of the same class with as many numbers explains "
        f"{100 * explained.pca_same:.0f} %. What the decoder draws may miss details that "
        "PCA would show."
    )


def untrained_absent_classes(manifest: Manifest) -> str | None:
    """Why the decoder's pictures of absent classes say little, unless it learnt from pairs."""
    recipe = manifest.training.get("recipe")
    if recipe is None or recipe.get("task") == "pairs":
        return None
    return (
        f"The decoder of {manifest.name} drew in training only the class that an image shows. "
        "What it draws for an absent class is left to chance, often the same blur for every "
        "image. Do not read it as the network's idea of that class in this image."
    )


def useless_sets(manifest: Manifest, coverage: float | None) -> list[str] | None:
    """That sets of labels add nothing, where each is the most probable label alone."""
    confidence = manifest.confidence
    if coverage is None or confidence is None or not confidence.is_top_label_alone(coverage):
        return None
    note = (
        f"At a coverage of {coverage:g}, every set of {manifest.name} is the most probable label "
        "alone: the network is right more often than that, so the sets add nothing."
    )
    return [note]


@dataclass(frozen=True)
class View(Generic[Q, A]):
    """A question to a network: a function of its pictures and parameters.

    Args:
        compute: `compute(net, query, *pictures)` answers. Its docstring is the documentation, and
            the annotations of `query` and of what it returns say the parameters and the answers.
            Where `pictures` has no upper bound, those that failed are exceptions.
        pictures: the fewest and the most pictures of a question; None if only the request limits
            them.
        body: the parameters that a request has in its body, for a view without pictures.
        draw: `draw(answer)` returns a PNG; `draw(answer, scale)` if the query has a `scale`. It
            pickles, and needs neither the network nor its manifest.
        figure: whether the drawing is a figure, with notes below. It is drawn in a process, and
            forming the response costs a row. Other drawings are only an image, in its own size.
        needs: the operation that a network must offer.
        may_need: the operation that some queries need.
        notes: further sentences on what limits answers: see `notes_on`.
        of_pairs: whether the view is for networks of overlapping digits, not for all.
        tag: the group in documentation.
        example: the path of an image to try it on.
    """

    compute: Callable[Concatenate[Net, Q, ...], Coroutine[Any, Any, A]]
    _: KW_ONLY
    pictures: tuple[int, int | None] = (1, 1)
    body: type[BaseModel] | None = None
    draw: Callable[..., bytes] | None = None
    figure: bool = False
    needs: Offer | None = None
    may_need: Offer | None = None
    notes: tuple[Note, ...] = ()
    of_pairs: bool = False
    tag: str = "interpret"
    example: str = "/samples/7.png"

    @cached_property
    def name(self) -> str:
        """The name of the route and the command; the method has `_` for `-`."""
        return self.compute.__name__.replace("_", "-")

    @cached_property
    def query(self) -> type[Q]:
        """The class of the parameters."""
        query: type[Q] = get_type_hints(self.compute)["query"]
        return query

    @cached_property
    def answer(self) -> type[A]:
        """The class of the answers."""
        answer: type[A] = get_type_hints(self.compute)["return"]
        return answer

    def notes_on(self, manifest: Manifest) -> list[str]:
        """What limits the answers of a network: those of its decoder, and the view's own notes."""
        has_images = manifest.neighbours is not None and bool(manifest.neighbours.licence)
        decodes = self.needs == "decode" or (self.needs == "neighbours" and not has_images)
        notes = (*([poor_decoder] if decodes else []), *self.notes)
        return [sentence for note in notes if (sentence := note(manifest))]

    async def ask(self, net: Net, query: Q, *pictures: Prepared | Exception) -> A:
        """Compute the answer, with notes on what limits it, in the channels that are shown."""
        answer = await self.compute(net, query, *pictures)
        answer.notes = [*(answer.notes or ()), *self.notes_on(net.manifest)] or None
        draw = partial(self._draw_noted, query) if self.draw else None
        answer.show(net.manifest.shown_channels, draw=draw)
        return answer

    def _draw_noted(self, query: Q, answer: A, scale: int | None) -> bytes:
        """Draw an answer, with its notes below, perhaps on another scale than was asked for."""
        assert self.draw
        if scale is not None:
            query = read_query(type(query), {**dict(query), "scale": scale})
        scales = [value for name, value in query if name == "scale"]
        drawing = self.draw(answer, *scales)
        return write_below(drawing, answer.notes or ()) if self.figure else drawing

    def count_rows(self, rows: int, pictures: int) -> int:
        """The rows of a request: its pictures, `rows` for each of them, and the response.

        Args:
            rows: of the query: see `ViewQuery.rows`.
            pictures: that can be read.
        """
        response = RESPONSE_COST_ROWS if self.figure or pictures > FEW_PICTURES else 0
        return pictures + rows * (pictures if self.pictures[0] else 1) + response

    def count_most_rows(self, max_pictures: int) -> int:
        """The rows of the largest request, where a request may have so many pictures."""
        most = self.pictures[1]
        return self.count_rows(self.query.max_rows, max_pictures if most is None else most)
