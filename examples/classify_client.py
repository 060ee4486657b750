"""Classify a picture with the client: `python examples/classify_client.py 7.png`."""

import sys

from capsnet import CapsNet

with CapsNet() as capsnet:
    print(capsnet.classify(sys.argv[1]).class_name)
