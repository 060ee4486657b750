"""Decode uploaded files to images for the network, and encode images to files.

`header` reads what a file announces, `decode` makes it a picture, `spec` makes that an image for
the network, and `pools` has this done in processes that can be killed.
"""

from service.pictures.decode import decode
from service.pictures.header import FORMATS
from service.pictures.spec import SAMPLES, ImageSpec, Upload, is_quick

__all__ = [
    "FORMATS",
    "SAMPLES",
    "ImageSpec",
    "Upload",
    "decode",
    "is_quick",
]
