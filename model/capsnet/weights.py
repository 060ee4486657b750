"""Load the torch network of a bundle, with its weights, for fine-tuning and for analysis."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from model import open_bundle
from model.bundle import WEIGHTS, Bundle, BundleError
from model.capsnet.families import build, config_from_dict
from model.capsnet.network import Network


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
        network.load_state_dict(read(opened))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise BundleError(f"{opened.path}: its weights cannot be loaded: {error}") from error
    return network.eval()


def read(bundle: Bundle) -> dict[str, Tensor]:
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
