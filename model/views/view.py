"""The declaration of a view, with which each module of this package ends."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Any, Concatenate, Generic, TypeVar, get_type_hints

from pydantic import BaseModel

from model.bundle import Manifest
from model.bundle.manifest import Offer
from model.canvas import showing
from model.errors import NotOffered
from model.preprocess import Prepared
from model.views.answers import ModelAnswer
from model.views.net import Net
from model.views.notes import poor_decoder, write_below
from model.views.query import ViewQuery

RESPONSE_COST_ROWS = 1
"""The rows that forming a response costs, where it takes as long as inference."""
Note = Callable[[Manifest], str | None]
"""A sentence on what limits a network's answers; None where it does not apply."""
Q = TypeVar("Q", bound=ViewQuery)
A = TypeVar("A", bound=ModelAnswer)


@dataclass(frozen=True)
class View(Generic[Q, A]):
    """A question to a network: a function of its pictures and parameters.

    Args:
        compute: `compute(net, query, *pictures)` answers. Its docstring is the documentation, and
            the annotations of `query` and of what it returns say the parameters and the answers.
            Where `pictures` has no upper bound, those that failed are exceptions.
        name: the name of the route and the command; by default that of `compute`, with `-` for `_`.
            The method has `_` for `-`.
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
    name: str = ""
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

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", self.compute.__name__.replace("_", "-"))

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
