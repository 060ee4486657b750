"""The declaration of a view, with which each module of this package ends, and its parameters."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Concatenate, Generic, TypeVar, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.canvas import showing, write_below
from model.errors import InvalidParameter, NotOffered
from model.preprocess import Fit, Polarity, Prepared
from model.views.answers import ModelAnswer
from model.views.net import Net, check_label

MAX_CLASSES = 1000
"""Labels and dimensions in queries may have this many values; models have fewer."""
Delta = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Index = Annotated[int, Field(ge=0, le=MAX_CLASSES - 1)]
SCALE_TEXT = "PNG: each pixel becomes scale x scale, or less in a very large drawing."
Scale = Annotated[int, Field(ge=1, le=32, description=SCALE_TEXT)]
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
    if explained is not None and explained.is_weak:
        return (
            f"A pose of {manifest.name} explains only {100 * explained.pose:.0f} % of the variance "
            "of images, so what it draws says little: look at neighbours, occlusion, routing and "
            "confidence instead, or train with more images of each class (of photographs, with "
            "--stem pretrained)."
        )
    if explained is None or not explained.is_low:
        return None
    return (
        f"A pose of {manifest.name} explains only {100 * explained.pose:.0f} % of the variance of "
        f"images; PCA of the same class with as many numbers explains "
        f"{100 * explained.pca_same:.0f} %. What the decoder draws shows little of the image "
        "except its class."
    )


def untrained_absent_classes(manifest: Manifest) -> str | None:
    """Why the decoder's pictures of absent classes say little, unless it learnt from pairs."""
    recipe = manifest.training.get("recipe")
    if recipe is None or recipe.get("task") == "pairs":
        return None
    return (
        f"The decoder of {manifest.name} was trained on the class of each image alone. What it "
        "draws for an absent class is left to chance, often the same blur for every image. Do not "
        "read it as the network's idea of that class in this image."
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
        large: whether forming the JSON takes milliseconds, for a given number of pictures.
        draw: returns a PNG. It pickles, and needs neither the network nor its manifest.
        slow: whether drawing takes matplotlib, and so a process.
        needs: the operation that a network must offer.
        may_need: the operation that some queries need.
        plain: whether the drawing is only the image, in its own size, without notes.
        notes: further sentences on what limits answers: see `notes_on`.
        of_pairs: whether the view is for networks of overlapping digits, not for all.
        tag: the group in documentation.
        example: the path of an image to try it on.
    """

    compute: Callable[Concatenate[Net, Q, ...], Coroutine[Any, Any, A]]
    _: KW_ONLY
    pictures: tuple[int, int | None] = (1, 1)
    body: type[BaseModel] | None = None
    large: bool | Callable[[int], bool] = False
    draw: Callable[[A, Q], bytes] | None = None
    slow: bool = False
    needs: Offer | None = None
    may_need: Offer | None = None
    plain: bool = False
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
        answer.show(net.manifest.shown_channels)
        return answer

    def drawing(self, answer: A, query: Q, manifest: Manifest) -> Callable[[], bytes]:
        """What draws a network's answer, with its notes below. It pickles.

        Raises:
            NotOffered: there is no drawing of such answers.
        """
        if self.draw is None:
            raise NotOffered(f"{self.name} has no drawing")
        notes = () if self.plain else (answer.notes or ())
        drawn = partial(self.draw, answer, query)
        return partial(_draw_noted, drawn, notes, manifest.shown_channels)

    def is_large(self, pictures: int) -> bool:
        """Whether forming the JSON of so many pictures' answer takes milliseconds."""
        return self.large(pictures) if callable(self.large) else self.large

    def cost(self, rows: int, pictures: int) -> int:
        """The rows that a request costs: its pictures, `rows` for each of them, and the response.

        Args:
            rows: of the query: see `ViewQuery.rows`.
            pictures: that can be read.
        """
        response = RESPONSE_COST_ROWS if self.is_large(pictures) else 0
        return pictures + rows * (pictures if self.pictures[0] else 1) + response

    def max_cost(self, max_pictures: int) -> int:
        """The cost of the most expensive request, where a request may have so many pictures."""
        most = self.pictures[1]
        return self.cost(self.query.max_rows, max_pictures if most is None else most)


def _draw_noted(draw: Callable[[], bytes], notes: Sequence[str], shown: Sequence[int]) -> bytes:
    with showing(shown):
        return write_below(draw(), notes)
