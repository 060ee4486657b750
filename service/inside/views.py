"""The views of one picture: what is asked of the networks for each, and in which order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from model.bundle import Manifest
from model.preprocess import Prepared
from model.runtime import Floats, Routing
from model.sweep import Sweep
from service.inside import agreement
from service.inside.agreement import Projection
from service.inside.equivariance import EquivarianceView, Walk
from service.inspector import Inspector, Sight, check_label
from service.preparation import Fitting


@dataclass(frozen=True)
class RoutingView:
    """How the capsules came to agree on one picture, and the class that is looked at."""

    prepared: Prepared
    label: int
    routing: Routing
    """Of this picture alone: no leading axis."""
    support: Floats
    """(R, K, I): see `service.inside.agreement.support`."""
    agreement: Floats
    """(R, K)."""
    entropy: Floats
    """(R,)."""
    projection: Projection
    """The votes for the label, weighted by the last couplings."""

    @classmethod
    def of(cls, prepared: Prepared, routing: Routing, *, target: int | None) -> RoutingView:
        """Work out the figures; the label is the longest capsule's where no target is given."""
        lengths = np.linalg.norm(routing.poses[-1], axis=-1)
        label = int(lengths.argmax()) if target is None else target
        flow = (routing.couplings, routing.votes, routing.poses)
        return cls(
            prepared=prepared,
            label=label,
            routing=routing,
            support=agreement.support(*flow),
            agreement=agreement.agreement(*flow),
            entropy=agreement.entropy(routing.couplings, routing.primary_lengths),
            projection=agreement.project(routing.votes[label], routing.couplings[-1, label]),
        )

    @property
    def lengths(self) -> Floats:
        """(R, K), of the class capsules after each iteration."""
        return np.asarray(np.linalg.norm(self.routing.poses, axis=-1))


async def draw_poses(
    inspector: Inspector, manifest: Manifest, sight: Sight, sweep: Sweep
) -> Floats:
    """The pictures of a sweep, (len(dims), len(deltas), H, W), decoded as one batch."""
    return sweep.on_grid(await inspector.draw(manifest, sweep.poses(sight.pose), sight.label))


async def watch_equivariance(
    inspector: Inspector, manifest: Manifest, sight: Sight, walk: Walk
) -> EquivarianceView:
    """Encode a picture at every step of a walk.

    Raises:
        Exception: what the runtime raised for one of the images.
    """
    prepared = sight.reading.prepared
    images = await asyncio.to_thread(walk.images, prepared.image)
    encodings = []
    for encoding in await inspector.engine.encode(manifest.name, images):
        if isinstance(encoding, Exception):
            raise encoding
        encodings.append(encoding)
    return EquivarianceView(
        sight=sight,
        walk=walk,
        images=images,
        lengths=np.stack([one.lengths for one in encodings]),
        poses=np.stack([one.poses[sight.label] for one in encodings]),
    )


async def watch_routing(
    inspector: Inspector,
    picture: bytes,
    manifest: Manifest,
    fitting: Fitting,
    *,
    target: int | None,
) -> RoutingView:
    """Route one picture and keep every iteration.

    Raises:
        Problem: the picture cannot be read or the target is out of range.
    """
    check_label(manifest, target, parameter="target")
    prepared = await inspector.prepare(picture, manifest, fitting)
    routing = await inspector.engine.route(manifest.name, prepared.image)
    return await asyncio.to_thread(RoutingView.of, prepared, routing, target=target)
