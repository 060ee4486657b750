"""Where a network is trained."""

from __future__ import annotations

import torch

from training.hardware.processes import local_rank


class DeviceError(Exception):
    """A device does not work here."""


def choose_device(name: str) -> torch.device:
    """The device of a name: auto, cpu, cuda or cuda:1.

    Convolutions in float32, those of validation, are then not rounded to TF32.

    Raises:
        DeviceError: it does not work here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = f"cuda:{local_rank()}"  # PyTorch makes no device current that has no number
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.allow_tf32 = False
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"device {name} does not work: {str(error).splitlines()[0]}") from error
    return device


def device_name(device: torch.device) -> str:
    """CPU, or what the GPU is sold as."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
