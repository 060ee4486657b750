"""Run one bundle in onnxruntime on one device: numpy in, numpy out."""

from model import Device
from model.runtime.cpu import Array
from model.runtime.cuda import CudaOptions, DeviceError, DeviceLostError
from model.runtime.runtime import Runtime

__all__ = [
    "Array",
    "CudaOptions",
    "Device",
    "DeviceError",
    "DeviceLostError",
    "Runtime",
]
