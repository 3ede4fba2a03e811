"""Behaviour cloning: maximum likelihood of recorded decisions by minibatches of Adam, with early stopping on held-out
episodes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ludus.algorithms.common.losses import Distribution
from ludus.backend.device import Placement, UpdateCost, resolve_placement, scalars_to_host
from ludus.backend.network import FlatModule, ModuleAdam, NonFiniteGuard, learning, multiplications
from ludus.contrib.algorithms.bc.demonstrations import Demonstrations, Index, demonstrations, split
from ludus.contrib.algorithms.bc.models import CloneModel, model_of
from ludus.core import seeding
from ludus.core.config import Config
from ludus.core.errors import TrainingError
from ludus.core.types import CPU, DeviceChoice, EnvSpec, PolicySpec, Weights
from ludus.replay.parquet import Recorded


class Cloning(Config):
    """Options of behaviour cloning.

    Attributes:
        epochs: Passes over the decisions, at most.
        batch: Decisions per step; with a memory, whole episodes with about as many.
        learning_rate: Step size of Adam; 1e-4 to 1e-3.
        max_gradient_norm: Norm to which the gradient is scaled down; 0: it is not clipped.
        held_out: Share of the episodes that are held out, by which the best epoch is chosen; 0: none, and the last
            epoch is taken.
        patience: Epochs without improvement after which training stops.
    """

    epochs: int = Field(default=50, ge=1)
    batch: int = Field(default=512, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    max_gradient_norm: float = Field(default=1.0, ge=0)
    held_out: float = Field(default=0.1, ge=0, lt=1)
    patience: int = Field(default=5, ge=1)


# --------------------------------------------------------------------------------------------------------------------
# What cloning minimises, and what it reports, as pure torch functions of the network's outputs. Shapes: out
# float[n, outputs], action [n, …] as the environment takes it, mask bool[n, A] or None; answers [n].


def nll_loss(distribution: Distribution, out: Tensor, action: Tensor, mask: Tensor | None) -> Tensor:
    """Return -log π(a | s) in nats [n]: cross-entropy of discrete actions, negative log-density of continuous ones.
    (Pomerleau 1991, with likelihoods.)"""
    return -distribution.log_prob(out, action, mask)


def agreement(out: Tensor, action: Tensor, mask: Tensor | None, choices: Sequence[int]) -> Tensor:
    """Return 1 [n] where the most probable legal action is the one that was taken, in all entries of an action.
    choices: actions of each entry."""
    if mask is not None:
        out = out.masked_fill(~mask, -torch.inf)
    best = [part.argmax(dim=1) for part in torch.split_with_sizes(out, list(choices), 1)]
    return (torch.stack(best, dim=1) == action.reshape(len(action), len(choices))).all(dim=1).to(out.dtype)


_ROWS = 4096  # that are scored at a time


@dataclass(frozen=True, slots=True)
class Scores:
    """Losses after an epoch (0: before the first).

    Attributes:
        epoch: Number of the epoch.
        learned: Mean -log π in nats of the decisions learned from, as they were visited; NaN: there are none.
        held: The same of the held-out decisions.
        accuracy: Share of the held-out decisions where the most probable action was taken.
    """

    epoch: int
    learned: float
    held: float
    accuracy: float


@dataclass(frozen=True, slots=True, eq=False)
class Clone:
    """A cloned policy and its training record.

    Attributes:
        spec: Spec of the policy.
        weights: Weights of the best epoch.
        epochs: Scores of all epochs.
        best: Scores of the epoch whose weights these are.
        floor: Mean -log π of the held-out decisions under the policy that took them, a lower bound in expectation.
        episodes: (learned from, held out).
        decisions: (learned from, held out).
        placement: Device and backend of the training.
    """

    spec: PolicySpec
    weights: Weights
    epochs: tuple[Scores, ...]
    best: Scores
    floor: float
    episodes: tuple[int, int]
    decisions: tuple[int, int]
    placement: Placement


Tell = Callable[[Scores, int], None]
"""(scores of the last epoch, epochs at most); called after each."""
PolicyOf = Callable[[EnvSpec, tuple[int, ...]], PolicySpec]


def clone(
    recorded: Recorded,
    env: EnvSpec,
    policy: PolicyOf,
    config: Cloning | None = None,
    *,
    players: Sequence[int | str] = (),
    policies: Sequence[str] = (),
    seed: int = 0,
    start: Weights | None = None,
    device: DeviceChoice = CPU,
    tell: Tell | None = None,
) -> Clone:
    """Train a policy on recorded decisions.

    Equal arguments give equal weights, on a CPU bitwise. With a memory, episodes are whole segments, which it starts at
    zero. A value of the policy is not trained.

    Args:
        recorded: The recorded trajectories.
        env: Environment of the recording.
        policy: (env, seats) -> spec, such as `Algorithm.policy`.
        config: Options of the training; None: the defaults.
        players: Numbers or names of players to imitate; (): all.
        policies: Names of policies to imitate; (): all.
        seed: Seed of weights, split and shuffles.
        start: Weights to start from; None: fresh ones.
        device: Where to compute.
        tell: Called with (scores, epochs at most) after each epoch.

    Raises:
        ConfigError: The file does not fit, or has too few episodes.
        PolicyError: A kind of policy without action probabilities.
        TrainingError: The loss became NaN or infinite.
    """
    config = config or Cloning()
    demos, seats = demonstrations(recorded, env, players=players, policies=policies)
    spec = policy(env, seats)
    model = model_of(spec, seed=seeding.key(seed, "clone", "weights") % 2**63, start=start)
    learned, held = split(demos, share=config.held_out, seed=seed)
    _record_statistics(demos, learned, model)
    training = _Training(model, config, demos, device)
    epochs = [Scores(0, math.nan, *training.scores(held))]
    best, weights = epochs[0], model.weights()
    for epoch in range(1, config.epochs + 1):
        loss = training.epoch(learned, seed=seeding.key(seed, "clone", epoch))
        scores = Scores(epoch, loss, *training.scores(held))
        epochs.append(scores)
        if not len(held) or scores.held < best.held:
            best, weights = scores, model.weights()
        if tell is not None:
            tell(scores, config.epochs)
        if epoch - best.epoch >= config.patience:
            break
    rows = demos.rows(held)
    return Clone(
        spec,
        weights,
        tuple(epochs),
        best,
        0.0 - float(demos.logp[rows].mean(dtype=np.float64)) if len(rows) else math.nan,
        (len(np.unique(demos.episode[learned])), len(np.unique(demos.episode[held]))),
        (len(demos.logp) - len(rows), len(rows)),
        training.placement,
    )


def _record_statistics(demos: Demonstrations, segments: Index, model: CloneModel) -> None:
    rows = demos.rows(segments)
    for at in range(0, len(rows), _ROWS):
        model.see(demos.policy_observations(rows[at : at + _ROWS]))


class _Training:
    """Steps of the optimizer over the demonstrations, on a device from which numbers are read once an epoch."""

    def __init__(self, model: CloneModel, config: Cloning, demos: Demonstrations, device: DeviceChoice) -> None:
        self._model, self._config, self._demos = model, config, demos
        self.placement = resolve_placement(
            device, UpdateCost(multiplications(model.module), config.batch, has_cpu_kernel=False)
        )
        self._device = self.placement.torch
        self._parameters = FlatModule(model.module.eval(), device=self._device)
        self._adam, self._guard = ModuleAdam(self._parameters, epsilon=1e-8), NonFiniteGuard(self._device)

    def epoch(self, segments: Index, *, seed: int) -> float:
        """Run one pass over the segments in random order. Return the mean loss of the decisions as they were visited."""
        config, losses, norms, counts = self._config, list[Tensor](), list[Tensor](), list[int]()
        with learning(self._model.module, seed):
            for rows, start in self._batches(segments, np.random.default_rng(seed)):
                out, action, mask = self._answered(rows, start)
                loss = nll_loss(self._model.distribution, out, action, mask).mean()
                self._parameters.zero()
                torch.autograd.backward(loss)
                losses.append(loss.detach())
                rate, max_norm = config.learning_rate, config.max_gradient_norm
                norms.append(self._guard.step(self._adam, losses[-1], rate=rate, max_norm=max_norm))
                counts.append(len(rows))
        values, failed = self._guard.read([*losses, *norms])
        total = sum(loss * count for loss, count in zip(values, counts, strict=False))
        if failed:
            wrong = next(k for k in range(len(counts)) if not math.isfinite(values[k] + values[k + len(counts)]))
            raise TrainingError(
                f"behaviour cloning: the loss became {values[wrong]}, its gradient {values[wrong + len(counts)]}. Lower learning_rate, or "
                "look for actions that the policy cannot take."
            )
        return total / sum(counts)

    def _answered(self, rows: Index, start: Index) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return (out, action, mask) of rows, as `nll_loss` takes them."""
        x, action, mask = self._demos.tensors(rows, self._model, self._device)
        with self.placement.products():
            return self._model.outputs(x, start).float(), action, mask

    def _batches(self, segments: Index, rng: np.random.Generator) -> Iterator[tuple[Index, Index]]:
        """Yield (rows, start of each segment among them)."""
        batch = self._config.batch
        if not self._model.memory:
            rows = rng.permutation(self._demos.rows(segments))
            for at in range(0, len(rows), batch):
                yield rows[at : at + batch], np.arange(len(rows[at : at + batch]) + 1)
            return
        yield from self._sequences(rng.permutation(segments), batch)

    def _sequences(self, segments: Index, batch: int) -> Iterator[tuple[Index, Index]]:
        """Yield whole segments, none of them empty, about `batch` rows at a time."""
        length = np.diff(self._demos.start)
        segments = segments[length[segments] > 0]
        which = (np.cumsum(length[segments]) - 1) // batch
        for part in np.split(segments, np.flatnonzero(np.diff(which)) + 1):
            yield self._demos.rows(part), np.concatenate([[0], np.cumsum(length[part])])

    def scores(self, segments: Index) -> tuple[float, float]:
        """Return (mean loss, accuracy) of the segments' decisions; NaN if there are none, or no accuracy is defined."""
        rows = self._demos.rows(segments)
        if not len(rows):
            return math.nan, math.nan
        model = self._model
        loss, right = torch.zeros(2, dtype=torch.float64, device=self._device)
        parts = self._sequences(segments, _ROWS) if model.memory else self._parts(rows)
        with torch.no_grad():
            for some, start in parts:
                out, action, mask = self._answered(some, start)
                loss += nll_loss(model.distribution, out, action, mask).double().sum()
                if model.choices:
                    right += agreement(out, action, mask, model.choices).double().sum()
        lost, agreed = scalars_to_host([loss, right])
        return lost / len(rows), agreed / len(rows) if model.choices else math.nan

    def _parts(self, rows: Index) -> Iterator[tuple[Index, Index]]:
        for at in range(0, len(rows), _ROWS):
            some = rows[at : at + _ROWS]
            yield some, np.arange(len(some) + 1)
