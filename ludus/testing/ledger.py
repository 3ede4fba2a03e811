"""Book-keeping over a vector environment's timesteps: which decisions are open, what they were paid, and who broke the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium import Space
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.types import ActionRequests, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.envs.base import VectorEnv
from ludus.envs.spaces import Choices

# --------------------------------------------------------------------------------------------------------------------
# Random legal actions, for the checks of environments.

_STRIDE = np.uint64(0x9E3779B97F4A7C15)
_WIDEST = 1e3  # of actions without bounds


class Actor:
    """Random legal actions; those of an environment depend on its seed and its own decisions only, not on its neighbours."""

    def __init__(self, spec: EnvSpec, seeds: NDArray[np.uint64]) -> None:
        self._spec = spec
        self._seeds = seeds
        self._count = [np.zeros(len(seeds) * len(spec.agents_of(p)), np.uint64) for p in range(spec.num_players)]

    def actions(self, timestep: Timestep) -> tuple[Array, ...]:
        """Return one action per due row of each player."""
        return tuple(self._of(p, due) for p, due in enumerate(timestep.due))

    def _of(self, player: int, due: ActionRequests) -> Array:
        space = self._spec.agents_of(player)[0].action
        choices = Choices.of(space)
        if choices is None:
            assert isinstance(space, Box), (
                f"player {player} has actions in {space}; expected Discrete, Box, MultiDiscrete or MultiBinary."
            )
            noise = self._noise(player, due, int(np.prod(space.shape))).reshape(len(due.slot), *space.shape)
            low, high = np.maximum(space.low, -_WIDEST), np.minimum(space.high, _WIDEST)
            within: Array = (low + noise * (high - low)).astype(space.dtype)
            return within
        noise = self._noise(player, due, len(choices.counts))
        chosen = [
            [options[int(u * len(options))] for u, options in zip(row, legal, strict=True)]
            for row, legal in zip(noise, legal_actions(self._spec, due, choices), strict=True)
        ]
        dtype = np.int64 if isinstance(space, Discrete) else space.dtype
        return np.array(chosen, dtype).reshape(len(due.slot), *(space.shape or ()))

    def _noise(self, player: int, due: ActionRequests, width: int) -> NDArray[np.float64]:
        """Return float64[n, width] in [0, 1)."""
        agents = len(self._spec.agents_of(player))
        keys = self._seeds[due.slot // agents] + np.uint64(1 + player) * (due.slot % agents + 1).astype(np.uint64)
        count = self._count[player][due.slot]
        self._count[player][due.slot] += np.uint64(1)
        strides = np.arange(width, dtype=np.uint64) * _STRIDE  # an array's product wraps silently, a scalar's warns
        columns = [seeding.uniforms(keys + stride, count) for stride in strides]
        return np.stack(columns, axis=1) if columns else np.empty((len(keys), 0))


def legal_actions(spec: EnvSpec, due: ActionRequests, choices: Choices) -> list[list[list[int]]]:
    """Return, of each due row, the legal values of each number of its action."""
    if due.mask is not None:
        return [choices.values(row) for row in due.mask]
    if spec.enumeration is not None:
        return [choices.values(row) for row in spec.enumeration.mask[due.observation]]
    return [[list(range(count)) for count in choices.counts.tolist()]] * len(due.slot)


# --------------------------------------------------------------------------------------------------------------------
# What single rows of a timestep must look like. Each check raises AssertionError with one sentence.


def layout(spec: EnvSpec, num_envs: int, timestep: Timestep) -> None:
    """Check numbers of players, slots, dtypes and lengths, on which other checks build."""
    assert len(timestep.due) == len(timestep.ended) == spec.num_players, (
        "`due` and `ended` need one entry for each player."
    )
    for p, (due, ended) in enumerate(zip(timestep.due, timestep.ended, strict=True)):
        for what, rows in (("due", due), ("ended", ended)):
            _check_slots(spec, num_envs, p, rows.slot, f"player {p}: `{what}.slot`")
            _typed(rows.reward, np.float32, rows.slot.shape, f"player {p}: `{what}.reward`")
            lengths = (len(rows.observation), len(rows.slot))
            assert lengths[0] == lengths[1], (
                f"player {p}: `{what}` has {lengths[0]} observations for {lengths[1]} slots."
            )
        _typed(due.first, np.bool_, due.slot.shape, f"player {p}: `first`")
        assert ended.terminated.shape == ended.slot.shape, (
            f"player {p}: `terminated` needs one entry for each ended row."
        )
    finished = timestep.finished
    environment = finished.environment
    assert (np.diff(environment) > 0).all(), "`finished` must list environments in rising order."
    assert not len(environment) or (environment[0] >= 0 and environment[-1] < num_envs), (
        f"`finished.environment` must lie in 0 … {num_envs - 1}: {environment}."
    )
    assert finished.returns.shape == (len(environment), spec.num_players), "`finished.returns` must be float64[k, P]."
    assert finished.length.shape == finished.terminated.shape == environment.shape, (
        "`finished` needs one length and one `terminated` for each environment."
    )
    names = spec.statistics
    assert (finished.statistics is None) == (not names), (
        f"`finished.statistics` must be there where `spec.statistics` has names, and only there; these are {list(names)}."
    )
    if finished.statistics is not None:
        _typed(
            finished.statistics, np.float64, (len(environment), spec.num_players, len(names)), "`finished.statistics`"
        )


def _check_slots(spec: EnvSpec, num_envs: int, p: int, slot: NDArray[Any], what: str) -> None:
    assert slot.dtype == np.int32, f"{what} must be int32, it is {slot.dtype}."
    assert (np.diff(slot) > 0).all(), f"{what} must rise, it is {slot}."
    most = num_envs * len(spec.agents_of(p))
    assert not len(slot) or (slot[0] >= 0 and slot[-1] < most), f"{what} must lie in 0 … {most - 1}: {slot}."


def observations(spec: EnvSpec, p: int, observation: Array) -> None:
    """Check that observations of due rows are in their space or among the player's ids."""
    enumeration = spec.enumeration
    if enumeration is not None:
        ids = enumeration.ids(p)
        _typed(observation, np.int32, (len(observation),), f"player {p}: observations, as ids,")
        assert ((observation >= ids.start) & (observation < ids.stop)).all(), (
            f"player {p} was shown an id of another player."
        )
        return
    space = spec.agents_of(p)[0].observation
    shape = (len(observation), *(space.shape or ()))
    assert observation.shape == shape, f"player {p}: observations are {observation.shape}, expected {shape}."
    row = _outside(space, observation)
    assert row < 0, f"player {p}: an observation is not in its space: {observation[row]}."


