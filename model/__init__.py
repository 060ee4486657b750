"""What training and serving share: the network and the contract of an exported bundle."""

import os

# onnxruntime's wheels report to their maker (Privacy.md in them) unless this is set before import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
