"""Run one bundle in onnxruntime on one device: numpy in, numpy out."""

from model.errors import NotOffered
from model.outputs import ClassTrace, Encoding, LayerTrace, Trace
from model.runtime.cuda import CudaOptions, DeviceError, DeviceLostError
from model.runtime.runtime import Device, Runtime
from model.runtime.sessions import Array

__all__ = [
    "Array",
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
