"""Classify a picture with httpx: `python examples/classify_httpx.py 7.png`."""

import os
import sys
from pathlib import Path

import httpx

url = os.environ.get("CAPSNET_URL", "http://localhost:8000")
files = {"file": Path(sys.argv[1]).read_bytes()}
answer = httpx.post(f"{url}/classify", files=files, timeout=30).raise_for_status()
print(answer.json()["predictions"][0]["class_name"])
