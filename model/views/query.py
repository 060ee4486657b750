"""The parameters of views: those that several views share, and what a query says of its cost."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model.bundle import Manifest
from model.errors import InvalidParameter
from model.preprocess import Fit, Polarity
from model.views.net import check_label

MAX_CLASSES = 1000
"""Labels and dimensions in queries may have this many values; models have fewer."""
Delta = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)]
Index = Annotated[int, Field(ge=0, le=MAX_CLASSES - 1)]
SCALE_TEXT = "PNG: each pixel becomes scale x scale, or less in a very large drawing."
Scale = Annotated[int, Field(ge=1, le=32, description=SCALE_TEXT)]


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
