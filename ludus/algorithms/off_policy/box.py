"""What learners of continuous actions share: actions in [-1, 1], and critics of (observation, action)."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from ludus import seeding
from ludus.algorithms.base import LearnerContext
from ludus.algorithms.off_policy.config import OffPolicy
from ludus.algorithms.off_policy.ensemble import Ensemble
from ludus.algorithms.off_policy.learner import OffPolicyLearner
from ludus.algorithms.returns import follow
from ludus.data.base import Columns
from ludus.data.trajectories import Trajectories
from ludus.policies.actors import Box, actor_layout, initial_actor
from ludus.policies.checks import integer
from ludus.policies.mlp import Layout
from ludus.policies.registry import build_policy
from ludus.types import Array, PolicySpec, Weights


class BoxLearner(OffPolicyLearner):
    """now, after: float32[n, inputs + size], a batch's observations and next ones, each beside a place for actions in [-1, 1]."""

    def __init__(
        self, config: OffPolicy, context: LearnerContext, spec: PolicySpec, start: Weights | None, *, critics: int
    ) -> None:
        super().__init__(config, context, spec, fresh_start=start is None)
        if start is None:
            parameters: Weights = initial_actor(spec, seeding.generator(context.seed, self.name, "actor"))
        else:
            parameters = build_policy(spec, start).weights()
        layout = actor_layout(spec)
        self.actor = Ensemble(layout, parameters, ("actor",), ranks=context.ranks)
        self.box, self.inputs = Box(spec), integer(spec, "inputs")
        widths = (self.inputs + self.box.size, *layout.widths[1:-1], 1)
        self.critics = self.fresh_critics(Layout(widths, layout.activation), count=critics)
        self._room(0)

    def _room(self, rows: int) -> None:
        self.taken = np.zeros(rows, np.int32)  # which output of the critics is meant: their only one
        self.now, self.after = (torch.zeros(rows, self.inputs + self.box.size) for _ in range(2))
        (self.seen, self.action), (self.next_seen, self.next_action) = (
            (pairs[:, : self.inputs], pairs.numpy()[:, self.inputs :]) for pairs in (self.now, self.after)
        )

    def stored(self, rows: Trajectories, following: NDArray[np.int64]) -> Columns:
        """See `OffPolicyLearner.stored`."""
        return {
            "observation": rows.observation,
            "action": self.box.to_unit(rows.action),
            "next": follow(rows.observation, rows.tail_observation, following),
        }

    def place(self, columns: Columns) -> None:
        """Put a batch into `now` and `after`; the next actions are the learner's to fill in."""
        n = len(columns["action"])
        if n != len(self.now):
            self._room(n)
        self.seen.numpy()[:] = columns["observation"].reshape(n, self.inputs)
        self.next_seen.numpy()[:] = columns["next"].reshape(n, self.inputs)
        self.action[:] = columns["action"]

    def slopes(self, *, count: int | None = None) -> Array:
        """dS/da float32[n, size], where S is what the critics' `gradients` are derivatives of, from their last forward pass. count: only by
        way of the first so many."""
        return self.critics.input_gradient(slice(self.inputs, None), count=count)
