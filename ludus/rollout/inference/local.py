"""Inference by policy copies in the worker's own process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.backend.device import Placement
from ludus.core.arrays import kernel
from ludus.core.errors import PolicyError
from ludus.core.types import CPU, ActionRequests, Array, DeviceChoice, Enumeration, EnvSpec, PolicyOutput, PolicyRef
from ludus.policies.base import Policy, Teams
from ludus.rollout.inference import groups
from ludus.rollout.inference.groups import (
    Group,
    PolicyBindings,
    acting_placement,
    decode,
    group_key,
    merge,
    next_memory,
    require_mode,
)

# --------------------------------------------------------------------------------------------------------------------
# Tabulated policies of one player, stacked: an action is one table row and one uniform away.

_TOLERANCE = 1e-5


class StackedTables:
    """cumulative float32[K, I_p, A] and logp float32[K, I_p, A] of up to K policies on the I_p information states of one player."""

    def __init__(self, enumeration: Enumeration, player: int) -> None:
        ids = enumeration.ids(player)
        self.player = player
        self.offset = ids.start
        self._legal = enumeration.mask[ids]
        self._cumulative = np.empty((0, *self._legal.shape), np.float32)
        self._logp = np.empty((0, *self._legal.shape), np.float32)

    def __len__(self) -> int:
        """Return I_p."""
        return len(self._legal)

    def set(self, row: int, probs: NDArray[np.float64], *, name: str) -> None:
        """Set row `row` to probs float[I_p, A]. Raises PolicyError unless these are distributions over legal actions."""
        if probs.shape != self._legal.shape:
            raise PolicyError(
                f"policy {name!r} tabulated as {probs.shape} for player {self.player}; expected {self._legal.shape}: every "
                "information state of the player, and every action."
            )
        if not (np.all(probs >= 0) and np.allclose(probs.sum(axis=1), 1, rtol=0, atol=_TOLERANCE)):
            raise PolicyError(
                f"policy {name!r} tabulated rows that are negative, NaN, or do not sum to 1; expected probabilities."
            )
        if np.any(probs[~self._legal] > 0):
            raise PolicyError(
                f"policy {name!r} tabulated probability on illegal actions of player {self.player}; expected 0 there."
            )
        if row >= len(self._cumulative):
            self._grow(row + 1)
        cumulative = np.cumsum(probs / probs.sum(axis=1, keepdims=True), axis=1)
        last = probs.shape[1] - 1 - np.argmax(probs[:, ::-1] > 0, axis=1)
        cumulative[np.arange(probs.shape[1]) >= last[:, None]] = (
            2.0  # rounding must not run past the last possible action
        )
        self._cumulative[row] = cumulative
        with np.errstate(divide="ignore"):
            self._logp[row] = np.log(probs)

    def sample(
        self,
        slot: NDArray[np.int32],
        ids: NDArray[np.int32],
        bound: NDArray[np.int32],
        noise: NDArray[np.float32],
        *,
        action: NDArray[np.int32],
        logp: NDArray[np.float32],
    ) -> None:
        """For each row, the table row bound[slot] at the state `ids` by inverse distribution of noise[:, 0], into action and logp."""
        _sample(slot, ids, bound, self._cumulative, self._logp, self.offset, noise, action, logp)

    def _grow(self, rows: int) -> None:
        for name in ("_cumulative", "_logp"):
            old = getattr(self, name)
            new = np.empty((max(rows, 2 * len(old), 8), *old.shape[1:]), np.float32)
            new[: len(old)] = old
            setattr(self, name, new)


@kernel
def _sample(slot, ids, bound, cumulative, table, offset, noise, action, logp):  # type: ignore[no-untyped-def]
    for i in range(len(slot)):
        k = bound[slot[i]]
        s = ids[i] - offset
        u = noise[i, 0]
        a = 0
        while u >= cumulative[k, s, a]:
            a += 1
        action[i] = a
        logp[i] = table[k, s, a]


_UNKNOWN, _TABLE, _GROUP = -1, 0, 1
LARGE = 16_384
"""With more information states than this, a learner's weights are evaluated on the rows that come: they are new in every request, and
tabulating them on all states would take longer than playing it."""

_LOOK = -2  # not looked up since slots were bound


class _Rows(NamedTuple):
    """Rows of one player that are evaluated together."""

    slot: NDArray[np.int32]
    observation: Array
    mask: NDArray[np.bool_] | None
    noise: NDArray[np.float32]


@dataclass(slots=True, eq=False)
class _Entry:
    ref: PolicyRef
    policy: Policy
    tabulate: bool
    group: object  # its `group_key`
    placement: Placement | None


class LocalBank:
    """`PolicyBank` over local copies, for `num_envs` environments of `spec`.

    On enumerated environments policies that `tabulate` are played from stacked tables; the others are evaluated, in stacks where their
    class offers `stack`.
    tabulate=False evaluates every policy on every row (for measurements, and for extras). device: where policies are asked to compute that
    are evaluated; what they remember stays there.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, *, tabulate: bool = True, device: DeviceChoice = CPU) -> None:
        self.refs: Sequence[PolicyRef] = ()
        self.recurrent = False
        self._spec = spec
        self._device = device
        self._tabulate = tabulate and spec.enumeration is not None
        self._bindings = PolicyBindings(spec, num_envs)
        self._bound = self._bindings.bound
        slots = [len(bound) for bound in self._bound]
        self._most = max(slots)  # rows at a time
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]
        self._action = [np.empty(n, np.int32) for n in slots]
        self._logp = [np.empty(n, np.float32) for n in slots]
        self._tables = (
            [StackedTables(spec.enumeration, p) for p in range(spec.num_players)]
            if spec.enumeration is not None
            else []
        )
        self._entries: list[_Entry | None] = []  # by row
        self._kind = np.zeros((len(slots), 0), np.int8)  # [P, rows]
        self._group_of = [np.zeros(0, np.int32) for _ in slots]  # [P][rows]: -1, from tables
        self._index_of = [np.zeros(0, np.int32) for _ in slots]  # [P][rows]: place within its group
        self._groups: list[list[Group]] = [[] for _ in slots]
        self._only_tables = [False] * len(slots)
        self._sole = [_LOOK] * len(slots)  # the row that all slots of a player are bound to, or -1
        self._plain: list[tuple[Group, int] | None] = [None] * len(slots)  # of its policy: group, and place in it
        self._index = [np.empty(n, np.int32) for n in slots]
        self.noise_width = 1

    def load(self, policies: Sequence[tuple[PolicyRef, Policy]], *, extras: Sequence[str] = ()) -> None:
        """See `PolicyBank.load`. Policies whose attribute `extras` names a wanted one are evaluated, not tabulated. Raises PolicyError if
        a ref comes twice or a policy lacks its mode."""
        for ref, policy in policies:
            require_mode(ref, policy.modes)
        self.refs = tuple(ref for ref, _ in policies)
        rows, fresh = self._bindings.load(self.refs)
        self._make_room(self._bindings.refs)
        for row, (ref, policy) in zip(rows, policies, strict=True):
            tabulate = self._tabulate and not set(getattr(policy, "extras", ())) & set(extras)
            if row in fresh:
                place = acting_placement(policy, self._device, self._most)
                self._entries[row] = _Entry(ref, policy, tabulate, group_key(policy, ref.mode), place)
                self._kind[:, row] = _UNKNOWN
            elif self._update(row, tabulate):
                self._kind[:, row] = _UNKNOWN
        entries = [e for e in self._entries if e is not None]
        self.recurrent = any(e.policy.memory_shape is not None for e in entries)
        self.noise_width = max((e.policy.noise_width for e in entries), default=1)
        for p in range(len(self._bound)):
            self._prepare(p, self._bindings.bound_rows(p))
            self._only_tables[p] = self._all_tables(p)
            self._regroup(p)
            self._sole[p] = _LOOK

    def release(self) -> None:
        """See `PolicyBank.release`."""
        self._bindings.release()
        for p in range(len(self._bound)):
            self._sole[p] = _LOOK

    def bind(
        self, player: int, slots: NDArray[np.int32], policy: NDArray[np.int32], *, keep_memory: bool = False
    ) -> None:
        """See `PolicyBank.bind`."""
        bound = self._bound[player]
        least, most, changed = groups.assign(bound, slots, policy, self._bindings.row_of, self._kind[player])
        if changed or least == _UNKNOWN:
            self._sole[player] = _LOOK
        if least == _UNKNOWN:
            if self._prepare(player, np.unique(bound[slots])):
                self._regroup(player)
            self._only_tables[player] = self._all_tables(player)
        elif len(slots) == len(bound):
            self._only_tables[player] = most == _TABLE
        elif most == _GROUP:
            self._only_tables[player] = False
        if not keep_memory:
            self._bindings.forget(player, slots)

    def memory(self, player: int, slots: NDArray[Any], policy: int) -> NDArray[np.float32] | None:
        """See `PolicyBank.memory`."""
        entry = self._entries[int(self._bindings.row_of[policy])]
        if entry is None or entry.policy.memory_shape is None:
            return None
        place = entry.placement
        device = None if place is None else place.torch
        return self._bindings.memory_for(player, entry.policy.memory_shape, device).recall(slots)

    def act(self, player: int, due: ActionRequests, noise: NDArray[np.float32]) -> PolicyOutput:
        """See `PolicyBank.act`."""
        self._bindings.begin(player, due)
        n = len(due.slot)
        if self._only_tables[player]:
            action, logp = self._action[player][:n], self._logp[player][:n]
            self._tables[player].sample(due.slot, due.observation, self._bound[player], noise, action=action, logp=logp)
            return PolicyOutput(action, logp)
        if self._sole[player] == _LOOK:
            self._look(player)
        if (plain := self._plain[player]) is not None:
            group, place = plain
            return group.act_alone(place, due.observation, due.mask, None, noise)
        if self._sole[player] >= 0:
            row = self._sole[player]
            number = int(self._group_of[player][row])
            if number >= 0:
                return self._evaluate(player, number, _Rows(due.slot, due.observation, due.mask, noise), None, row)
        index = self._index[player][:n]
        least, most = groups.families(
            due.slot, self._bound[player], self._group_of[player], self._index_of[player], index
        )
        if least == most:
            return self._evaluate(player, least, _Rows(due.slot, due.observation, due.mask, noise), index, 0)
        family = self._group_of[player][self._bound[player][due.slot]]
        parts = []
        for number in np.unique(family).tolist():
            picked = np.flatnonzero(family == number)
            mask = None if due.mask is None else due.mask[picked]
            rows = _Rows(due.slot[picked], due.observation[picked], mask, noise[picked])
            parts.append((picked, self._evaluate(player, number, rows, index[picked], 0)))
        return merge(parts, n)

    def _look(self, player: int) -> None:
        """Find out whether one policy plays all slots of a player, and whether it needs nothing but observations and masks."""
        row = self._sole[player] = int(groups.common(self._bound[player]))
        self._plain[player] = None
        number = int(self._group_of[player][row]) if row >= 0 else -1
        if number >= 0 and self._spec.enumeration is None:
            group = self._groups[player][number]
            if group.memory_shape is None and not group.team_size:
                self._plain[player] = group, int(self._index_of[player][row])

    # ------------------------------------------------------------------------------------------------ rows

    def _make_room(self, refs: Sequence[PolicyRef | None]) -> None:
        """Make a place for each row of the table; what was in free ones is released."""
        self._entries += [None] * (len(refs) - len(self._entries))
        for row, ref in enumerate(refs):
            if ref is None:
                self._entries[row] = None
        if len(refs) > self._kind.shape[1]:
            self._kind = np.pad(self._kind, ((0, 0), (0, len(refs) - self._kind.shape[1])), constant_values=_UNKNOWN)

    def _update(self, row: int, tabulate: bool) -> bool:
        entry = self._entries[row]
        assert entry is not None
        changed = entry.tabulate != tabulate
        entry.tabulate = tabulate
        return changed

    def _prepare(self, player: int, rows: NDArray[Any]) -> bool:
        """Find out which of these policies are played from tables for this player; whether any is new among the evaluated ones. With it
        come those of its population and group that nobody met yet, so that they are put together once, and not at each first meeting."""
        unknown = rows[self._kind[player, rows] == _UNKNOWN]
        if not len(unknown):
            return False
        for row in np.unique(unknown):
            entry = self._entries[row]
            assert entry is not None
            probs = None
            if self._spec.enumeration is not None and entry.tabulate and self._worth_a_table(player, entry.ref):
                probs = entry.policy.tabulate(self._spec.enumeration, player, mode=entry.ref.mode)
            if probs is not None:
                self._tables[player].set(int(row), probs, name=entry.ref.policy)
            self._kind[player, row] = _GROUP if probs is None else _TABLE
        populations = {self._population(int(row)) for row in unknown[self._kind[player, unknown] == _GROUP]}
        for row in np.flatnonzero(self._kind[player] == _UNKNOWN).tolist() if populations else ():
            entry = self._entries[row]
            tabulated = self._spec.enumeration is not None and entry is not None and entry.tabulate
            if entry is not None and not tabulated and self._population(row) in populations:
                self._kind[player, row] = _GROUP
        return bool(populations)

    def _population(self, row: int) -> tuple[int, object]:
        """Return which policies are put together: those of one population, class, configuration and mode."""
        entry = self._entries[row]
        assert entry is not None
        return entry.ref.population, entry.group

    def _worth_a_table(self, player: int, ref: PolicyRef) -> bool:
        """Return whether a table pays off: members (version 0) stay; other versions are a learner's."""
        return ref.version == 0 or len(self._tables[player]) <= LARGE

    def _all_tables(self, player: int) -> bool:
        return bool(self._tables) and bool((self._kind[player, self._bindings.bound_rows(player)] == _TABLE).all())

    def _regroup(self, player: int) -> None:
        """Put every policy that is evaluated for this player into the group of its class, configuration and mode."""
        members: dict[object, list[tuple[int, _Entry]]] = {}
        for row in np.flatnonzero(self._kind[player] == _GROUP).tolist():
            entry = self._entries[row]
            if entry is not None:
                members.setdefault(entry.group, []).append((row, entry))
        group_of = self._group_of[player] = np.full(len(self._entries), -1, np.int32)
        index_of = self._index_of[player] = np.zeros(len(self._entries), np.int32)
        groups: list[Group] = []
        for k, held in enumerate(members.values()):
            rows, first = [row for row, _ in held], held[0][1]
            group_of[rows] = k
            index_of[rows] = np.arange(len(rows))
            groups.append(Group([e.policy for _, e in held], first.ref.mode, first.placement))
        self._groups[player] = groups  # until now, those of before held weights that are on a device

    # ------------------------------------------------------------------------------------------------ evaluation

    def _evaluate(
        self, player: int, group: int, rows: _Rows, index: NDArray[np.int32] | None, row: int
    ) -> PolicyOutput:
        """Return the answer of a group (-1: the tables) for rows that are played by its policies `index`, or, None, all by the one in
        `row`."""
        if group < 0:
            n = len(rows.slot)
            action, logp = np.empty(n, np.int32), np.empty(n, np.float32)
            self._tables[player].sample(
                rows.slot, rows.observation, self._bound[player], rows.noise, action=action, logp=logp
            )
            return PolicyOutput(action, logp)
        chosen = self._groups[player][group]
        observation, mask = rows.observation, rows.mask
        if self._spec.enumeration is not None:
            observation, mask = decode(self._spec.enumeration, observation, mask, takes_ids=chosen.takes_ids)
        slot_memory = None
        if chosen.memory_shape is not None:
            slot_memory = self._bindings.memory_for(player, chosen.memory_shape, chosen.device)
        memory = None if slot_memory is None else slot_memory.take(rows.slot)
        teams = Teams.of(rows.slot, self._agents[player]) if chosen.team_size else None
        if index is None:
            act = chosen.act_alone(int(self._index_of[player][row]), observation, mask, memory, rows.noise, teams)
        else:
            act = chosen.act(observation, mask, memory, rows.noise, index=index, teams=teams)
        if slot_memory is not None:
            slot_memory.put(rows.slot, next_memory(act))
            return PolicyOutput(act.action, act.logp, None, act.extras)
        return act
