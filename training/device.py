"""The device that trains a network."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

import torch

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # malloc.h


class DeviceError(Exception):
    """A device does not work here."""


def choose_device(name: str, *, threads: int = 0) -> torch.device:
    """Choose the device of a name: auto, cpu, cuda or cuda:1.

    Convolutions in float32, those of validation, are then not rounded to TF32.

    Args:
        threads: of a CPU; 0 leaves as many as there are.

    Raises:
        DeviceError: it does not work here.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = "cuda:0"  # PyTorch makes no device current that has no number
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
            torch.backends.cudnn.benchmark = True
            torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
    except (RuntimeError, AssertionError) as error:
        raise DeviceError(f"device {name} does not work: {str(error).splitlines()[0]}") from error
    if threads:
        torch.set_num_threads(threads)
    if device.type == "cpu":
        keep_freed_memory()
    return device


def device_name(device: torch.device) -> str:
    """Return CPU, or the GPU's model."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def has_bfloat16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16: GPUs, and some CPUs."""
    # torch.cpu reports it since 2.12.
    known: Mapping[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
    names = ("amx_bf16", "avx512_bf16", "sve_bf16")
    return device.type == "cuda" or any(known.get(name, False) for name in names)


def keep_freed_memory() -> bool:
    """Tell the C library to keep freed memory from the kernel. Return whether that worked.

    A step on a CPU makes and frees the same large tensors, and by default each comes as new pages
    that the kernel must clear at first touch: two fifths of a step's time.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # musl and macOS have none, Windows no such name
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


def convolution_precision(asked: str, device: torch.device) -> str:
    """The type that convolutions are computed in, bfloat16 or float32.

    bfloat16 on a GPU, and on a CPU with instructions for it if it is asked for.
    """
    uses_bfloat16 = has_bfloat16(device) and (device.type == "cuda" or asked == "bfloat16")
    return "bfloat16" if uses_bfloat16 else "float32"
