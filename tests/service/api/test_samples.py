from __future__ import annotations

import json
import shutil
from pathlib import Path

from service.pictures import SAMPLES
from service.settings import Settings
from tests.serving import serve


def test_a_bundle_s_own_samples_come_first(
    settings: Settings, bundle_path: Path, tmp_path: Path
) -> None:
    """They are listed and served, and nothing else of its folder."""
    folder = Path(shutil.copytree(bundle_path, tmp_path / "mnist")) / "samples"
    folder.mkdir()
    shutil.copy(SAMPLES / "7.png", folder / "seven.png")
    known = {"label": None, "class_name": "a 7", "licence": "mine", "source": "drawn"}
    (folder / "samples.json").write_text(json.dumps([{"file": "seven.png", **known}]))
    with serve(settings, bundles=tmp_path) as client:
        answer = client.get("/models/mnist/samples").json()
        assert [{"file": "seven.png", **known}] == answer["samples"]
        picture = client.get("/models/mnist/samples/seven.png")
        assert ("image/png", (folder / "seven.png").read_bytes()) == (
            picture.headers["content-type"],
            picture.content,
        )
        for file in ("7.png", "samples.json", "..%2Fmanifest.json"):
            assert client.get(f"/models/mnist/samples/{file}").status_code in (404, 422)
