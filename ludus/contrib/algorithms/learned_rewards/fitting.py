"""Training of reward networks and their critics: minibatches of Adam over rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus.backend.device import Placement
from ludus.backend.network import FlatModule, ModuleAdam, NonFiniteGuard, learning
from ludus.core import seeding
from ludus.core.errors import TrainingError
from ludus.core.types import State
from ludus.policies.actor_critic import arrays_of, load_arrays

Index = NDArray[np.int64]
Loss = Callable[[Index, np.random.Generator], Sequence[Tensor]]
"""(indices of rows int64[n], random generator of this step) -> (the loss, further metrics), scalars on the module's device."""


class TrainableModule:
    """A module with the optimizer of its parameters. Shuffles are keyed by the seed and the number of calls, so that a
    resumed one continues identically."""

    def __init__(self, module: nn.Module, placement: Placement, *, seed: int, name: str) -> None:
        """Moves the module to its device. name: for the random stream and for messages."""
        self.flat = FlatModule(module, device=placement.torch)
        self.module = self.flat.module.eval()
        self._adam, self._guard = ModuleAdam(self.flat), NonFiniteGuard(placement.torch)
        self._placement, self._seed, self._name, self._times = placement, seed, name, 0

    def learn(
        self, loss: Loss, rows: int, *, epochs: int, batch: int, rate: float, max_norm: float
    ) -> list[float] | None:
        """Run `epochs` passes over the rows in random order, about `batch` of them per step.

        Returns:
            Means over the steps of the scalars of `loss`; None if there are no rows.

        Raises:
            TrainingError: A number became NaN or infinite; everything is then as before.
        """
        if not rows:
            return None
        state = self.module.state_dict()
        snapshot = {name: tensor.clone() for name, tensor in state.items()}, self._adam.snapshot()
        rng = seeding.generator(self._seed, self._name, "steps", self._times)
        step_stats = []
        with learning(self.module, seeding.key(self._seed, self._name, "luck of layers", self._times)):
            for _ in range(epochs):
                for part in np.array_split(rng.permutation(rows), -(-rows // batch)):
                    step_stats.append(self._step(loss(part, rng), rate=rate, max_norm=max_norm))
        self._guard.watch(self.flat.values)
        means, wrong = self._guard.read([*torch.stack(step_stats).mean(dim=0)])
        if wrong:
            self.module.load_state_dict(snapshot[0])
            self._adam.restore(snapshot[1])
            raise TrainingError(
                f"{self._name}: the loss or its gradient became NaN or infinite. The networks from before are kept; a smaller "
                "learning_rate of learned_reward, or finite observations, may help."
            )
        self._times += 1
        return means

    def _step(self, answered: Sequence[Tensor], *, rate: float, max_norm: float) -> Tensor:
        self.flat.zero()
        torch.autograd.backward(answered[0])
        self._guard.step(self._adam, answered[0].detach(), rate=rate, max_norm=max_norm)
        return torch.stack([scalar.detach().double() for scalar in answered])

    def state_dict(self) -> State:
        return {"weights": arrays_of(self.module), "adam": self._adam.state_dict(), "times": self._times}

    def load_state_dict(self, state: State) -> None:
        """Restore a state of any device."""
        load_arrays(self.module, state["weights"])
        self._adam.load_state_dict(state["adam"])
        self._times = int(state["times"])
