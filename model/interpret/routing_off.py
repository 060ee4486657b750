"""Compute presence again from the same votes with other couplings: did routing decide the answer?

The last routed layer alone is computed again; layers of convolutional capsules before it stay as
they were. Axes: N images, R iterations, K classes, I input capsules, D numbers of a pose.

- `uniform`: every vote weighs 1 / K for every class, without a coupling bias. Where routing
  iterates, this is its first iteration, and what a network that routes once would say.
- `one-iteration`: the couplings that one iteration of agreement made of uniform ones. Only where
  there are more iterations than these two.
- `no-bias`: without the learned B that self-attention adds to its softmax (Mazzia, Salvetti and
  Chiaberge 2021, equation 3). Only where couplings are no softmax.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.interpret.presence import most_present
from model.outputs import ClassTrace
from model.preprocess import Floats

Variant = Literal["routed", "uniform", "one-iteration", "no-bias"]
TITLES: dict[Variant, str] = {
    "routed": "as routed",
    "uniform": "uniform couplings",
    "one-iteration": "after one iteration",
    "no-bias": "without the coupling bias",
}
"""Titles of the variants."""
_DECAY = 0.95
"""The decay in EM routing's ramp: see `model.capsnet.routing.em.iterate`."""
_TOLERANCE = 1e-3
"""The largest error of presence that is computed again as routed."""


def routing_off(trace: ClassTrace[Floats], *, activated: bool) -> dict[Variant, Floats]:
    """Compute the presence (N, K) of each variant that the network has, `routed` first.

    Args:
        trace: of N images.
        activated: whether presence is an activation that EM routing computed
            (`manifest.presence == "activation"`), and not the length of a capsule.

    Raises:
        ValueError: presence does not follow from the couplings by any rule that is known here.
    """
    iterations = trace.logits.shape[1]
    variants: dict[Variant, Floats] = {"routed": trace.presence[:, -1]}
    if not trace.logits[:, 0].any():  # the first iteration's couplings are uniform
        variants["uniform"] = _after(trace, 1, activated=activated)
        if iterations > 2:
            variants["one-iteration"] = _after(trace, 2, activated=activated)
        return variants
    softmax = _softmax(trace.logits[:, -1])
    again = _length(trace.couplings[:, -1], trace.votes)
    if activated or iterations > 1 or np.abs(again - variants["routed"]).max() > _TOLERANCE:
        raise ValueError("presence does not follow from the couplings by a rule that is known")
    variants["uniform"] = _length(np.full_like(softmax, 1 / softmax.shape[1]), trace.votes)
    if not np.allclose(softmax, trace.couplings[:, -1], atol=1e-6):
        variants["no-bias"] = _length(softmax, trace.votes)
    return variants


def answers(presence: Floats, count: int) -> NDArray[np.int64]:
    """Return the labels of the `count` most present classes of presence (N, K), sorted: (N, count).

    Two answers are the same if these rows are.
    """
    return np.sort(most_present(presence, count))


def _after(trace: ClassTrace[Floats], iteration: int, *, activated: bool) -> Floats:
    """Presence (N, K) of a network that routes for so many iterations and no more.

    EM routing scales the logits of activations up from iteration to iteration: those of an earlier
    one are scaled as the last one's are.
    """
    presence = trace.presence[:, iteration - 1]
    if not activated:
        return presence
    last = trace.presence.shape[1]
    ramp = (1 - _DECAY**last) / (1 - _DECAY**iteration)
    exact = presence.astype(np.float64).clip(1e-30, 1 - 2**-24)
    logits = np.log(exact) - np.log1p(-exact)
    return np.asarray(1 / (1 + np.exp(-ramp * logits)), np.float32)


def _length(couplings: Floats, votes: Floats) -> Floats:
    """1 - exp(-|s|), s = sum_i c_ki u_ki, of couplings (N, K, I) and votes (N, K, I, D): (N, K).

    The length that self-attention's squash gives (Mazzia 2021, equation 1).
    """
    sums = np.matmul(couplings[:, :, None], votes)[:, :, 0]
    return np.asarray(1 - np.exp(-np.linalg.norm(sums, axis=-1)))


def _softmax(logits: Floats) -> Floats:
    """Over classes: (N, K, I)."""
    return np.asarray(np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)))
