"""Outputs of a network for N images: of torch tensors and of numpy arrays alike.

Axes: K classes, D numbers of a pose, R routing iterations, I input capsules.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from numpy.typing import NDArray

from model.bundle import Layer

Graph = Literal["encode", "decode", "trace"]
"""A graph of a bundle, by what it does."""
Row = tuple[NDArray[Any], ...]
"""One image, or one pose and its class; or what a graph makes of them."""
EM_DECAY = 0.95
"""The ramp of EM routing's activations is 1 - EM_DECAY^t after t iterations."""
A = TypeVar("A")
"""The array type: `torch.Tensor`, or a numpy array of float32."""


class Encoding(NamedTuple, Generic[A]):
    """The class capsules of N images."""

    presence: A
    """The presence (N, K) of each class, in [0, 1]: see `model.bundle.Manifest.presence`."""
    poses: A
    """The poses (N, K, D). D is 0 where the network has no poses."""


def _shapes(arrays: Any) -> str:
    """A named tuple of arrays as a line: thousands of numbers say nothing."""
    fields = (f"{name}={tuple(array.shape)}" for name, array in arrays._asdict().items())
    return f"{type(arrays).__name__}({', '.join(fields)})"


class ClassTrace(NamedTuple, Generic[A]):
    """The routing from the input capsules of the last layer to the class capsules, for N images."""

    couplings: A
    """The couplings (N, R, K, I): the softmax of the logits over K. Self-attention adds B. For EM
    routing they are assignments; the weight of a vote is its coupling times `input_presence`."""
    logits: A
    """The logits b, (N, R, K, I)."""
    presence: A
    """The presence (N, R, K) after each iteration."""
    poses: A
    """The poses (N, R, K, D) after each iteration."""
    input_presence: A
    """The presence (N, I) of the input capsules."""
    votes: A
    """The votes (N, K, I, D)."""

    def __repr__(self) -> str:
        return _shapes(self)


class LayerTrace(NamedTuple, Generic[A]):
    """The routing of one layer of convolutional capsules."""

    couplings: A
    """The share of each input type T that goes to each output type T', (N, R, T', T)."""
    presence: A
    """The presence (N, R, T', rows, columns) after each iteration."""

    def __repr__(self) -> str:
        return _shapes(self)


class Trace(NamedTuple, Generic[A]):
    """The trace of routing in all layers, for N images."""

    classes: ClassTrace[A]
    """The last layer, from I input capsules to the classes."""
    hidden: Mapping[str, LayerTrace[A]] = MappingProxyType({})
    """The traces of the layers before the last one, by name."""

    def named(self) -> dict[str, A]:
        """Return all arrays by name.

        Those of hidden layers are `layer.couplings` and `layer.presence`.
        """
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
