"""Classify a picture with the client: `python examples/classify_client.py 7.png`."""

import argparse

from capsnet import CapsNet

parser = argparse.ArgumentParser()
parser.add_argument("picture")

with CapsNet() as capsnet:
    print(capsnet.classify(parser.parse_args().picture).class_name)
