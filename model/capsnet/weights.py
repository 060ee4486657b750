"""The torch network of a bundle, with the bundle's weights: for fine-tuning and for analysis."""

from __future__ import annotations

from pathlib import Path

from model import find
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
    from safetensors import SafetensorError  # noqa: PLC0415  trainings do without it
    from safetensors.torch import load_file  # noqa: PLC0415  as above

    opened = bundle if isinstance(bundle, Bundle) else Bundle.open(find(bundle))
    try:
        network = build(config_from_dict(opened.manifest.training["recipe"]["network"]))
        tensors = load_file(opened.path / WEIGHTS)
        network.load_state_dict({name: tensor.float() for name, tensor in tensors.items()})
    except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
        raise BundleError(f"{opened.path}: its weights cannot be loaded: {error}") from error
    return network.eval()
