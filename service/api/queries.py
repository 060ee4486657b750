"""What routes share that take an image. Unknown parameters are refused: typos must not pass."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from model.bundle import Manifest
from model.preprocess import Fit, Polarity
from service.http.route import Call
from service.http.uploads import read_picture
from service.inference.inspector import Capsule
from service.pictures.prepare import Frame

Scale = Annotated[int, Field(ge=1, le=32, description="PNG: each pixel becomes scale x scale.")]


class Query(BaseModel):
    """A query string."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ModelQuery(Query):
    """What every route with a network understands."""

    model: str | None = Field(None, description="A bundle of `GET /models`.", examples=["mnist"])


class FitQuery(Query):
    """How images are fitted."""

    fit: Fit = Field(
        "auto",
        description="`none` takes pictures of the network's size as they are, `stretch` scales the "
        "whole picture, `crop` its middle, `digit` and `pair` find the strokes of one and of two "
        "digits; `auto` is `none` where the size is right and the model's own rule elsewhere.",
    )
    polarity: Polarity = Field("auto", description="`auto` finds it; photographs have none.")


class PictureQuery(FitQuery, ModelQuery):
    """What every route with an image and a network understands."""

    def frame(self, manifest: Manifest) -> Frame:
        """What uploads are made into."""
        return Frame(manifest.image_shape, manifest.preprocess, self.fit, self.polarity)


class TargetQuery(PictureQuery):
    """What every route for one class of an image understands."""

    target: int | None = Field(None, ge=0, description="A label; by default the longest capsule's.")

    async def read_capsule(self, call: Call, manifest: Manifest, *, further: int) -> Capsule:
        """Encode the upload and take the target class, or the most present one.

        Args:
            call: with the upload.
            manifest: of the network.
            further: rows that are needed after it.

        Raises:
            QueueFull: see `Inspector.admit`.
        """
        upload, frame = await read_picture(call), self.frame(manifest)
        call.inspector.admit(1 + further)
        return await call.inspector.capsule(upload, manifest, frame, target=self.target)
