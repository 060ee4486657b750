"""Measure the health of a network's capsules on training images, as their critics do.

Axes: N images, R iterations, K classes (or parents), I input capsules, D numbers of a pose. With
s_ki the softmax over k of the logits, capsule i's shares:

- starved capsules: presence stays below PRESENT in all images (Mitterreiter et al. 2023, "Why
  Capsule Neural Networks Do Not Scale"; the mean presence: Everett, Zhong and Leontidis 2023,
  "Vanishing Activations");
- entropy -sum_k s_ki log s_ki / log K and polarisation (K max_k s_ki - 1) / (K - 1), means over
  images and capsules, by presence (Paik, Kwak and Kim 2019, "Capsule Networks Need an Improved
  Routing Algorithm");
- spread within a class and between classes: the standard deviation of s_ki over the images of a
  class, and that of the class means of s_ki; both times K;
- parse trees: rows s_ki of the predicted class in LEVELS steps, how many different ones there are
  in a class (Renzulli, Tartaglione and Grangetto 2022, "REM: Routing Entropy Minimization");
- negated: all poses of the last layer's input change their sign (Peer, Stabinger and
  Rodriguez-Sanchez 2019, "Limitations of Routing-by-Agreement Based Capsule Networks": without a
  bias, lengths stay the same);
- effective dimensions (sum_d v_d)^2 / sum_d v_d^2, of the eigenvalues v of the covariance of a
  class's poses (the participation ratio, Gao et al. 2017).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from model.bundle import Bundle
from model.bundle.health import CapsuleHealth, CouplingHealth, Health
from model.capsnet import Network
from model.capsnet.families import load
from model.outputs import Trace
from model.preprocess import Floats
from training.answers import Answers, as_floats, measure_presence
from training.device import open_runtime

COUNT = 500
"""The most images that are traced."""
PRESENT = 0.1
"""A capsule is present in an image from here on."""
LEVELS = 10
"""The steps from 0 to 1 in which the couplings of a parse tree are counted."""
_BATCH, _SEED = 10, 7
_TINY = 1e-12

Labels = NDArray[np.int64]
Doubles = NDArray[np.float64]


class Shares(NamedTuple):
    """The couplings of one layer as shares of each input capsule."""

    shares: Doubles
    """(N, R, K, I); they sum to one over K."""
    weights: Floats
    """The presence (N, I) of the input capsules; ones where a trace has none."""

    def measure(self) -> Doubles:
        """Entropy and polarisation (N, 2, R), means over capsules by presence."""
        by_capsule = np.stack([entropy(self.shares), polarisation(self.shares)])  # (2, N, R, I)
        total = self.weights.sum(axis=1)[:, None, None] + _TINY
        return np.asarray(np.einsum("mnri,ni->nmr", by_capsule, self.weights) / total)


def measure_health(bundle: Bundle, answers: Answers, *, described: str) -> Health:
    """Measure the health of a network that traces its routing.

    Args:
        answers: the images, of which up to COUNT at random are traced.
        described: what they are, in words.
    """
    traced = answers.draw(COUNT, seed=_SEED)
    images, labels, presence = as_floats(traced.images), traced.first, traced.presence
    runtime, network = open_runtime(bundle), load(bundle)
    measures: dict[str, list[Doubles]] = {}  # by layer
    shares: dict[str, list[Floats]] = {}
    presences: dict[str, list[Floats]] = {}
    for start in range(0, len(images), _BATCH):
        trace = runtime.trace(images[start : start + _BATCH])
        for name, couplings in shares_of(trace).items():
            measures.setdefault(name, []).append(couplings.measure())
            shares.setdefault(name, []).append(couplings.shares[:, -1].astype(np.float32))
        for name, active in presences_of(trace).items():
            presences.setdefault(name, []).append(active)
    last = {name: np.concatenate(parts) for name, parts in shares.items()}  # (N, K, I)
    rows = (last["classes"][np.arange(len(images)), labels] * LEVELS).round().astype(np.uint8)
    trees = [len(np.unique(rows[labels == label], axis=0)) for label in np.unique(labels)]
    negative = presence_negated(network, images)
    answers_differ = None if negative is None else negative.argmax(axis=1) != labels
    return Health(
        images=described,
        count=len(images),
        capsules=tuple(_describe_presence(*one) for one in presences.items()),
        couplings=tuple(
            _describe_couplings(name, np.concatenate(measures[name]), last[name], labels)
            for name in last
        ),
        parse_trees=round(float(np.mean(trees)), 2),
        images_per_class=round(len(images) / len(trees), 2),
        negated_changed_percent=(
            None if answers_differ is None else round(100 * float(answers_differ.mean()), 2)
        ),
        negated_presence_change=(
            None if negative is None else _rounded(np.abs(negative - presence).mean())
        ),
        effective_dims=effective_dims(traced.poses[np.arange(len(images)), labels], labels),
        class_dim=bundle.manifest.class_dim,
    )


def shares_of(trace: Trace[Floats]) -> dict[str, Shares]:
    """The shares of each routed layer, that of the class capsules last."""
    layers = {}
    for name, layer in trace.hidden.items():
        shares = layer.couplings.astype(np.float64)
        weights = np.ones((len(shares), shares.shape[-1]), np.float32)
        layers[name] = Shares(shares / (shares.sum(axis=2, keepdims=True) + _TINY), weights)
    logits = trace.classes.logits.astype(np.float64)
    shares = np.exp(logits - np.logaddexp.reduce(logits, axis=2, keepdims=True))
    return {**layers, "classes": Shares(shares, trace.classes.input_presence)}


def presences_of(trace: Trace[Floats]) -> dict[str, Floats]:
    """The presence (N, M) of all capsules of each layer, after the last iteration."""
    presences = {
        name: layer.presence[:, -1].reshape(len(layer.presence), -1)
        for name, layer in trace.hidden.items()
    }
    if not presences:
        presences["primary"] = trace.classes.input_presence
    return {**presences, "classes": trace.classes.presence[:, -1]}


def entropy(shares: Doubles) -> Doubles:
    """The entropy (..., I) of shares (..., K, I), from 0 to 1."""
    logs = np.log(shares.clip(_TINY))
    return np.asarray(-(shares * logs).sum(axis=-2) / np.log(shares.shape[-2]))


def polarisation(shares: Doubles) -> Doubles:
    """How near shares (..., K, I) are to serving one parent alone, from 0 to 1: (..., I)."""
    count = shares.shape[-2]
    return np.asarray((count * shares.max(axis=-2) - 1) / (count - 1))


def effective_dims(poses: Floats, labels: Labels) -> float:
    """The mean, over classes, of the effective dimensions of their poses (N, D)."""
    found = []
    for label in np.unique(labels):
        own = poses[labels == label].astype(np.float64)
        if len(own) > 1:
            values = np.linalg.eigvalsh(np.atleast_2d(np.cov(own, rowvar=False))).clip(0)
            found.append(values.sum() ** 2 / (np.square(values).sum() + _TINY))
    return round(float(np.mean(found)), 2) if found else 0.0


def presence_negated(network: Network, images: Floats) -> Floats | None:
    """The presence (N, K) in images where the poses that the last layer gets change their sign.

    None where no module of the network, `votes` or `classes`, gets them.
    """
    voting = getattr(network, "votes", getattr(network, "classes", None))
    if not isinstance(voting, nn.Module):
        return None
    # The first input is the poses of the capsules that vote for the classes.
    handle = voting.register_forward_pre_hook(lambda _, inputs: (-inputs[0], *inputs[1:]))
    try:
        return measure_presence(network, images, torch.device("cpu"))
    finally:
        handle.remove()


def _describe_presence(name: str, parts: list[Floats]) -> CapsuleHealth:
    presence = np.concatenate(parts)  # (N, M)
    return CapsuleHealth(
        layer=name,
        capsules=presence.shape[1],
        starved_percent=round(100 * float((presence.max(axis=0) < PRESENT).mean()), 2),
        mean_presence=_rounded(presence.mean(dtype=np.float64)),
    )


def _describe_couplings(
    name: str, measures: Doubles, shares: Floats, labels: Labels
) -> CouplingHealth:
    """What entropy and polarisation (N, 2, R) and the last shares (N, K, I) say of a layer."""
    entropies, polarisations = (
        tuple(map(_rounded, values)) for values in measures.mean(axis=0).clip(0, 1)
    )
    classes, counts = np.unique(labels, return_counts=True)
    groups = [shares[labels == label].astype(np.float64) for label in classes]
    within = np.average([group.var(axis=0) for group in groups], axis=0, weights=counts)
    means = np.stack([group.mean(axis=0) for group in groups])
    overall = np.average(means, axis=0, weights=counts)
    between = np.average(np.square(means - overall), axis=0, weights=counts)
    parents = shares.shape[1]  # the mean share is one of so many
    return CouplingHealth(
        layer=name,
        entropy=entropies,
        polarisation=polarisations,
        within_class=_rounded(parents * within.mean() ** 0.5),
        between_classes=_rounded(parents * between.mean() ** 0.5),
    )


def _rounded(value: float | np.floating[Any]) -> float:
    return round(float(value), 5)
