"""The views of one picture: what is asked of the networks for each, and in which order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import numpy as np

from model.bundle import Manifest
from model.interpret.sweep import Sweep
from model.preprocess import Floats, Prepared
from model.runtime import Trace
from service.inside import agreement
from service.inside.agreement import Projection
from service.inside.equivariance import EquivarianceView, Walk
from service.inspector import Capsule, Encoded, Inspector, check_label
from service.preparation import Fitting


@dataclass(frozen=True)
class RoutingView:
    """How the capsules came to agree on one picture, and the class that is looked at."""

    capsule: Capsule
    """After the last iteration."""
    trace: Trace
    """Of this picture alone: no leading axis."""
    weights: Floats
    """(K, I): of the votes in the last iteration."""
    support: Floats
    """(R, K, I): see `service.inside.agreement.support`."""
    agreement: Floats
    """(R, K)."""
    entropy: Floats
    """(R,)."""
    projection: Projection
    """The votes for the class by their weights."""

    @classmethod
    def of(
        cls, manifest: Manifest, prepared: Prepared, trace: Trace, *, target: int | None
    ) -> RoutingView:
        """Work out the figures; the class is the most present one where no target is given."""
        classes = trace.classes
        presence = classes.presence[-1]
        label = int(presence.argmax()) if target is None else target
        couplings = classes.couplings
        # A vote's length tells how present its capsule is, but for matrix capsules.
        activated = manifest.presence == "activation"
        weights = couplings * classes.input_presence if activated else couplings
        return cls(
            capsule=Capsule(Encoded(prepared, presence, classes.poses[-1]), label),
            trace=trace,
            weights=weights[-1],
            support=agreement.support(weights, classes.votes, classes.poses),
            agreement=agreement.agreement(weights, classes.votes, classes.poses),
            entropy=agreement.entropy(couplings, classes.input_presence),
            projection=agreement.project(classes.votes[label], weights[-1, label]),
        )


async def decode_sweep(
    inspector: Inspector, manifest: Manifest, capsule: Capsule, sweep: Sweep
) -> Floats:
    """The images of a sweep, (len(dims), len(deltas), C, H, W), decoded as one batch."""
    poses = sweep.poses(capsule.pose)
    return sweep.on_grid(await inspector.decode(manifest, poses, capsule.label))


async def view_equivariance(
    inspector: Inspector, manifest: Manifest, capsule: Capsule, walk: Walk
) -> EquivarianceView:
    """Encode a picture at every step of a walk.

    Raises:
        Exception: what the runtime raised for one of the images.
    """
    images = await asyncio.to_thread(walk.images, capsule.encoded.prepared.image)
    encodings = []
    for encoding in await inspector.engine.encode(manifest.name, images):
        if isinstance(encoding, Exception):
            raise encoding
        encodings.append(encoding)
    return EquivarianceView(
        capsule=capsule,
        walk=walk,
        images=images,
        presence=np.stack([one.presence for one in encodings]),
        poses=np.stack([one.poses[capsule.label] for one in encodings]),
    )


async def view_routing(
    inspector: Inspector,
    picture: bytes,
    manifest: Manifest,
    fitting: Fitting,
    *,
    target: int | None,
) -> RoutingView:
    """Trace one picture and keep every iteration.

    Raises:
        Problem: the picture cannot be read or the target is out of range.
    """
    check_label(manifest, target, parameter="target")
    prepared = await inspector.prepare(picture, manifest, fitting)
    trace = await inspector.engine.trace(manifest.name, prepared.image)
    return await asyncio.to_thread(RoutingView.of, manifest, prepared, trace, target=target)
