"""Classify an image with `tritonclient[http]`: the tensor as bytes."""

import sys

import numpy as np
import tritonclient.http as triton
from PIL import Image

_, address, file = sys.argv
image = np.asarray(Image.open(file), np.float32)[None, None] / 255  # (N, C, H, W)
images = triton.InferInput("images", image.shape, "FP32").set_data_from_numpy(image)
with triton.InferenceServerClient(address) as client:
    presence = client.infer("mnist", [images]).as_numpy("presence")  # (N, K)
print(presence.argmax())
