"""What the figures in this project are made with."""

import model  # noqa: F401  before onnxruntime, whose telemetry this switches off
