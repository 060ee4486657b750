"""Classify an image with `tritonclient[grpc]`: the file as it is."""

import argparse
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton

parser = argparse.ArgumentParser()
parser.add_argument("address", help="such as localhost:8001")
parser.add_argument("picture", type=Path)
arguments = parser.parse_args()

content = np.array([arguments.picture.read_bytes()], np.object_)
image = triton.InferInput("image", [1], "BYTES").set_data_from_numpy(content)
outputs = [triton.InferRequestedOutput("label"), triton.InferRequestedOutput("novelty")]
with triton.InferenceServerClient(arguments.address) as client:
    result = client.infer("mnist", [image], outputs=outputs)
print(result.as_numpy("label")[0, 0])
