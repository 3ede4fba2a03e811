"""The policies that an inference server holds, and their answers to rows of many clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.machine import files_to_keep
from ludus.core.types import CPU, Array, DeviceChoice, PolicyOutput, PolicyRef
from ludus.policies.base import Policy, Teams, team_size_of
from ludus.rollout.base import RecentCache
from ludus.rollout.inference.groups import Group, acting_placement, group_key, merge, next_memory, require_mode
from ludus.runtime.base import Ref


class RequestRows(NamedTuple):
    """Rows of one player that are evaluated together: key, of their policy or int32[n]; observation [n, …], mask bool[n, A], memory
    float32[n, *shape], noise float32[n, width]; team int32[n, 2] of a `JointPolicy`, the columns of its `Teams`, in whole groups."""

    key: NDArray[np.int32] | int
    observation: Array
    mask: NDArray[np.bool_] | None
    memory: NDArray[np.float32] | None
    noise: NDArray[np.float32]
    team: NDArray[np.int32] | None = None


class CachedPolicy(NamedTuple):
    """A policy on the server, as its clients know it."""

    key: int
    noise_width: int
    memory_shape: tuple[int, ...] | None
    takes_ids: bool
    team_size: int = 0


class RemoteAct(NamedTuple):
    """As `PolicyOutput`, of what can be pickled."""

    action: Array
    logp: NDArray[np.float32]
    memory: Array | None
    extras: Mapping[str, Array]


class _Entry(NamedTuple):
    sent: Ref
    mode: str
    policy: Policy


class PolicyCache:
    """A policy has a key as long as some client holds it. Policies that none holds stay at hand while they fit into `kept` bytes."""

    def __init__(
        self, fetch: Callable[[Ref], Any], *, cache_bytes: int, device: DeviceChoice = CPU, max_batch: int = 4096
    ) -> None:
        """device: where policies are asked to compute, for up to max_batch rows at a time."""
        self.fetched = 0  # policies that were not at hand
        self._fetch = fetch
        self._recent: RecentCache[Policy] = RecentCache(cache_bytes, most=files_to_keep())
        self._entries: list[_Entry | None] = []  # by key
        self._holders: list[int] = []  # by key
        self._key_of: dict[tuple[Ref, str], int] = {}
        self._held: dict[str, frozenset[int]] = {}  # by client
        self._make = partial(Groups, device=device, rows=max_batch)
        self._groups = self._make([])
        self._stale = False  # whether `_groups` lack some of `_entries`: they could not be made the last time

    def load(self, client: str, keep: Sequence[int], wanted: Sequence[tuple[PolicyRef, Ref]]) -> list[CachedPolicy]:
        """Let a client hold what it `keep`s of what it held, and these. One thread at a time. Raises PolicyError for a policy without its
        mode."""
        entries = [self._find(ref, sent) for ref, sent in wanted]
        keys = []
        for entry in entries:
            key = self._key_of.get((entry.sent, entry.mode), -1)
            if key < 0:
                key, self._stale = self._place(entry), True
            keys.append(key)
        self._hold(client, frozenset((*keep, *keys)))
        self._recent.trim(len({sent for _, sent in wanted}))
        if self._stale:
            self._groups = self._make(self._entries)
            self._stale = False
        return [
            CachedPolicy(key, e.policy.noise_width, e.policy.memory_shape, e.policy.takes_ids, team_size_of(e.policy))
            for key, e in zip(keys, entries, strict=True)
        ]

    def holds(self, client: str, keys: Sequence[int]) -> bool:
        """Return whether a client holds all of these."""
        return self._held.get(client, frozenset()).issuperset(keys)

    def answer(self, requests: Sequence[tuple[Sequence[RequestRows], Sequence[str]]]) -> list[list[RemoteAct]]:
        """requests: (parts, names of the extras that are wanted). One thread at a time, which may be another than that of `load`."""
        groups = self._groups
        acts = groups.act([rows for parts, _ in requests for rows in parts])
        return [[_wanted(next(acts), extras) for _ in parts] for parts, extras in requests]

    def _find(self, ref: PolicyRef, sent: Ref) -> _Entry:
        policy = self._recent.find(sent)
        if policy is None:
            message = self._fetch(sent)
            policy = message.policy
            self._recent.keep(sent, policy, message.size)
            self.fetched += 1
        require_mode(ref, policy.modes)
        return _Entry(sent, ref.mode, policy)

    def _place(self, entry: _Entry) -> int:
        key = next((k for k, e in enumerate(self._entries) if e is None), len(self._entries))
        self._entries[key : key + 1] = [entry]
        self._holders[key : key + 1] = [0]
        self._key_of[entry.sent, entry.mode] = key
        return key

    def _hold(self, client: str, keys: frozenset[int]) -> None:
        before = self._held.get(client, frozenset())
        self._held[client] = keys
        for key in keys - before:
            self._holders[key] += 1
        for key in before - keys:
            self._holders[key] -= 1
            entry = self._entries[key]
            if not self._holders[key] and entry is not None:
                del self._key_of[entry.sent, entry.mode]
                self._entries[key] = None


class Groups:
    """Policies by key, those of one class, configuration and mode evaluated together, for whatever player and client."""

    def __init__(self, entries: Sequence[_Entry | None], *, device: DeviceChoice, rows: int) -> None:
        """device, rows: see `acting_placement`."""
        members: dict[object, list[int]] = {}
        for key, entry in enumerate(entries):
            if entry is not None:
                members.setdefault(group_key(entry.policy, entry.mode), []).append(key)
        self._group_of = np.full(len(entries), -1, np.int32)
        self._index_of = np.zeros(len(entries), np.int32)
        self._groups: list[Group] = []
        for number, keys in enumerate(members.values()):
            held = [entry for entry in (entries[key] for key in keys) if entry is not None]
            self._group_of[keys] = number
            self._index_of[keys] = np.arange(len(keys))
            place = acting_placement(held[0].policy, device, rows)
            self._groups.append(Group([entry.policy for entry in held], held[0].mode, place))

    def act(self, parts: Sequence[RequestRows]) -> Any:
        """An iterator over one `PolicyOutput` for each part."""
        pieces: dict[tuple[Any, ...], list[_Piece]] = {}
        for number, rows in enumerate(parts):
            for group, piece in self._pieces(number, rows):
                pieces.setdefault((group, *_layout(piece.rows)), []).append(piece)
        acts: list[list[tuple[NDArray[np.int64], PolicyOutput]]] = [[] for _ in parts]
        for (group, *_), together in pieces.items():
            for piece, act in zip(together, self._evaluate(group, [p.rows for p in together]), strict=True):
                acts[piece.part].append((piece.picked, act))
        return iter([merge(outputs, len(rows.noise)) for outputs, rows in zip(acts, parts, strict=True)])

    def _pieces(self, number: int, rows: RequestRows) -> list[tuple[int, _Piece]]:
        """Return the part's rows by group, with places within it for keys."""
        everyone = np.arange(len(rows.noise))
        if isinstance(rows.key, int):
            return [
                (
                    int(self._group_of[rows.key]),
                    _Piece(number, everyone, rows._replace(key=int(self._index_of[rows.key]))),
                )
            ]
        group, index = self._group_of[rows.key], self._index_of[rows.key]
        group_ids = np.unique(group).tolist()
        if len(group_ids) == 1:
            return [(group_ids[0], _Piece(number, everyone, rows._replace(key=index)))]
        out = []
        for g in group_ids:
            picked = np.flatnonzero(group == g)
            few = RequestRows(index[picked], *(None if column is None else column[picked] for column in rows[1:]))  # type: ignore[arg-type]
            out.append((g, _Piece(number, picked, few)))
        return out

    def _evaluate(self, group: int, together: Sequence[RequestRows]) -> list[PolicyOutput]:
        """Return one answer for each, from one call of the group."""
        chosen = self._groups[group]
        observation, mask, memory, noise = (joined([rows[k] for rows in together]) for k in range(1, 5))
        teams = _teams(together) if chosen.team_size else None
        keys = {rows.key if isinstance(rows.key, int) else -1 for rows in together}
        if len(keys) == 1 and -1 not in keys:
            act = chosen.act_alone(keys.pop(), observation, mask, memory, noise, teams)
        else:
            index = [np.full(len(r.noise), r.key, np.int32) if isinstance(r.key, int) else r.key for r in together]
            act = chosen.act(observation, mask, memory, noise, index=np.concatenate(index), teams=teams)
        if chosen.memory_shape is not None:
            next_memory(act)
        return _split(act, [len(rows.noise) for rows in together])


