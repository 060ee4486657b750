"""What changes while a network is trained, and how it is saved and restored."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.hardware.device import device_name
from training.run.average import RunningAverage
from training.run.checkpoint import Checkpoint, CheckpointError
from training.run.lineage import Leg
from training.run.networks import Network, make_network
from training.run.plan import Plan, TrainingError


class TrainingState:
    """Weights, optimiser, how far the run is and what it started from.

    A new one is where the seed begins.
    """

    def __init__(self, plan: Plan, *, device: torch.device) -> None:
        self._plan = plan
        self._device_name = device_name(device)
        torch.manual_seed(plan.seed)
        self.network = make_network(plan.recipe).to(device)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=plan.recipe.learning_rate, eps=1e-8, fused=True
        )
        self._average = _average(self.network, plan.recipe.average_decay)
        self.done_steps = 0
        self.seconds = 0.0
        """Training time so far."""
        self._before: tuple[Leg, ...] = ()
        self._devices: tuple[str, ...] = ()

    @property
    def result(self) -> nn.Module:
        """What is validated and exported: the network, or the average that the recipe asks for."""
        return self.network if self._average is None else self._average.network

    def step(self) -> None:
        """Move the weights along their gradient."""
        if self._device_name not in self._devices:
            self._devices = (*self._devices, self._device_name)
        self.optimiser.step()
        if self._average is not None:
            self._average.add(self.network, step=self.done_steps)
        self.done_steps += 1

    def start_from(self, other: Checkpoint) -> None:
        """Take the weights of another run of the same network; the recipe starts anew.

        Raises:
            TrainingError: this run has begun, its network has other sizes, or its batches would
                be those of an earlier run.
        """
        recipe = self._plan.recipe
        if (other.recipe.network, other.recipe.baseline) != (recipe.network, recipe.baseline):
            raise TrainingError(f"{other.recipe.name} is another network than this recipe's")
        self._take(other.network, other.lineage)

    def transfer_from(self, other: Checkpoint) -> tuple[str, ...]:
        """Take the weights of another run that have their like here: the same name and shape.

        Returns:
            names of the weights that were taken; the others stay as they were initialised.

        Raises:
            TrainingError: this run has begun, nothing matches, or its batches would be those of
                an earlier run.
        """
        own = self.network.state_dict()
        matching = {
            name: weight
            for name, weight in other.network.items()
            if name in own and own[name].shape == weight.shape
        }
        if not matching:
            raise TrainingError(f"no weight of {other.recipe.name} fits this recipe's network")
        *earlier, last = other.lineage
        self._take(matching, (*earlier, last.took(tuple(matching))))
        return tuple(matching)

    def check(self) -> None:
        """Refuse to go on from here if that is no use.

        Raises:
            TrainingError: a weight is not finite; the last checkpoint is kept.
        """
        if not all(weight.isfinite().all() for weight in self.network.parameters()):
            raise TrainingError(
                f"a weight is not finite at step {self.done_steps}; the last checkpoint is kept"
            )

    def save(self, *, examples: int, complete: bool) -> None:
        """Write the run's checkpoint.

        Args:
            examples: in an epoch.
            complete: whether nothing goes on from here; then the result alone is kept.
        """
        Checkpoint(
            recipe=self._plan.recipe,
            seed=self._plan.seed,
            held_out=self._plan.held_out,
            step=self.done_steps,
            seconds=self.seconds,
            network=self.result.state_dict(),
            trained=None if complete or self._average is None else self.network.state_dict(),
            optimiser={} if complete else self.optimiser.state_dict(),
            examples=examples,
            devices=self._devices,
            before=self._before,
        ).save(self._plan.checkpoint_path)

    def restore(self) -> None:
        """Go back to where the run's checkpoint was written.

        Raises:
            TrainingError: the checkpoint belongs to another recipe, seed or split.
            CheckpointError: it is missing or corrupt, or its weights do not fit.
        """
        path = self._plan.checkpoint_path
        checkpoint = Checkpoint.load(path)
        asked = (self._plan.recipe, self._plan.seed, self._plan.held_out)
        if asked != (checkpoint.recipe, checkpoint.seed, checkpoint.held_out):
            raise TrainingError(f"{path} was trained with another recipe, seed or split")
        try:
            self.network.load_state_dict(checkpoint.trained or checkpoint.network)
            self.result.load_state_dict(checkpoint.network)
            if checkpoint.optimiser:
                self.optimiser.load_state_dict(checkpoint.optimiser)
        except (RuntimeError, ValueError, KeyError) as error:
            raise CheckpointError(f"{path} does not fit: {error}") from error
        self.done_steps, self.seconds = checkpoint.step, checkpoint.seconds
        self._before, self._devices = checkpoint.before, checkpoint.devices

    def _take(self, weights: dict[str, Tensor], before: tuple[Leg, ...]) -> None:
        if self.done_steps:
            raise TrainingError("a run that has begun cannot take other weights")
        recipe, seed = self._plan.recipe, self._plan.seed
        for leg in before:
            if (leg.dataset, leg.task, leg.seed) == (recipe.dataset, recipe.task, seed):
                raise TrainingError(
                    f"these weights have seen the batches of seed {seed} ({leg}); another --seed "
                    "gives new ones"
                )
        self.network.load_state_dict(weights, strict=False)
        self.result.load_state_dict(self.network.state_dict())
        self._before = before


def _average(network: Network, decay: float) -> RunningAverage | None:
    return RunningAverage(network, decay=decay) if decay else None
