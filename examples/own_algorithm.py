"""An algorithm of your own: REINFORCE with a table of logits, on games that are compiled to a tree.

python examples/own_algorithm.py
PYTHONPATH=examples ludus train kuhn algorithm=own_algorithm:Reinforce
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

import ludus
from ludus.algorithms.common.base import CollectConfig, LearnerContext
from ludus.algorithms.common.returns import bootstrap_values, lambda_returns
from ludus.core.config import Config
from ludus.core.errors import ScenarioError, TrainingError
from ludus.core.types import EnvSpec, Metrics, PolicySpec, State, Weights
from ludus.policies.categorical import masked_softmax
from ludus.policies.registry import build_policy
from ludus.policies.specs import information_state_ids, tabular_spec
from ludus.replay.base import ItemColumns, Sample, TableSpec
from ludus.replay.trajectories import Trajectories
from ludus.testing.algorithm import check_algorithm


class Reinforce(Config):
    """θ[s, b] += rate · mean over the rows of s of (G - mean G) (1[a = b] - π(b | s)). (Williams 1992.) Fields are options."""

    episodes: int = Field(default=500, ge=1)  # per update
    learning_rate: float = Field(default=0.5, gt=0)

    @property
    def item(self) -> str:
        return "decision"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Before anything is written: can this learn there?"""
        if env.enumeration is None:
            raise ScenarioError(f"Reinforce needs a compiled game, and {env.id} is none; use algorithm ppo.")

    def collect(self) -> CollectConfig:
        return CollectConfig("episodes", self.episodes)

    def tables(self) -> Sequence[TableSpec]:
        return (TableSpec("rollouts", kind="queue"),)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        self.check(env, seats)
        return tabular_spec(env.enumeration, seats)

    def learner(self, context: LearnerContext, start: Weights | None = None) -> ReinforceLearner:
        return ReinforceLearner(self, context, start)


class ReinforceLearner:
    def __init__(self, config: Reinforce, context: LearnerContext, start: Weights | None) -> None:
        self.config = config
        self.spec = config.policy(context.env, context.seats)
        ids = information_state_ids(context.env.enumeration, context.seats)
        self._mask = np.ascontiguousarray(context.env.enumeration.mask[ids])
        self._base = ids.start
        self._theta = np.zeros(self._mask.shape)
        if start is not None:
            probs = build_policy(self.spec, start).weights()["probs"]  # raises PolicyError if they do not fit
            self._theta = np.log(np.maximum(probs, 1e-3))
        self._waiting = 0

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """(table, rows) for a rollout: here each decision with the return that followed it."""
        rows, nothing = trajectories, np.zeros(trajectories.num_rows)
        after = bootstrap_values(rows.tail, np.zeros(rows.num_segments))
        returns = lambda_returns(rows.start, rows.reward.astype(np.float64), nothing, after, 1.0, 1.0)
        self._waiting += rows.num_rows
        columns = {"state": rows.observation - self._base, "action": rows.action, "return": returns}
        return [("rollouts", columns)]

    def batches(self) -> Sequence[tuple[str, int]]:
        return [("rollouts", 0)] if self._waiting else []  # 0: all rows that wait, as one update

    def update(self, batch: Sample) -> Metrics:
        state, action, value = (batch.columns[name] for name in ("state", "action", "return"))
        if not np.isfinite(value).all():
            raise TrainingError("Reinforce: a return is NaN or infinite. The logits are kept; check the rewards.")
        count = np.maximum(np.bincount(state, minlength=len(self._mask)), 1)
        mean = np.bincount(state, value, minlength=len(self._mask)) / count
        advantage = value - mean[state]
        gradient = np.zeros(self._mask.shape)  # the rows' π parts cancel: within a state the advantages sum to 0
        np.add.at(gradient, (state, action), advantage)
        self._theta += self.config.learning_rate * gradient / count[:, None]
        self._waiting = 0
        return {"rows": float(len(value)), "return": float(value.mean())}

    def weights(self) -> Weights:
        return {"probs": masked_softmax(self._theta, self._mask)}

    def state_dict(self) -> State:
        return {"theta": self._theta.copy(), "waiting": self._waiting}

    def load_state_dict(self, state: State) -> None:
        self._theta, self._waiting = np.array(state["theta"]), int(state["waiting"])


def main(generations: int = 10, episodes: int = 10_000) -> None:
    from ludus.envs.tree.game_tree import compile_tree

    check_algorithm(Reinforce(episodes=20), compile_tree("kuhn_poker").spec)
    scenario = ludus.PSRO(
        env="openspiel/kuhn_poker",
        algorithm={"kind": "own_algorithm:Reinforce", "learning_rate": 1.0},
        generations=generations,
        response={"episodes": episodes},
    )
    result = ludus.run(scenario)
    print("NashConv:", [round(value, 3) for value in result.nash_conv])


if __name__ == "__main__":
    main()
