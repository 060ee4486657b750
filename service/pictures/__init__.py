"""From a file to an image for the network."""

from pathlib import Path

SAMPLES = Path(__file__).parents[1] / "samples"
"""One real digit of each class, 28x28 greyscale PNG; folders of other data sets' pictures."""
