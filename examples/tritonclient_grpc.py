"""Classify an image with `tritonclient[grpc]`: the file as it is."""

import sys
from pathlib import Path

import numpy as np
import tritonclient.grpc as triton

_, address, file = sys.argv
content = np.array([Path(file).read_bytes()], np.object_)
image = triton.InferInput("image", [1], "BYTES").set_data_from_numpy(content)
outputs = [triton.InferRequestedOutput("label"), triton.InferRequestedOutput("novelty")]
with triton.InferenceServerClient(address) as client:
    result = client.infer("mnist", [image], outputs=outputs)
print(result.as_numpy("label")[0, 0])
