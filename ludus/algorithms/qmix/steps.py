"""Value decomposition of networks without memory: items are joint steps."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ludus import seeding
from ludus.algorithms.dqn.targets import double_values, taken
from ludus.algorithms.qmix.learner import Compared, Team, TeamLearner
from ludus.algorithms.qmix.mixers import team_values
from ludus.algorithms.teams import joint_items
from ludus.data.base import Columns
from ludus.data.joint import Joint
from ludus.policies.q_module import QModule, QTeam, make_module, rows_of
from ludus.policies.q_perceptron import QPerceptron, make_perceptron
from ludus.types import Array, PolicySpec


class StepLearner(TeamLearner):
    """m items of n agents go through the network as m × n rows."""

    def fresh(self, spec: PolicySpec, seed: int) -> nn.Module:
        """See `TeamLearner.fresh`."""
        if spec.kind == "q_network":
            return make_perceptron(spec, seeding.generator(seed, "qmix", "weights"))
        return make_module(spec, seed=seeding.key(seed, "qmix", "weights") % 2**63)

    def columns(self, view: Joint, version: NDArray[np.int32]) -> dict[str, Array]:
        """See `TeamLearner.columns`."""
        columns = joint_items(view, gamma=self.config.gamma, steps=self.config.n_step)
        return columns | {"version_lo": version}

    def compared(self, columns: Columns) -> Compared:
        """See `TeamLearner.compared`; T is 1."""
        action = torch.from_numpy(columns["action"].astype(np.int64)).flatten()
        chosen = taken(self._values(self._module, columns, "observation", "mask"), action)
        value = self._mixed(self._module, chosen, columns, "present", "state")
        target = self.targets(columns, self._next_values(columns))
        return Compared(value[:, None], target[:, None], torch.ones(len(value), 1, dtype=torch.bool))

    @torch.no_grad()
    def _next_values(self, columns: Columns) -> Tensor:
        """The team's value of what comes next, float32[m]: each agent's best action by the online network (double) or the target's."""
        judge = self._values(self._judge, columns, "next", "next_mask")
        chooser = self._values(self._module, columns, "next", "next_mask") if self.config.double else judge
        legal = self._legal(columns, "next_mask")
        best = double_values(chooser, judge, torch.ones_like(judge, dtype=torch.bool) if legal is None else legal)
        return self._mixed(self._judge, best, columns, "next_present", "next_state")

    def _values(self, team: Team, columns: Columns, seen: str, mask: str) -> Tensor:
        """Of every agent, float32[m × n, A]."""
        observation = columns[seen]
        network = team.q
        assert isinstance(network, QPerceptron | QModule | QTeam)
        rows = rows_of(observation.reshape(-1, *observation.shape[2:]), network.shape)
        out: Tensor = network(rows, self._legal(columns, mask))
        return out[..., 0]

    def _legal(self, columns: Columns, mask: str) -> Tensor | None:
        return torch.from_numpy(columns[mask]).flatten(0, 1) if mask in columns else None

    def _mixed(self, team: Team, values: Tensor, columns: Columns, present: str, state: str) -> Tensor:
        """float32[m × n] -> float32[m]."""
        there = torch.from_numpy(columns[present])
        seen = torch.from_numpy(columns[state]) if self.config.needs_state else None
        out: Tensor = team.mixer(team_values(values.view_as(there), there), seen)
        return out

    def steps_in(self, columns: Columns) -> int:
        """See `TeamLearner.steps_in`."""
        return len(columns["reward"])
