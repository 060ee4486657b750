"""The conclusion of a finished run."""

from __future__ import annotations

from dataclasses import replace

from tests.training.runs import MakeTrainer
from training.__main__ import conclude
from training.data.datasets import Examples
from training.recipes import Recipe
from training.trainer import Trainer

NAMES = ("low", "middle", "high")


def tell(trainer: Trainer, *names: str) -> str:
    """The conclusion in one line."""
    return " ".join(conclude(trainer, names))


def test_recalls_are_told_the_worst_class_first(
    make_trainer: MakeTrainer, tiny: Recipe, bars: Examples
) -> None:
    """Of the weights that are kept, with what to do next."""
    validation = Examples(bars.images[:9], bars.labels[:9])
    recipe = replace(tiny, epochs=12, even_classes=True, keep="best")
    trainer = make_trainer(recipe=recipe, validation=validation)
    trainer.run()
    told = tell(trainer, *NAMES)
    best = trainer.state.best
    assert best
    assert f"kept the weights of step {best.step}" in told
    assert f"{best.error_percent:.2f} % validation error" in told
    assert "answered right, the worst class first:" in told
    rights = [int(part.split()[0]) for name in NAMES for part in told.split(f" {name} ")[1:2]]
    assert 9 - round(9 * best.error_percent / 100) == sum(rights)
    assert "9 pictures measure an error roughly" in told
