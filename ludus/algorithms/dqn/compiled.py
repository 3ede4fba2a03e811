"""DQN of perceptrons that learn means: passes written out, targets and loss compiled."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from ludus.algorithms.base import LearnerContext
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.dqn.learner import DQNLearner
from ludus.algorithms.dqn.terms import next_values, q_terms
from ludus.algorithms.dqn.updates import SUMS, Found
from ludus.algorithms.network import Network, Passes
from ludus.algorithms.states import StateTable, compact
from ludus.data.base import Columns
from ludus.policies.mlp import as_rows
from ludus.policies.q_network import QPolicy, action_values, initial_weights, q_layout
from ludus.seeding import generator
from ludus.types import Array, Weights


@dataclass(frozen=True, slots=True, eq=False)
class _Evaluated:
    """n rows over m states: q float32[m, A] of the online network, mask bool[m, A], state int32[n], after float64[n] next values."""

    passes: Passes
    q: Array
    mask: NDArray[np.bool_]
    state: NDArray[np.int32]
    after: NDArray[np.float64]


class CompiledLearner(DQNLearner):
    """On enumerated games the networks run on the states that occur in a batch, each once, and rows gather from there."""

    def __init__(self, config: DQN, context: LearnerContext, start: Weights | None = None) -> None:
        spec = config.policy(context.env, context.seats)
        if start is None:
            start = initial_weights(spec, generator(context.seed, "dqn", "weights"))
        weights, layout = QPolicy(spec, start).weights(), q_layout(spec)
        self._network, self._judge = Network({"q": layout}, weights, sums=SUMS), Network({"q": layout}, weights)
        super().__init__(config, context, spec, online=self._network, target=self._judge)
        self._inputs = int(spec.config["inputs"])
        self._x, self._every = torch.zeros(0, self._inputs), np.ones((0, self._actions), np.bool_)
        self._passes = Passes(self._network, self._x)  # its buffers are kept from one batch to the next of as many rows

    def _gradient(self, columns: Columns, rows: int, weight: NDArray[np.float64] | None) -> Found:
        share = self._ranks.share(rows)
        mine = {name: column[share] for name, column in columns.items()}
        action = np.ascontiguousarray(mine["action"], np.int32)
        seen = self._evaluate_rows(mine) if self._states is None else self._evaluate_ids(self._states, mine)
        target = mine["reward"] + mine["discount"].astype(np.float64) * seen.after
        weight = np.ones(len(action)) if weight is None else weight[share]
        gradient = seen.passes.gradients["q"]
        loss, value, errors = q_terms(
            seen.q, seen.mask, seen.state, action, target, weight, self.config.huber_delta, gradient, rows
        )
        finite = bool(np.isfinite(target).all())
        found = Found(loss, value, float(errors.sum()) / max(1, rows), errors, finite)
        seen.passes.backward()
        return self._joint(found, rows) if self._ranks.size > 1 else found

    def _evaluate_ids(self, states: StateTable, columns: Columns) -> _Evaluated:
        """One pass over the states that occur, now or next."""
        now, after = columns["observation"] - states.base, columns["next"]
        both = np.concatenate([now, np.where(after >= 0, after - states.base, -1)])
        unique, index = compact(both, len(states))
        x, mask = states.x[torch.from_numpy(unique)], states.mask[unique]
        passes = Passes(self._network, x)
        passes.forward()
        q = action_values(passes.outputs["q"], mask)
        judge = action_values(self._judge.evaluate("q", x), mask)
        state, following = index[: len(now)], index[len(now) :]
        value = next_values(q if self.config.double else judge, judge, mask, following)
        return _Evaluated(passes, q, mask, state, value)

    def _evaluate_rows(self, columns: Columns) -> _Evaluated:
        """One pass over the observations, and one without gradients over the next ones."""
        rows, after = len(columns["observation"]), as_rows(columns["next"], self._inputs)
        if rows != len(self._every):
            self._x, self._every = torch.zeros(rows, self._inputs), np.ones((rows, self._actions), np.bool_)
            self._passes = Passes(self._network, self._x)
        self._x.numpy()[:] = columns["observation"].reshape(rows, self._inputs)
        passes, every = self._passes, self._every
        legal, legal_after = columns.get("mask", every), columns.get("next_mask", every)
        passes.forward()
        q = action_values(passes.outputs["q"], legal)
        judge = action_values(self._judge.evaluate("q", after), legal_after)
        chooser = action_values(self._network.evaluate("q", after), legal_after) if self.config.double else judge
        state = np.arange(rows, dtype=np.int32)
        return _Evaluated(passes, q, legal, state, next_values(chooser, judge, legal_after, state))

    def _network_weights(self) -> Weights:
        return self._network.weights()
