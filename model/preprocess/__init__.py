"""Fit any image file's content to the image that the network was trained on.

The only implementation. Evaluation and serving call it; training divides its batches by the same
`WHITE` on the training device. numpy and Pillow alone. `picture` has the steps in order.
"""

from model.preprocess.array import to_unit
from model.preprocess.picture import Fit, prepare, scale_picture
from model.preprocess.pixels import WHITE, Box, Floats, Polarity, Prepared, scale
from model.preprocess.reader import decode, load_image, open_image

__all__ = [
    "WHITE",
    "Box",
    "Fit",
    "Floats",
    "Polarity",
    "Prepared",
    "decode",
    "load_image",
    "open_image",
    "prepare",
    "scale",
    "scale_picture",
    "to_unit",
]