def finals(spec: EnvSpec, p: int, ended: ClosedDecisions) -> None:
    """Check final observations, likewise, and their masks."""
    n = len(ended.slot)
    space = spec.agents_of(p)[0].observation
    shape = (n,) if spec.enumeration is not None else (n, *(space.shape or ()))
    assert ended.observation.shape == shape, (
        f"player {p}: final observations have shape {ended.observation.shape}, expected {shape}."
    )
    if spec.enumeration is None:
        row = _outside(space, ended.observation)
        assert row < 0, f"player {p}: a final observation is not in its space: {ended.observation[row]}."
    if ended.mask is not None:
        assert ended.mask.dtype == np.bool_, f"player {p}: `ended.mask` must be bool, it is {ended.mask.dtype}."
        assert len(ended.mask) == n, f"player {p}: `ended.mask` has {len(ended.mask)} rows for {n} slots."


def masks(spec: EnvSpec, p: int, due: ActionRequests) -> None:
    """Check masks of due rows: their shape, and something legal in each."""
    if due.mask is None:
        return
    space = spec.agents_of(p)[0].action
    choices = Choices.of(space)
    assert choices is not None, f"player {p} has a mask over actions in {space}, which have none."
    _typed(due.mask, np.bool_, (len(due.slot), choices.width), f"player {p}: the mask")
    possible = choices.possible(due.mask)
    assert possible.all(), f"player {p}: slots {due.slot[~possible]} are due without a legal action."


def rewards(p: int, reward: NDArray[np.float32], what: str) -> None:
    """Check that rewards are finite."""
    assert np.isfinite(reward).all(), f"player {p}: a reward in `{what}` is not finite, or beyond float32."


