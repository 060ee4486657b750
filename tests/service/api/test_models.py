from __future__ import annotations

import json
from pathlib import Path

from fastapi.testclient import TestClient

from model.bundle import MANIFEST, Bundle


def test_the_loaded_bundles_are_listed(client: TestClient, bundle_path: Path) -> None:
    """Name, version, family, classes and sizes of each bundle, and which answers by default."""

    def version(name: str) -> str:
        return Bundle.open(bundle_path.with_name(name)).manifest.version

    common = {
        "any_size": False,
        "presence": "length",
        "metrics": {},
        "offers": ["decode", "trace"],
        "default": False,
        "calibrated": False,
        "directions": [],
        "explained": None,
    }
    agreement = {"family": "dynamic", "family_title": "routing by agreement"}
    models = {
        "blocks": {
            "family": "attention",
            "family_title": "self-attention routing",
            "class_names": ["red", "green", "blue"],
            "channels": 3,
            "height": 24,
            "width": 32,
            "class_dim": 16,
        },
        "mnist": {
            **agreement,
            "class_names": list("0123456789"),
            "channels": 1,
            "height": 28,
            "width": 28,
            "class_dim": 16,
            "offers": ["decode", "trace", "neighbours"],
            "default": True,
        },
        "strokes": {
            **agreement,
            "class_names": ["horizontal", "vertical", "diagonal"],
            "channels": 1,
            "height": 36,
            "width": 36,
            "class_dim": 8,
        },
    }
    expected = {
        "provider": "CPUExecutionProvider",
        "limits": {"images": 5, "body_bytes": 200_000},
        "models": [
            {"name": name, "dataset": name, "version": version(name), **common, **own}
            for name, own in models.items()
        ],
    }
    listed = client.get("/models").json()
    notes = [one.pop("notes") for one in listed["models"]]
    assert expected == listed
    assert [["rivals"], ["rivals"], []] == [[*one] for one in notes]
    assert "only the class that an image shows" in notes[0]["rivals"][0]


def test_one_bundle_is_shown_whole(client: TestClient, bundle_path: Path) -> None:
    """A model's own address gives its manifest as it lies in the bundle."""
    expected = json.loads((bundle_path / MANIFEST).read_text())
    assert expected == client.get("/models/mnist").json()
