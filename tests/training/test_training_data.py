from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from model.capsnet import build
from model.capsnet.attention import AttentionConfig
from model.capsnet.network import NetworkConfig
from training.data.source import DatasetError
from training.recipes import PRESETS, Recipe
from training.training_data import (
    MAX_PX,
    fit_size,
    load_again,
    load_pictures,
    load_published,
)

Folder = Callable[..., Path]
PICTURES = PRESETS["pictures"]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """`folder(name, ...)` has ten coloured pictures of each of three kinds of pets."""

    def make(name: str = "Pets", *, size: tuple[int, int] = (32, 28), count: int = 10) -> Path:
        rng = np.random.default_rng(0)
        for kind in ("cat", "dog", "fish"):
            (tmp_path / name / kind).mkdir(parents=True)
            for number in range(count):
                pixels = rng.integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / name / kind / f"{number}.png")
        return tmp_path / name

    return make


def test_the_network_fits_the_pictures(folder: Folder, tiny: Recipe) -> None:
    """Channels, size and classes are theirs; recipe and data set are called like the folder."""
    recipe, data = load_pictures(tiny, folder())
    network = recipe.network
    assert ((3, 28, 32), 3) == (network.image_shape, network.num_classes)
    assert "pets" == recipe.dataset == data.dataset.name
    assert (24, 6) == (len(data.training.labels), len(data.validation.labels))
    final = data.without_validation()
    assert 30 == len(final.training.images)
    assert data.split
    assert final.split
    assert {*data.split.learnt, *data.split.held_out_pictures} == set(final.split.learnt)


def test_poses_of_few_pictures_are_homogeneous(
    folder: Folder, tiny: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the preset for folders; the code of each class stays as it was fitted."""
    pets, other = folder(size=(32, 32)), replace(tiny, network=PICTURES.network)
    for recipe, few, pose in (
        (PICTURES, 9, "homogeneous"),
        (PICTURES, 8, "routed"),
        (other, 9, "routed"),
    ):
        monkeypatch.setattr("training.training_data._FEW_OF_A_CLASS", few)
        fitted, _ = load_pictures(recipe, pets)
        assert isinstance(fitted.network, AttentionConfig)
        assert pose == fitted.network.pose
        assert ("decoder" in fitted.frozen) == (pose == "homogeneous")


def test_pictures_too_small_for_the_network(folder: Folder, tiny: Recipe) -> None:
    """The error names both."""
    with pytest.raises(DatasetError, match=r"tiny and images of 12x12 px: .* too small"):
        load_pictures(tiny, folder(size=(12, 12)))


def test_pictures_are_read_again_as_they_were(folder: Folder, tiny: Recipe, tmp_path: Path) -> None:
    """In the same size and colours, the same held out, whatever unreadable files came later."""
    place = folder()
    recipe, data = load_pictures(tiny, place, channels=1, size=(28, 28))
    (place / "cat" / "later.png").write_bytes(b"no picture")
    again = load_again(recipe, data.split, tmp_path)
    assert data.dataset == again.dataset
    np.testing.assert_array_equal(data.validation.images, again.validation.images)


@pytest.mark.parametrize("change", ["one more", "another name", "another class"])
def test_changed_pictures_are_noticed(
    folder: Folder, tiny: Recipe, tmp_path: Path, change: str
) -> None:
    """What was held out would no longer be the same."""
    place = folder()
    recipe, data = load_pictures(tiny, place)
    if change == "one more":
        (place / "cat" / "new.png").write_bytes((place / "cat" / "0.png").read_bytes())
    elif change == "another name":
        (place / "cat" / "0.png").rename(place / "cat" / "new.png")
    else:
        (place / "cat").rename(place / "lion")
    with pytest.raises(DatasetError, match="has changed"):
        load_again(recipe, data.split, tmp_path)


def test_a_folder_that_grew_holds_out_what_weights_have_not_seen(
    folder: Folder, tiny: Recipe, tmp_path: Path
) -> None:
    """The new split is found again; what the weights have seen stays on record."""
    place = folder(count=20)
    first = load_pictures(tiny, place)[1].split
    assert first is not None
    rng = np.random.default_rng(1)
    for kind in ("cat", "dog", "fish"):
        for number in range(40):
            pixels = rng.integers(0, 256, (28, 32, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(place / kind / f"new-{number}.png")
    seen = (*first.learnt, *first.held_out_pictures)
    recipe, data = load_pictures(tiny, place, seen=seen)
    assert data.split is not None
    assert (18, (54, 54, 54)) == (len(data.validation.labels), data.split.class_counts)
    assert not set(seen) & set(data.split.held_out_pictures)
    assert set(seen) < set(data.split.learnt)
    again = load_again(recipe, data.split, tmp_path)
    np.testing.assert_array_equal(data.validation.images, again.validation.images)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("dataset", "letters is no published data set"),
        ("folder", "pictures learns from a folder of your own .*: say where it is with --data"),
        ("classes", "--set network.num_classes=10"),
        ("size", "--set network.height=28"),
    ],
)
def test_a_recipe_and_its_data_set_do_not_fit(tmp_path: Path, change: str, message: str) -> None:
    """The error says what would, before anything is downloaded."""
    mnist = PRESETS["mnist-attention"]
    recipe = {
        "dataset": replace(mnist, dataset="letters"),
        "folder": PRESETS["pictures"],
        "classes": replace(mnist, network=replace(mnist.network, num_classes=3)),
        "size": replace(mnist, network=replace(mnist.network, height=36)),
    }[change]
    with pytest.raises(DatasetError, match=message):
        load_published(recipe, tmp_path)
    assert [] == list(tmp_path.iterdir())


def fitted(size: int, *, recipe: Recipe = PICTURES) -> Recipe:
    """The recipe for square images of this size and three classes."""
    return fit_size(recipe, NetworkConfig(3, size, size, num_classes=3))


def test_the_grid_of_primary_capsules_stays_small() -> None:
    """3x3 to 7x7 cells, whatever the size."""
    for size in range(24, MAX_PX + 1):
        network = fitted(size).network
        assert isinstance(network, AttentionConfig)
        assert 3 <= network.grid.rows <= 7, size


def test_weights_do_not_grow_with_the_pictures() -> None:
    """A network for 224 pixels has at most a quarter more weights than one for 32."""
    with torch.device("meta"):
        counts = [
            sum(weight.numel() for weight in build(fitted(size).network).parameters())
            for size in (32, 64, 96, 128, 224)
        ]
    assert max(counts) < 1.25 * counts[0]


def test_lengths_stay_the_same_share_of_an_image() -> None:
    """Shifts and squares of four times the pixels; less of a batch is reconstructed."""
    recipe = replace(PICTURES, cutout_px=4, elastic_px=1.5)
    large = fitted(128, recipe=recipe)
    assert (12, 16, 6.0) == (large.shift_px, large.cutout_px, large.elastic_px)
    assert large.reconstruction_share <= recipe.reconstruction_share
