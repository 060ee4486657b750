"""Decode uploaded files to images for the network, and encode images to files.

`model.preprocess.reader` makes a file a picture, `spec` makes that an image for the network, and
`pools` has this done in processes that can be killed.
"""

from model.preprocess.header import FORMATS
from model.preprocess.reader import decode
from service.pictures.spec import SAMPLES, ImageSpec, Upload, is_quick

__all__ = [
    "FORMATS",
    "SAMPLES",
    "ImageSpec",
    "Upload",
    "decode",
    "is_quick",
]
