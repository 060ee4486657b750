"""The registry of families. A new family is a module and an entry (docs/tutorial/add-family.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from torch import Tensor

from model import open_bundle
from model.bundle import WEIGHTS, Bundle, BundleError
from model.bundle.entry import describe_fault
from model.bundle.manifest import Offer, PresenceKind, RoutingKind
from model.capsnet.attention import AttentionCapsNet, AttentionConfig
from model.capsnet.baseline import BaselineCnn, BaselineConfig
from model.capsnet.dynamic import DynamicCapsNet, DynamicConfig
from model.capsnet.matrix import MatrixCapsNet, MatrixConfig
from model.capsnet.network import Network, NetworkConfig
from model.capsnet.shared import SharedCapsNet, SharedConfig


@dataclass(frozen=True)
class Family:
    """A kind of network: its configuration, its module and its operations."""

    name: str
    title: str
    """A title in a few words."""
    source: str
    """The paper or page it comes from."""
    config: type[NetworkConfig]
    build: Callable[[Any], Network]
    offers: frozenset[Offer] = frozenset({"decode", "trace"})
    presence: PresenceKind = "length"
    """The meaning of `Encoding.presence`."""
    routing: RoutingKind | None = None
    """How the last layer routes, for `/routing-off`; None if that cannot answer."""


FAMILIES = {
    family.name: family
    for family in (
        Family(
            "dynamic",
            "routing by agreement",
            'Sabour, Frosst and Hinton, "Dynamic Routing Between Capsules", 2017',
            DynamicConfig,
            DynamicCapsNet,
            routing="iterations",
        ),
        Family(
            "attention",
            "self-attention routing",
            'Mazzia, Salvetti and Chiaberge, "Efficient-CapsNet", 2021',
            AttentionConfig,
            AttentionCapsNet,
            routing="attention",
        ),
        Family(
            "shared",
            "shared-weight capsules",
            'Su, "Another new Capsule", 2018',
            SharedConfig,
            SharedCapsNet,
            routing="iterations",
        ),
        Family(
            "matrix",
            "matrix capsules with EM routing",
            'Hinton, Sabour and Frosst, "Matrix capsules with EM routing", 2018',
            MatrixConfig,
            MatrixCapsNet,
            presence="activation",
            routing="em",
        ),
        Family(
            "baseline",
            "convolutional network without capsules",
            'Sabour, Frosst and Hinton, "Dynamic Routing Between Capsules", 2017, section 5',
            BaselineConfig,
            BaselineCnn,
            offers=frozenset(),
            presence="probability",
        ),
    )
}


def family_of(config: NetworkConfig) -> Family:
    """The family that a configuration belongs to.

    Raises:
        ValueError: it is registered with none.
    """
    for family in FAMILIES.values():
        if type(config) is family.config:
            return family
    raise ValueError(f"{type(config).__name__} belongs to no family")


def build(config: NetworkConfig) -> Network:
    """A network with weights sampled by torch's generator."""
    return family_of(config).build(config)


def config_to_dict(config: NetworkConfig) -> dict[str, Any]:
    """A configuration as JSON-ready values, with its family's name."""
    return {"family": family_of(config).name, **asdict(config)}


def config_from_dict(values: dict[str, Any]) -> NetworkConfig:
    """Read what `config_to_dict` wrote.

    Raises:
        ValueError: the family or a key is unknown, or a value is out of range.
    """
    rest = dict(values)
    name = rest.pop("family", None)
    if name not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise ValueError(
            f"unknown family {name!r}; there are {known}. "
            "For one of your own, run `python -m training --file FILE ...`"
        )
    return read_config(FAMILIES[name].config, rest)


def read_config(kind: type[NetworkConfig], values: dict[str, Any]) -> NetworkConfig:
    """Read a configuration from JSON-ready values. Missing ones get the defaults.

    Raises:
        ValueError: a key is unknown, or a value is of another type or out of range.
    """
    try:
        return TypeAdapter(kind).validate_json(json.dumps(values))
    except ValidationError as error:
        raise ValueError(describe_fault(error)) from error


def load(bundle: Bundle | Path | str) -> Network:
    """The network of a bundle, in evaluation mode, its weights in float32.

    Args:
        bundle: an open one, its folder, or the name of one that ships.

    Raises:
        BundleError: it cannot be read, or its weights do not fit its recipe.
    """
    opened = bundle if isinstance(bundle, Bundle) else open_bundle(bundle)
    try:
        network = build(config_from_dict(opened.manifest.training["recipe"]["network"]))
        network.load_state_dict(read_weights(opened))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise BundleError(f"{opened.path}: its weights cannot be loaded: {error}") from error
    return network.eval()


def read_weights(bundle: Bundle) -> dict[str, Tensor]:
    """The weights of a bundle by name, float32, whatever network they were trained in.

    Raises:
        BundleError: the file cannot be read.
    """
    from safetensors import SafetensorError  # noqa: PLC0415  trainings do without it
    from safetensors.torch import load_file  # noqa: PLC0415  as above

    try:
        tensors = load_file(bundle.path / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise BundleError(f"{bundle.path}: its weights cannot be read: {error}") from error
    return {name: tensor.float() for name, tensor in tensors.items()}
