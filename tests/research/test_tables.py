"""Controls match what they control, and results are of the recipes that are declared."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.families import count_multiplications
from model import SHIPPED
from model.bundle import MANIFEST, Bundle
from model.capsnet import build
from model.capsnet.squash import squash_exponential
from research.compare import is_stale, of_row
from research.rows import Row
from research.run import pack, read_results, recipe_digest, unpack
from research.tables import ROWS
from training.losses import classification_loss

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PROSE = (
    *(DOCS / "explanation" / f"{name}.md" for name in ("capsules", "families", "views")),
    ROOT / "README.md",
)


def row(name: str) -> Row:
    """A row of the table of 100 digits."""
    return ROWS[f"matched-few-100-{name}"]


def network_of(name: str) -> Any:
    """Its network, in evaluation mode."""
    return build(row(name).recipe.network).eval()


def test_uniform_couplings_give_every_class_the_same_share() -> None:
    """Poses are the squashed mean over classes of the sum of votes, without the coupling bias."""
    network = network_of("attention-uniform")
    images = torch.rand(2, 1, 28, 28)
    with torch.inference_mode():
        votes = network.votes(network.primary_capsules(images))
        expected = squash_exponential(votes.sum(dim=2) / 10)
        torch.testing.assert_close(expected, network(images).poses)
        network.prior.fill_(5.0)
        torch.testing.assert_close(expected, network(images).poses)
        couplings = network_of("dynamic-uniform").trace(images).classes.couplings
    torch.testing.assert_close(couplings, torch.full_like(couplings, 0.1))


@pytest.mark.parametrize("family", ["attention", "dynamic"])
def test_linear_layers_to_poses_are_like_their_family(family: str) -> None:
    """As many parameters, the same squash, short poses before training, a gradient everywhere."""
    routed, poses = network_of(f"{family}-routed"), network_of(f"{family}-poses")
    counts = [
        sum(one.numel() for name, one in own.named_parameters() if not name.startswith("decoder."))
        for own in (routed, poses)
    ]
    assert counts[0] == pytest.approx(counts[1], rel=0.03)
    images = torch.rand(4, 1, 28, 28)
    presence, found = poses.train()(images)
    assert presence.max() < 0.5
    loss = presence.sum() + poses.decode(found[:, 0], torch.zeros(4, dtype=torch.int64)).sum()
    loss.backward()
    assert all(part.grad is not None and part.grad.any() for part in poses.parameters())
    sums = torch.zeros(1, 10, 16)
    sums[..., 0] = 1
    torch.nn.init.zeros_(poses.classes.weight)
    poses.classes.bias.data = sums.flatten()
    expected = {"dynamic": 0.5, "attention": 1 - math.exp(-1)}[family]
    assert pytest.approx(expected, rel=1e-3) == poses.eval()(images).presence[0, 0].item()


@pytest.mark.parametrize(("size", "family"), [("large", "attention"), ("small", "dynamic")])
def test_cnns_have_as_many_multiplications(size: str, family: str) -> None:
    """Within a seventh; cross-entropy has a gradient everywhere."""
    cnn = network_of(f"cnn-{size}")
    ours = count_multiplications(network_of(f"{family}-routed"))
    assert ours == pytest.approx(count_multiplications(cnn), rel=1 / 7)
    scores = cnn.train().logits(torch.rand(4, 1, 28, 28))
    recipe = row(f"cnn-{size}").recipe
    classification_loss(recipe, scores, torch.eye(10)[:4], torch.tensor(1)).backward()
    assert all(part.grad is not None and part.grad.any() for part in cnn.parameters())


def test_results_are_of_declared_recipes_and_seeds() -> None:
    """An edit of a recipe that has results would make tables say what nobody measured."""
    results = read_results(DOCS / "results.json")
    for one in ROWS.values():
        own = of_row(one, results)
        assert {result.seed for result in own} == set(one.seeds), one.name
        assert not any(is_stale(one, result) for result in own), one.name


def test_an_edited_recipe_has_another_digest() -> None:
    """A setting of training or of the network changes it; names, seeds and budgets do not."""
    plain = row("dynamic-routed")
    recipe = plain.recipe
    network = replace(recipe.network, routing_iterations=2)  # type: ignore[call-arg]
    others = [
        replace(plain, recipe=replace(recipe, learning_rate=2e-3)),
        replace(plain, recipe=replace(recipe, network=network)),
        replace(plain, training_images=200),
    ]
    assert 4 == len({recipe_digest(one) for one in (plain, *others)})
    named = replace(plain, name="other", title="other", seeds=(9,), images=7)
    assert recipe_digest(plain) == recipe_digest(named)


def test_packed_images_are_those_that_were_packed() -> None:
    """In their order, in a short text; other texts are refused."""
    for images in ([], [3, 999], list(range(0, 1000, 7))):
        text = pack(images, 1000)
        assert images == unpack(text)
        assert len(text) < 250
    with pytest.raises(ValueError, match=r"."):
        unpack("AAAA")


@pytest.mark.parametrize("prose", PROSE, ids=lambda path: path.name)
def test_percentages_in_prose_are_on_record(prose: Path) -> None:
    """They are errors of the bundles, or stand on the page of results."""
    known = set(re.findall(r"\d+\.\d+", (DOCS / "results.md").read_text()))
    for path in SHIPPED.glob(f"*/{MANIFEST}"):
        percent = Bundle.open(path.parent).manifest.metrics["test_error_percent"]
        known |= {f"{percent:.1f}", f"{percent:.2f}"}
    found = re.findall(r"(\d+\.\d+) (?:%|points)", prose.read_text())
    papers = {"5.2": "Sabour 2017, pairs of digits"}
    assert [] == [figure for figure in found if figure not in known | papers.keys()]
