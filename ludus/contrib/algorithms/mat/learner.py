"""MAT's learner: rows of a rollout in groups, the agents of a team that acted at one moment; items and minibatches
consist of such groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.on_policy.batch import Batch
from ludus.algorithms.on_policy.experience import ExperienceBuilder, ValueEstimates
from ludus.algorithms.on_policy.learner import ActorCriticModel, OnPolicyLearner
from ludus.algorithms.on_policy.model import Floats, Model, OnPolicyConfig
from ludus.backend.device import to_numpy
from ludus.backend.mlp import Layout
from ludus.contrib.algorithms.joint_steps import left_at
from ludus.contrib.algorithms.mat.team_transformer import Sequences, TeamTransformer, make_team_transformer
from ludus.core.types import Array, SegmentEnd
from ludus.replay.base import ItemColumns
from ludus.replay.table import rows_of
from ludus.replay.trajectories import Trajectories

# --------------------------------------------------------------------------------------------------------------------
# Groups of rows.

PRESENT = "present"  # bool[T, agents] of items: whose decisions there are


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Rows ordered by group: order int64[n] of the rows, start int64[G + 1] of groups in that order, and place int64[n]
    there of their agents."""

    order: NDArray[np.int64]
    start: NDArray[np.int64]
    place: NDArray[np.int64]

    @staticmethod
    def of(place: NDArray[np.int64], *keys: Array) -> Groups:
        """Return the groups of rows whose keys [n] are all equal, in ascending order of the keys. place: [n], the rows'
        agents."""
        order = np.lexsort((place, *reversed(keys)))
        new = np.zeros(len(order), np.bool_)
        new[:1] = True
        for key in keys:
            new[1:] |= np.diff(key[order]) != 0
        return Groups(order, np.append(np.flatnonzero(new), len(order)), place[order])

    @property
    def group(self) -> NDArray[np.int64]:
        """Return the group of each row, int64[n], in that order."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def spread(self, column: Array, agents: int) -> Array:
        """Return a column of rows as [G, agents, …], 0 where an agent is missing."""
        out = np.zeros((len(self.start) - 1, agents, *column.shape[1:]), column.dtype)
        out[self.group, self.place] = column[self.order]
        return out


# --------------------------------------------------------------------------------------------------------------------
# The network as the learner trains it.

_GROUPS = 2048  # that are evaluated at a time


class TeamModel(ActorCriticModel):
    """A `TeamTransformer`. Rows come in groups: `Batch.start` has where each begins, and `Batch.place` the agent of
    each row."""

    no_compile_reason = "its groups have many sizes"

    def _fresh(self, seed: int) -> TeamTransformer:
        return make_team_transformer(self.spec, seed=seed, initial_std=self.config.initial_std)

    def _layouts(self) -> Sequence[Layout]:
        return ()

    @property
    def team(self) -> int:
        """Return the number of agents of a team."""
        return int(self.module.team)

    def values(
        self,
        x: Tensor,
        memory: Tensor | None,
        start: NDArray[np.int64] | None,
        state: Tensor | None,
        place: NDArray[np.int64] | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Return values; see `Model.values`. place: int64[n] of the rows' agents; None: whole teams, in order."""
        if start is None or place is None:
            start, place = np.arange(0, len(x) + 1, self.team), np.arange(len(x)) % self.team
        parts = [x.new_zeros(0)]
        for first in range(0, len(start) - 1, _GROUPS):
            part = start[first : first + _GROUPS + 1]
            rows = slice(int(part[0]), int(part[-1]))
            there = Sequences.of(part - part[0], place[rows], x.device)
            parts.append(self.module.values(x[rows].float(), there).float())
        return torch.cat(parts), None

    def _forward(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        assert batch.start is not None
        assert batch.place is not None
        there = Sequences.of(batch.start, batch.place, batch.x.device)
        out, value = self.module(batch.x.float(), batch.action, there)
        return out.float(), value.float()


# --------------------------------------------------------------------------------------------------------------------
# From rollouts to items, and to batches.


class GroupExperience(ExperienceBuilder):
    """Builds items that are groups, [agents, …] each. An agent's advantages follow its own decisions; its values see
    which others of its team act then."""

    def __init__(self, config: OnPolicyConfig, model: Model, context: LearnerContext) -> None:
        super().__init__(config, model, context)
        assert isinstance(model, TeamModel)
        self._team: TeamModel = model
        self._places = context.env.agent_index

    def estimate_values(self, rows: Trajectories, state: Any, bootstrap_state: Any) -> ValueEstimates:
        value = self._of_groups(rows.observation, self._groups(rows))
        after = np.zeros(rows.num_segments)
        there = np.flatnonzero(rows.tail != SegmentEnd.TERMINATED)
        if len(there):
            keys = (rows.episode[there], rows.seat[there], left_at(rows)[there])
            groups = Groups.of(self._places[rows.agent[there]], *keys)
            after[there] = self._of_groups(rows.bootstrap_observation[there], groups)
        return ValueEstimates(value, after)

    def items(self, rows: Trajectories, columns: dict[str, Array], estimates: ValueEstimates) -> ItemColumns:
        groups, agents = self._groups(rows), self._team.team
        oldest = np.repeat(rows.version_lo, np.diff(rows.start))[groups.order]
        items = {name: groups.spread(column, agents) for name, column in columns.items()}
        items[PRESENT] = groups.spread(np.ones(rows.num_rows, np.bool_), agents)
        return {**items, "version_lo": np.minimum.reduceat(oldest, groups.start[:-1])}

    def unpacked(self, items: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[str, Any]]:
        present = np.asarray(items[PRESENT])
        rows = np.flatnonzero(present)
        of_rows = {name: column for name, column in items.items() if name not in (PRESENT, "version_lo")}
        flat = {name: column.reshape(-1, *column.shape[2:]) for name, column in of_rows.items()}
        start = np.append(0, np.cumsum(present.sum(axis=1)))
        return rows_of(flat, rows), {"start": start, "place": rows % present.shape[1]}

    def _groups(self, rows: Trajectories) -> Groups:
        segment = np.repeat(np.arange(rows.num_segments), np.diff(rows.start))
        return Groups.of(self._places[rows.agent[segment]], rows.episode[segment], rows.seat[segment], rows.t)

    def _of_groups(self, observation: Array, groups: Groups) -> Floats:
        """Return values float64[n] of rows."""
        with torch.no_grad():
            x = self.inputs(observation[groups.order])
            values = to_numpy(self._team.values(x, None, groups.start, None, groups.place)[0])
        out = np.empty(len(values))
        out[groups.order] = values
        return out


class MATLearner(OnPolicyLearner):
    """On-policy learner of groups."""

    makes_items, in_groups = GroupExperience, True
