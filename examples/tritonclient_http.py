"""Classify an image with `tritonclient[http]`: the tensor as bytes."""

import argparse

import numpy as np
import tritonclient.http as triton
from PIL import Image

parser = argparse.ArgumentParser()
parser.add_argument("address", help="such as localhost:8000")
parser.add_argument("picture")
arguments = parser.parse_args()

image = np.asarray(Image.open(arguments.picture), np.float32)[None, None] / 255  # (N, C, H, W)
images = triton.InferInput("images", image.shape, "FP32").set_data_from_numpy(image)
with triton.InferenceServerClient(arguments.address) as client:
    presence = client.infer("mnist", [images]).as_numpy("presence")  # (N, K)
print(presence.argmax())
