"""Inference by a server that many workers share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import RunError
from ludus.core.types import ActionRequests, Array, EnvSpec, PolicyOutput, PolicyRef
from ludus.policies.base import Teams
from ludus.rollout.inference.groups import PolicyBindings, SlotMemory, decode, merge
from ludus.rollout.inference.policy_cache import CachedPolicy, RemoteAct, RequestRows, joined
from ludus.runtime.base import Peer, Ref

INLINE = 90_000
"""Bytes of an argument that Ray sends with the call; more goes through its object store, which costs 2 to 3 ms whatever the size."""
SHARED = 6 * INLINE
"""From so many bytes on, the object store is faster than pieces that go with the call."""


class _Entry(NamedTuple):
    """held: as the server knows it."""

    ref: PolicyRef
    sent: Ref
    held: CachedPolicy


class _Family(NamedTuple):
    """Policies that want the same of rows. joint: they decide for whole teams."""

    memory_shape: tuple[int, ...] | None
    takes_ids: bool
    joint: bool


class _Piece(NamedTuple):
    """Rows of a player that go to the server in `parts` parts: picked, of its due rows (None: all). kept: the memory they belong to."""

    player: int
    picked: NDArray[np.int64] | None
    slot: NDArray[np.int32]
    memory: SlotMemory | None
    parts: int


class RemoteBank:
    """`PolicyBank` over an inference server, for `num_envs` environments of `spec`; `load` takes references to policy messages.

    Slots, recurrent memory and noise stay here, so that the server has no state but the policies. All rows of a step go in one request.
    client: a name that no other bank of the server has. server: its present incarnation, which whoever gives requests sets before `load`.
    """

    def __init__(self, spec: EnvSpec, num_envs: int, *, client: str) -> None:
        self.refs: Sequence[PolicyRef] = ()
        self.recurrent = False
        self.noise_width = 1
        self.server: Peer | None = None
        self._spec = spec
        self._client = client
        self._bindings = PolicyBindings(spec, num_envs)
        self._entries: list[_Entry | None] = []  # by row
        self._incarnation = ""
        self._key_of = np.zeros(0, np.int32)  # by row
        self._family_of = np.zeros(0, np.int32)  # by row
        self._families: list[_Family] = []
        self._agents = [len(spec.agents_of(p)) for p in range(spec.num_players)]

    def load(self, policies: Sequence[tuple[PolicyRef, Ref]], *, extras: Sequence[str] = ()) -> None:
        """See `PolicyBank.load`. Raises PolicyError if a ref comes twice or a policy lacks its mode, PartDied if the server died."""
        self.refs = tuple(ref for ref, _ in policies)
        rows, fresh = self._bindings.load(self.refs)
        policy_of = dict(zip(rows, policies, strict=True))
        known = {  # with this request's references: earlier ones may be gone with earlier requests
            row: entry._replace(sent=policy_of[row][1]) if row in policy_of else entry
            for row, entry in enumerate(self._entries)
            if entry is not None and row not in fresh and entry.ref == self._bindings.refs[row]
        }
        wanted = {row: pair for row, pair in policy_of.items() if row not in known}
        loaded = self._ask(
            "load", self._incarnation, [e.held.key for e in known.values()], list(wanted.values()), extras
        )
        if loaded is None:  # another incarnation, which holds nothing of this yet
            wanted |= {row: (entry.ref, entry.sent) for row, entry in known.items()}
            known = {}
            loaded = self._ask("load", "", [], list(wanted.values()), extras)
        self._incarnation = loaded.server
        loaded_entries = {
            row: _Entry(*pair, held) for (row, pair), held in zip(wanted.items(), loaded.held, strict=True)
        }
        self._enter({**known, **loaded_entries})

    def release(self) -> None:
        """See `PolicyBank.release`."""
        self._bindings.release()

    def bind(
        self, player: int, slots: NDArray[np.int32], policy: NDArray[np.int32], *, keep_memory: bool = False
    ) -> None:
        """See `PolicyBank.bind`."""
        self._bindings.bound[player][slots] = self._bindings.row_of[policy]
        if not keep_memory:
            self._bindings.forget(player, slots)

    def memory(self, player: int, slots: NDArray[Any], policy: int) -> NDArray[np.float32] | None:
        """See `PolicyBank.memory`."""
        entry = self._entries[int(self._bindings.row_of[policy])]
        if entry is None or entry.held.memory_shape is None:
            return None
        return self._bindings.memory_for(player, entry.held.memory_shape).recall(slots)

    def act(self, player: int, due: ActionRequests, noise: NDArray[np.float32]) -> PolicyOutput:
        """See `PolicyBank.act`. Raises PartDied if the server died."""
        (act,) = self.act_all([(player, due, noise)])
        return act

    def act_all(self, requests: Sequence[tuple[int, ActionRequests, NDArray[np.float32]]]) -> list[PolicyOutput]:
        """Return as `act`, for several players, in one request."""
        parts: list[RequestRows] = []
        pieces = [list(self._pieces(*request, parts)) for request in requests]
        answers = iter(self._ask("act", *parts))
        return [
            merge([(self._places(piece), self._take(piece, answers)) for piece in request_pieces], len(due.slot))
            for request_pieces, (_, due, _) in zip(pieces, requests, strict=True)
        ]

    # ------------------------------------------------------------------------------------------------ policies

    def _ask(self, method: str, *args: Any) -> Any:
        if self.server is None:
            raise RunError("a bank of shared inference was given no server; set `server` before a request.")
        return self.server.ask(method, self._client, *args)

    def _enter(self, entries: dict[int, _Entry]) -> None:
        """Enter these rows into the table."""
        size = len(self._bindings.refs)
        self._entries = [entries.get(row) for row in range(size)]
        self._key_of = np.full(size, -1, np.int32)
        self._family_of = np.full(size, -1, np.int32)
        self._families = []
        for row, entry in entries.items():
            held = entry.held
            family = _Family(held.memory_shape, held.takes_ids or self._spec.enumeration is None, held.team_size > 0)
            if family not in self._families:
                self._families.append(family)
            self._key_of[row] = entry.held.key
            self._family_of[row] = self._families.index(family)
        all_held = [entry.held for entry in entries.values()]
        self.recurrent = any(one.memory_shape is not None for one in all_held)
        self.noise_width = max((one.noise_width for one in all_held), default=1)

    # ------------------------------------------------------------------------------------------------ rows

    def _pieces(
        self, player: int, due: ActionRequests, noise: NDArray[np.float32], parts: list[RequestRows]
    ) -> Iterator[_Piece]:
        """Add to `parts` what goes to the server, by family."""
        self._bindings.begin(player, due)
        rows = self._bindings.bound[player][due.slot]
        families = self._family_of[rows]
        first = int(families[0])
        if (families == first).all():
            yield self._piece(player, first, rows, due, noise, None, parts)
            return
        for family in np.unique(families).tolist():
            yield self._piece(player, family, rows, due, noise, np.flatnonzero(families == family), parts)

    def _piece(
        self,
        player: int,
        family: int,
        rows: NDArray[np.int32],
        due: ActionRequests,
        noise: NDArray[np.float32],
        picked: NDArray[np.int64] | None,
        parts: list[RequestRows],
    ) -> _Piece:
        slot, observation, mask = due.slot, due.observation, due.mask
        if picked is not None:
            rows, slot, observation, noise = rows[picked], slot[picked], observation[picked], noise[picked]
            mask = None if mask is None else mask[picked]
        shape, takes_ids, joint = self._families[family]
        if self._spec.enumeration is not None:
            observation, mask = decode(self._spec.enumeration, observation, mask, takes_ids=takes_ids)
        slot_memory = None if shape is None else self._bindings.memory_for(player, shape)
        key = self._key_of[rows]
        whole = RequestRows(
            key=int(key[0]) if (key == key[0]).all() else key,
            observation=observation,
            mask=mask,
            memory=None if slot_memory is None else slot_memory.take(slot),
            noise=noise,
            team=np.stack(Teams.of(slot, self._agents[player]), axis=1) if joint else None,
        )
        before = len(parts)
        parts.extend(_cut(whole))
        return _Piece(player, picked, slot, slot_memory, len(parts) - before)

    @staticmethod
    def _places(piece: _Piece) -> NDArray[np.int64]:
        return np.arange(len(piece.slot)) if piece.picked is None else piece.picked

    @staticmethod
    def _take(piece: _Piece, answers: Iterator[RemoteAct]) -> PolicyOutput:
        """Return the answer to a piece, whose memory is kept."""
        acts = [next(answers) for _ in range(piece.parts)]
        action, logp, memory = (joined([answer[k] for answer in acts]) for k in range(3))
        if piece.memory is not None:
            piece.memory.put(piece.slot, memory)
        extras = {name: joined([answer.extras[name] for answer in acts]) for name in acts[0].extras}
        return PolicyOutput(action, logp, None, extras)


def _cut(rows: RequestRows) -> list[RequestRows]:
    """In pieces that go with the call, unless it is so much that the object store is faster."""
    columns: list[Array] = [column for column in rows if isinstance(column, np.ndarray)]
    size, n = sum(column.nbytes for column in columns), len(rows.noise)
    count = -(-size // INLINE)
    if count <= 1 or size >= SHARED or count > n:
        return [rows]
    ends = [k * n // count for k in range(count + 1)]
    if rows.team is not None:  # groups stay whole
        first = np.append(np.flatnonzero(np.diff(rows.team[:, 0], prepend=-1)), n)
        ends = np.unique(first[np.searchsorted(first, ends)]).tolist()
    return [RequestRows._make(_some(column, begin, end) for column in rows) for begin, end in pairwise(ends)]


def _some(column: Any, begin: int, end: int) -> Any:
    return column[begin:end] if isinstance(column, np.ndarray) else column
