"""Classify a picture with httpx: `python examples/classify_httpx.py 7.png`."""

import argparse
import os
from pathlib import Path

import httpx

parser = argparse.ArgumentParser()
parser.add_argument("picture", type=Path)

url = os.environ.get("CAPSNET_URL", "http://localhost:8000")
files = {"file": parser.parse_args().picture.read_bytes()}
answer = httpx.post(f"{url}/classify", files=files, timeout=30).raise_for_status()
print(answer.json()["predictions"][0]["class_name"])
