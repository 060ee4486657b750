"""Fit any image file's content to the image that the network was trained on.

The only implementation. Evaluation and serving call it; training divides its batches by the same
`WHITE` on the training device. numpy and Pillow alone. `picture` has the steps in order.
"""

from model.preprocess.array import read_array, to_unit
from model.preprocess.crop import crop
from model.preprocess.picture import Fit, PreprocessError, prepare
from model.preprocess.pixels import WHITE, Floats, scale
from model.preprocess.prepared import Box, Polarity, Prepared
from model.preprocess.reader import decode, load_image, open_image
from model.preprocess.strokes import fit_strokes

__all__ = [
    "WHITE",
    "Box",
    "Fit",
    "Floats",
    "Polarity",
    "Prepared",
    "PreprocessError",
    "crop",
    "decode",
    "fit_strokes",
    "load_image",
    "open_image",
    "prepare",
    "read_array",
    "scale",
    "to_unit",
]
