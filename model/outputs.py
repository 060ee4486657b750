"""Outputs of a network for N images: of torch tensors and of numpy arrays alike.

Axes: K classes, D numbers of a pose, R routing iterations, I input capsules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from model.bundle import Layer

A = TypeVar("A")
"""`torch.Tensor` or a numpy array of float32."""


class Encoding(NamedTuple, Generic[A]):
    """The class capsules of N images."""

    presence: A
    """(N, K): how present each class is, in [0, 1]: see `model.bundle.Manifest.presence`."""
    poses: A
    """(N, K, D); D is 0 where the network has no poses."""


def _shapes(arrays: Any) -> str:
    """A named tuple of arrays as a line: thousands of numbers say nothing."""
    fields = (f"{name}={tuple(array.shape)}" for name, array in arrays._asdict().items())
    return f"{type(arrays).__name__}({', '.join(fields)})"


class ClassTrace(NamedTuple, Generic[A]):
    """The routing between the last layer of N images and their class capsules."""

    couplings: A
    """c, (N, R, K, I): what each vote weighs in its class's sum. The softmax of the logits over K;
    self-attention adds its learned B."""
    logits: A
    """b, (N, R, K, I)."""
    presence: A
    """(N, R, K): after each iteration."""
    poses: A
    """(N, R, K, D)."""
    input_presence: A
    """(N, I)."""
    votes: A
    """(N, K, I, D)."""

    def __repr__(self) -> str:
        return _shapes(self)


class LayerTrace(NamedTuple, Generic[A]):
    """The routing of one layer of convolutional capsules."""

    couplings: A
    """(N, R, T', T): the share of each input type T that went to each output type T'."""
    presence: A
    """(N, R, T', rows, columns): after each iteration."""

    def __repr__(self) -> str:
        return _shapes(self)


class Trace(NamedTuple, Generic[A]):
    """Everything that routing did with N images."""

    classes: ClassTrace[A]
    """The last layer, from I input capsules to the classes."""
    hidden: Mapping[str, LayerTrace[A]] = MappingProxyType({})
    """The layers before the last one, by name."""

    def named(self) -> dict[str, A]:
        """All arrays; those of hidden layers as `layer.couplings` and `layer.presence`."""
        named: dict[str, A] = self.classes._asdict()
        for name, layer in self.hidden.items():
            named |= {f"{name}.{field}": array for field, array in layer._asdict().items()}
        return named

    @classmethod
    def of(cls, arrays: Iterable[A], layers: Sequence[Layer]) -> Trace[A]:
        """The trace whose arrays, in the order of `named`, these are.

        Args:
            layers: of the network; the last one feeds the class capsules.
        """
        rest = iter(arrays)
        classes = ClassTrace(*(next(rest) for _ in ClassTrace._fields))
        return Trace(
            classes, {layer.name: LayerTrace(next(rest), next(rest)) for layer in layers[:-1]}
        )
