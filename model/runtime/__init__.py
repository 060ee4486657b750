"""onnxruntime: one bundle on one device, numpy in, numpy out."""

from model.runtime.cuda import CudaOptions, DeviceError, DeviceLostError
from model.runtime.runtime import (
    ClassTrace,
    Device,
    Encoding,
    LayerTrace,
    NotOffered,
    Runtime,
    Trace,
)

__all__ = [
    "ClassTrace",
    "CudaOptions",
    "Device",
    "DeviceError",
    "DeviceLostError",
    "Encoding",
    "LayerTrace",
    "NotOffered",
    "Runtime",
    "Trace",
]
