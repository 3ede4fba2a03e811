"""What the learners of value decomposition share: agents' networks and a mixer on one vector, items, and the team's targets."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus import seeding
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.dqn.base import TABLE
from ludus.algorithms.dqn.flat import FlatModule
from ludus.algorithms.dqn.targets import mixed_priority
from ludus.algorithms.dqn.updates import SUMS, Found, QLearner
from ludus.algorithms.losses import huber
from ludus.algorithms.qmix.config import VDN
from ludus.algorithms.qmix.mixers import Monotonic, Sum
from ludus.algorithms.team_states import state_width
from ludus.algorithms.teams import RewardStatistics, team_size, versions, views
from ludus.data.base import Columns
from ludus.data.joint import Joint
from ludus.data.trajectories import Trajectories
from ludus.policies.q_module import arrays_of, loaded
from ludus.policies.torch_module import _SEEDING
from ludus.types import Array, PolicySpec, State, Weights

_MIX = 0.9  # of the largest error in the priority of a sequence (Kapturowski et al. 2019)


class Team(nn.Module):
    """q: the network that all agents share. mixer: of their values."""

    def __init__(self, q: nn.Module, mixer: nn.Module) -> None:
        super().__init__()
        self.q, self.mixer = q, mixer


class Compared(NamedTuple):
    """value float32[m, T] of the team, with gradients; target float32[m, T]; there bool[m, T]: which joint steps exist."""

    value: Tensor
    target: Tensor
    there: Tensor


class TeamLearner(QLearner):
    """A subclass says what an item is (`columns`), and what the team's values and targets are (`compared`). Weights hold the agents'
    network; the mixer, which only learning needs, is part of the learner's state."""

    def __init__(self, config: VDN, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        self.config, self._env, self._seats = config, context.env, context.seats
        self.team = team_size(context.env, context.seats, algorithm=type(config).__name__)
        self._module, self._judge = (self._networks(spec, context) for _ in range(2))
        if start is not None:
            loaded(self._module.q, spec, start)
        self._judge.requires_grad_(False)
        online, target = FlatModule(self._module, sums=SUMS), FlatModule(self._judge)
        super().__init__(config, context, spec, online=online, target=target)
        self._rewards = RewardStatistics(config.normalise_rewards, gamma=config.gamma, scale=self._scale)

    def _networks(self, spec: PolicySpec, context: LearnerContext) -> Team:
        seed = seeding.key(context.seed, "qmix", "mixer") % 2**63
        states = state_width(context.env, context.seats)
        return Team(self.fresh(spec, context.seed), make_mixer(self.config, agents=self.team, state=states, seed=seed))

    @abstractmethod
    def fresh(self, spec: PolicySpec, seed: int) -> nn.Module:
        """The agents' network, initialised from the seed."""

    @abstractmethod
    def columns(self, view: Joint, version: NDArray[np.int32]) -> dict[str, Array]:
        """Items, with the team's rewards as they are. version: int32[T] of each joint step."""

    @abstractmethod
    def compared(self, columns: Columns) -> Compared:
        """What the networks say of items."""

    @abstractmethod
    def steps_in(self, columns: Columns) -> int:
        """Joint steps in items."""

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, Columns]]:
        """Joint steps, or sequences of them, of each seat that was played."""
        out = []
        for rows, view in views(trajectories, self._env, self._seats):
            out.append((TABLE, self.columns(view, versions(rows, view))))
            self._rewards.add(view)
        self._budget.add(trajectories)
        self._inserted += trajectories.num_rows
        return out

    # ------------------------------------------------------------------------------------------ learning

    def _gradient(self, columns: Columns, rows: int, weight: NDArray[np.float64] | None) -> Found:
        share = self._ranks.share(rows)
        mine = {name: column[share] for name, column in columns.items()}
        self._online.joint.fill(0.0)
        found = Found(0.0, 0.0, 0.0, np.zeros(0))
        if len(mine["reward"]):
            weights = np.ones(rows) if weight is None else weight
            each = torch.from_numpy(weights[share].astype(np.float32))
            found = self._found_in(self.compared(mine), each, max(1, self.steps_in(columns)))
        return self._joint(found, rows) if self._ranks.size > 1 else found

    def _found_in(self, seen: Compared, weight: Tensor, steps: int) -> Found:
        """Adds to the gradient. steps: of all ranks, by which sums are divided."""
        error = (seen.value - seen.target).masked_fill(~seen.there, 0.0)
        loss = (huber(error, delta=self.config.huber_delta) * weight[:, None]).sum() / steps
        loss.backward()  # type: ignore[no-untyped-call]
        error = error.detach()
        priority = mixed_priority(error, seen.there, mix=_MIX).numpy().astype(np.float64)
        value = float(seen.value.detach()[seen.there].sum()) / steps
        finite = bool(seen.target[seen.there].isfinite().all())
        return Found(float(loss.detach()), value, float(error.abs().sum()) / steps, priority, finite)

    @torch.no_grad()
    def targets(self, columns: Columns, value: Tensor) -> Tensor:
        """Normalised rewards + discount × the target mixer's value of what comes next, float32[…]."""
        reward = self._rewards.normalised(columns["reward"], columns["span"])
        return torch.from_numpy(reward) + torch.from_numpy(columns["discount"]) * value

    # ------------------------------------------------------------------------------------------ state

    def _network_weights(self) -> Weights:
        return arrays_of(self._module.q)

    def state_dict(self) -> State:
        return {**super().state_dict(), "rewards": self._rewards.state_dict()}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self._rewards.load_state_dict(state["rewards"])


def make_mixer(config: VDN, *, agents: int, state: int, seed: int) -> nn.Module:
    """A fresh mixer, initialised from the seed alone, as torch initialises linear layers."""
    if config.mixer == "sum":
        return Sum()
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Monotonic(agents, state, width=config.mixing_width, hidden=config.mixing_hidden)
