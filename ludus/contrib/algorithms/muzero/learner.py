"""MuZero's learner: sequences of what was seen, done and earned, and of what searches found, replayed and imagined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ludus.algorithms.alphazero.learner import SearchLearner, weight_norm
from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.replay_learner import NetworkEnsemble
from ludus.algorithms.common.returns import lambda_returns, n_step
from ludus.backend.device import UpdateCost, resolve_placement, to_device
from ludus.backend.network import multiplications
from ludus.contrib.algorithms.muzero.losses import UnrolledTargets, Windows, merged, unrolled_loss
from ludus.contrib.algorithms.muzero.policy import MuZeroNetwork, make_muzero
from ludus.core import seeding
from ludus.core.errors import DataError
from ludus.core.types import Array, Metrics, SegmentEnd, Weights
from ludus.policies.actor_critic import arrays_of, load_arrays
from ludus.policies.registry import build_policy
from ludus.replay.base import ItemColumns, Sample
from ludus.replay.trajectories import Trajectories

if TYPE_CHECKING:
    from ludus.contrib.algorithms.muzero.config import MuZero


class MuZeroLearner(SearchLearner):
    """One step of Adam per batch on `unrolled_loss`. An item is a decision and the `unroll` ones after it: of two
    players, both players' moves in turn. By autograd, on any device."""

    config: MuZero

    def __init__(self, config: MuZero, context: LearnerContext, start: Weights | None = None) -> None:
        super().__init__(config, context, config.policy(context.env, context.seats))
        module = make_muzero(self.spec, seed=seeding.key(context.seed, "muzero", "weights") % 2**63)
        if start is not None:
            build_policy(self.spec, start)  # raises PolicyError where they do not fit
            load_arrays(module, start)
        passes = 1 + config.unroll
        work = UpdateCost(
            passes * multiplications(module),
            config.batch,
            has_cpu_kernel=False,
            no_kernel_reason="autograd learns from searches",
        )
        self.settle(resolve_placement(context.device, work))
        self.networks = NetworkEnsemble(module, ranks=self.ranks, placement=self.placement, layouts=())
        self._two = context.env.num_players == 2

    @property
    def _network(self) -> MuZeroNetwork:
        network = self.networks.online.module
        assert isinstance(network, MuZeroNetwork)
        return network

    # ------------------------------------------------------------------------------------------ data

    def items(self, trajectories: Trajectories) -> Sequence[tuple[str, ItemColumns]]:
        """Return each decision with those that follow it in its game, or in its fragment."""
        rows = trajectories
        self.count(rows)
        policy, search_value = self.search_results(rows)
        observation, mask = self.observations_and_masks(rows)
        value, reward, order, start, terminated = self._games(rows, search_value)
        windows = Windows.of(start, terminated, self.config.unroll)
        at, ahead = order[windows.row], windows.there | windows.over
        columns = {
            "observation": observation[order],
            "action": rows.action[at[:, :-1]].astype(np.int64),
            "policy": policy[at],
            "reward": np.where(windows.there[:, :-1], reward[at[:, :-1]], 0.0).astype(np.float32),
            "value": np.where(windows.there, value[at], 0.0).astype(np.float32),
            "reward_weight": ahead[:, :-1].astype(np.float32),
            "value_weight": ahead.astype(np.float32),
            "policy_weight": windows.there.astype(np.float32),
            "version_lo": np.repeat(rows.version_lo, np.diff(rows.start))[order],
        }
        rng = seeding.generator(self._seed, "muzero", "actions", self._items)
        random_action = rng.integers(columns["policy"].shape[2], size=columns["action"].shape)
        columns["action"] = np.where(
            windows.there[:, :-1], columns["action"], random_action
        )  # after the end, whatever they are
        if self.config.reanalyse:
            legal = np.ones((len(value), columns["policy"].shape[2]), np.bool_) if mask is None else mask
            columns |= {"seen": observation[at], "legal": legal[at]}
        return [self.table_items(columns)]

    def _games(self, rows: Trajectories, search_value: NDArray[np.float64]) -> tuple[Array, Array, Array, Array, Array]:
        """Return (value target [N] of each row, reward [N] of the move itself, order of the rows, start of each game or
        fragment in it, whether each terminated)."""
        config, terminated = self.config, rows.tail == SegmentEnd.TERMINATED
        reward, coming = rows.reward.astype(np.float64) * self._scale, self.learned_rewards(rows, search_value)
        if not self._two:
            total, discount, after = n_step(rows.start, coming, np.zeros_like(rows.tail), config.gamma, config.n_step)
            value = total + discount * search_value[np.maximum(after, 0)]
            return value, reward, np.arange(len(value)), rows.start, terminated
        value = _sums(rows.start, coming)
        segment = np.repeat(np.arange(len(terminated)), np.diff(rows.start))
        order, start = merged(rows.episode[segment], rows.t)
        _require_turns(rows.seat[segment][order], rows.t[order], start)
        ends = order[start[1:] - 1]
        earned = np.empty(len(value))  # a row is paid by its own move, and, the opposite, by the other's that follows
        earned[order] = _sums(start, reward[order])
        return value, earned, order, start, terminated[segment[ends]]

    # ------------------------------------------------------------------------------------------ learning

    def learn(self, batch: Sample) -> Metrics:
        """Implement `ReplayLearner.learn`: one gradient step."""
        config, rows = self.config, len(batch.index)
        share = self.ranks.share(rows)
        there: dict[str, Tensor] = {
            name: to_device(batch.columns[name][share], self.device)
            for name in (
                "observation",
                "action",
                "reward",
                "value",
                "policy",
                "reward_weight",
                "value_weight",
                "policy_weight",
            )
        }
        if config.reanalyse:
            there["policy"] = self.reanalyzed_policy(
                there["policy"], batch.columns["seen"], batch.columns["legal"], share
            )
        x = there.pop("observation").float()
        with self.placement.products():
            by_policy, by_value, by_reward = (
                part.float() / rows for part in unrolled_loss(self._network, UnrolledTargets(x=x, **there))
            )
        norm = weight_norm(self._network.parameters()) / self.ranks.size
        loss = by_policy + config.value_coefficient * by_value + by_reward + config.l2 * norm
        metrics = self.gradient_step(loss, by_policy, by_value)
        return {**metrics, "temperature": self.rate(config.temperature)}

    def weights(self) -> Weights:
        arrays = arrays_of(self.networks.target.module)
        arrays["temperature"] = np.array([self.rate(self.config.temperature)], np.float32)
        return arrays


def _sums(start: NDArray[np.int64], rewards: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return float64[N], the sum of a row's reward and of all that follow in its segment."""
    return lambda_returns(start, rewards, rewards, np.zeros(len(start) - 1), 1.0, 1.0)


def _require_turns(seat: Array, t: Array, start: Array) -> None:
    """Raise DataError unless the players move in turn in each game. seat, t: of the rows in order; start: of each game
    in them."""
    repeated = (np.diff(seat) == 0) | (np.diff(t) == 0)
    repeated[start[1:-1] - 1] = False  # from one game to the next
    if repeated.any():
        raise DataError(
            "MuZero learns games of two players from both players' moves, one at a time and in turn, and in these games one player moves "
            "twice, or both at once. If the other's moves were not recorded, as against fixed opponents and the past, use scenario "
            "self_play with share=always, every_seat=true and latest=1; other games are not for it."
        )