class _Piece(NamedTuple):
    part: int
    picked: NDArray[np.int64]
    rows: RequestRows


def _teams(together: Sequence[RequestRows]) -> Teams:
    parts = [rows.team for rows in together if rows.team is not None]
    return Teams.joined([Teams(part[:, 0], part[:, 1]) for part in parts])


def _layout(rows: RequestRows) -> tuple[Any, ...]:
    """Return a key: rows with the same one can be joined."""
    return tuple(None if column is None else (column.shape[1:], column.dtype.str) for column in rows[1:])


def joined(columns: Sequence[Any]) -> Any:
    """Return a copy of its own, since what arrived may be read-only."""
    return None if columns[0] is None else np.concatenate(columns)


def _split(act: PolicyOutput, sizes: Sequence[int]) -> list[PolicyOutput]:
    """Return copies: a policy may write its next answer where it wrote this one."""
    out, end = [], 0
    for size in sizes:
        begin, end = end, end + size
        memory = None if act.memory is None else act.memory[begin:end].copy()
        extras = {name: values[begin:end].copy() for name, values in act.extras.items()}
        out.append(PolicyOutput(act.action[begin:end].copy(), act.logp[begin:end].copy(), memory, extras))
    return out


def _wanted(act: PolicyOutput, names: Sequence[str]) -> RemoteAct:
    return RemoteAct(act.action, act.logp, act.memory, {name: act.extras[name] for name in names if name in act.extras})