def _outside(space: Space[Any], observation: Array) -> int:
    """Return the first row that is not in the space, or -1."""
    if not len(observation):
        return -1
    if isinstance(space, Box) and np.can_cast(observation.dtype, space.dtype):
        flat = observation.reshape(len(observation), -1)
        inside = ((flat >= space.low.ravel()) & (flat <= space.high.ravel())).all(axis=1)
        return -1 if inside.all() else int(np.argmin(inside))
    return next((i for i, row in enumerate(observation) if not space.contains(row)), -1)


def _typed(array: Array, dtype: Any, shape: tuple[int, ...], what: str) -> None:
    description = f"{array.dtype}{list(array.shape)}"
    assert description == f"{np.dtype(dtype)}{list(shape)}", (
        f"{what} must be {np.dtype(dtype)}{list(shape)}; it is {description}."
    )


TeamRewards: TypeAlias = Literal["either", "shared", "split"]
_MONEY = 1e-4  # rewards are float32, returns float64


class Ledger:
    """Checks every timestep against the contract and what was before it.

    team: whether each agent of a player is paid the player's whole return, or they split it; "either": one of them, throughout.
    early_rewards: a player may be paid before its first decision in an episode; such rewards belong to no decision.
    collect: go on after a failure; otherwise `see` raises AssertionError. failures: topic, one of `TOPICS` -> a sentence about its first
    failure. After one in "rows" nothing more is checked: what rows say cannot be trusted then.
    """

    TOPICS = ("rows", "observations", "masks", "first decisions", "closed decisions", "episodes", "rewards")

    def __init__(
        self,
        spec: EnvSpec,
        num_envs: int,
        *,
        team: TeamRewards = "either",
        early_rewards: bool = False,
        collect: bool = False,
    ) -> None:
        self.spec = spec
        self.failures: dict[str, str] = {}
        self.finished = np.zeros(num_envs, np.int64)
        self.left = 0  # agents that left before their episode's end
        self._num_envs = num_envs
        self._ways: set[str] = {team} if team != "either" else {"shared", "split"}
        self._early = early_rewards
        self._collect = collect
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        slots = [num_envs * n for n in self._agents]
        self._seen = [np.zeros(n, np.bool_) for n in slots]  # in this episode
        self._there = [np.zeros(n, np.bool_) for n in slots]  # since its agent came (back) to it
        self._open = [np.zeros(n, np.bool_) for n in slots]
        self._paid = [np.zeros(n) for n in slots]
        self._closed_early = [np.zeros(n, np.bool_) for n in slots]
        self._from_start = [np.zeros(n, np.bool_) for n in slots]
        self._length = np.zeros(num_envs, np.int64)
        self._busy = np.zeros(num_envs, np.bool_)

    def see(self, timestep: Timestep) -> None:
        """Check one timestep, the answer of a reset or of a step."""
        if "rows" in self.failures or not self._try("rows", layout, self.spec, self._num_envs, timestep):
            return
        self._length[self._busy] += 1
        environment = timestep.finished.environment
        for p, ended in enumerate(timestep.ended):
            self._see_ended(p, ended, environment)
        if len(environment):
            self._see_finished(timestep)
        self._busy[:] = False
        for p, due in enumerate(timestep.due):
            self._see_due(p, due)

    def _try(self, topic: str, check: Callable[..., None], *args: Any) -> bool:
        try:
            check(*args)
        except AssertionError as error:
            if not self._collect:
                raise
            self.failures.setdefault(topic, str(error))
            return False
        return True

    # ------------------------------------------------------------------------------------------ decisions

    def _see_due(self, p: int, due: ActionRequests) -> None:
        self._try("observations", observations, self.spec, p, due.observation)
        self._try("masks", masks, self.spec, p, due)
        self._try("first decisions", self._check_first, p, due)
        self._try("rewards", rewards, p, due.reward, "due")
        self._paid[p][due.slot] += due.reward
        environment = due.slot // self._agents[p]
        self._from_start[p][due.slot[due.first]] = self._length[environment[due.first]] == 0
        self._seen[p][due.slot] = self._there[p][due.slot] = True
        self._open[p][due.slot] = True
        self._busy[environment] = True

    def _check_first(self, p: int, due: ActionRequests) -> None:
        odd = due.slot[due.first == self._there[p][due.slot]]
        assert not len(odd), (
            f"player {p}: `first` must mark exactly the slots' first decisions in their episodes; slots {odd} differ."
        )
        assert not (np.abs(due.reward[due.first]) > 0).any(), (
            f"player {p}: a first decision came with a reward; nothing was decided before it."
        )

    def _see_ended(self, p: int, ended: ClosedDecisions, finished: NDArray[np.int32]) -> None:
        self._try("observations", finals, self.spec, p, ended)
        self._try("closed decisions", self._check_was_open, p, ended)
        self._try("rewards", rewards, p, ended.reward, "ended")
        self._paid[p][ended.slot] += ended.reward
        self._open[p][ended.slot] = self._there[p][ended.slot] = False
        early = ~np.isin(ended.slot // self._agents[p], finished)
        self._closed_early[p][ended.slot] = early
        self.left += int(early.sum())

    def _check_was_open(self, p: int, ended: ClosedDecisions) -> None:
        closed = ended.slot[~self._open[p][ended.slot]]
        assert not len(closed), f"player {p}: slots {closed} are in `ended` and had no open decision."

    # ------------------------------------------------------------------------------------------ episodes

    def _see_finished(self, timestep: Timestep) -> None:
        environment, returns = timestep.finished.environment, timestep.finished.returns
        self._try("episodes", self._check_episodes, timestep)
        for p in range(self.spec.num_players):
            slots = environment[:, None] * self._agents[p] + np.arange(self._agents[p])
            self._try("closed decisions", self._check_all_closed, p, slots)
            self._try("rewards", self._check_sums, p, slots, returns[:, p])
            for column in (self._seen, self._there, self._from_start, self._closed_early, self._open):
                column[p][slots] = False
            self._paid[p][slots] = 0
        self._length[environment] = 0
        self.finished[environment] += 1

    def _check_episodes(self, timestep: Timestep) -> None:
        finished, length = timestep.finished, self._length[timestep.finished.environment]
        assert np.isfinite(finished.returns).all(), "an episode's return is not finite."
        assert np.array_equal(finished.length, length), (
            f"episodes took {length} steps and `finished.length` says {finished.length}."
        )
        low, high = np.array(self.spec.utility_range).T
        inside = (finished.returns >= low - _MONEY) & (finished.returns <= high + _MONEY)
        assert inside.all(), (
            f"returns {finished.returns[~inside.all(axis=1)]} are outside of the utility range {self.spec.utility_range}."
        )
        self._check_statistics(finished)

    def _check_statistics(self, finished: FinishedEpisodes) -> None:
        """Where an episode was cut off, or lost, they may be unknown."""
        if finished.statistics is None:
            return
        known = np.isfinite(finished.statistics)
        known |= np.isnan(finished.statistics) & ~finished.terminated[:, None, None]
        assert known.all(), (
            f"a finished episode's {self.spec.statistics[int(np.argwhere(~known)[0, 2])]!r} is not a finite number."
        )

    def _check_all_closed(self, p: int, slots: NDArray[np.int32]) -> None:
        left = slots[self._open[p][slots]]
        assert not len(left), (
            f"player {p}: the episodes of slots {left} ended and their open decisions are not in `ended`."
        )

    def _check_sums(self, p: int, slots: NDArray[np.int32], returns: NDArray[np.float64]) -> None:
        paid = np.where(self._seen[p][slots], self._paid[p][slots], np.nan)
        believed = self._from_start[p][slots] | (self._seen[p][slots] & (not self._early))
        off = _MONEY * (1 + np.abs(returns))
        wrong = {
            "shared": believed & ~self._closed_early[p][slots] & (np.abs(paid - returns[:, None]) > off[:, None]),
            "split": believed.all(axis=1) & (np.abs(paid.sum(axis=1) - returns) > off),
        }
        ways = {"shared"} if self._agents[p] == 1 else self._ways
        right = {way for way in ways if not wrong[way].any()}
        if self._agents[p] > 1:
            self._ways = right or ways
        if right:
            return
        shared = wrong["shared"]
        if "shared" in ways and shared.any():
            raise AssertionError(
                f"player {p}: rewards of slots {slots[shared]} sum to {paid[shared]}, their episodes' returns are "
                f"{np.broadcast_to(returns[:, None], shared.shape)[shared]}."
            )
        split = wrong["split"]
        raise AssertionError(
            f"player {p}: the agents' rewards sum to {paid[split].sum(axis=1)}, returns are {returns[split]}."
        )


# --------------------------------------------------------------------------------------------------------------------
# What happens in each environment of a vector, as rows that can be compared.

Row: TypeAlias = tuple[object, ...]
Trace: TypeAlias = list[list[Row]]
"""[environment][event]"""


def play(
    env: VectorEnv, seeds: NDArray[np.uint64], steps: int, *, watch: Callable[[Timestep], None] | None = None
) -> Trace:
    """Play random legal actions for so many steps. `watch` sees each timestep before the next step."""
    actor = Actor(env.spec, seeds)
    timestep = env.reset(seeds)
    trace: Trace = [[] for _ in seeds]
    for _ in range(steps):
        if watch is not None:
            watch(timestep)
        record(env.spec, timestep, trace)
        timestep = env.step(actor.actions(timestep))
    return trace


def record(spec: EnvSpec, timestep: Timestep, trace: Sequence[list[Row]]) -> None:
    """Append what a timestep says about each environment."""
    for p, ended in enumerate(timestep.ended):
        agents = len(spec.agents_of(p))
        for i, slot in enumerate(ended.slot.tolist()):
            paid, how = float(ended.reward[i]), bool(ended.terminated[i])
            trace[slot // agents].append(("ended", p, slot % agents, paid, how, _bytes(ended.observation[i])))
    finished = timestep.finished
    for i, e in enumerate(finished.environment.tolist()):
        returns = tuple(finished.returns[i].tolist())
        counted = () if finished.statistics is None else (_bytes(finished.statistics[i]),)
        trace[e].append(("finished", returns, bool(finished.terminated[i]), int(finished.length[i]), *counted))
    for p, due in enumerate(timestep.due):
        agents = len(spec.agents_of(p))
        for i, slot in enumerate(due.slot.tolist()):
            visible = _bytes(due.observation[i]), b"" if due.mask is None else _bytes(due.mask[i])
            trace[slot // agents].append(("due", p, slot % agents, *visible, float(due.reward[i]), bool(due.first[i])))


def same(one: Trace, other: Trace, what: str, *, whole: bool = True) -> None:
    """Raise AssertionError where two traces part; `what` names the other. whole: neither may be longer."""
    for e, (a, b) in enumerate(zip(one, other, strict=True)):
        where = f" in environment {e}" if len(one) > 1 else ""
        for i, (x, y) in enumerate(zip(a, b, strict=False)):
            assert x == y, f"{what} went another way{where}, event {i}: {_difference(x, y)}."
        assert len(a) == len(b) or not whole, f"{what} went another way{where}: {len(a)} and {len(b)} events."


_FIELDS = {
    "due": ("", "", "observation", "mask", "reward", "`first`"),
    "ended": ("", "", "last reward", "`terminated`", "final observation"),
    "finished": ("returns", "`terminated`", "length", "statistics"),
}


def _difference(x: Row, y: Row) -> str:
    """Return what two rows differ in, in words."""
    kind, *values = x
    other, *others = y
    k = next((k for k, (a, b) in enumerate(zip(values, others, strict=False)) if a != b), 0)
    if kind != other or not (field := _FIELDS[str(kind)][k]):
        return f"{_who(x)}, and {_who(y)}"
    both = "" if isinstance(values[k], bytes) else f", {values[k]} and {others[k]}"
    return f"{_who(x)}, and the {field} differs{both}"


def _who(row: Row) -> str:
    kind, player, agent, *_ = row
    return "the episode is finished" if kind == "finished" else f"agent {agent} of player {player} is {kind}"


def _bytes(values: Array) -> bytes:
    return np.ascontiguousarray(values).tobytes()
