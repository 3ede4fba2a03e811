"""Matches, refs and specs as checkpoint state: arrays, and lists of JSON scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ludus.population.base import Lineage, PolicyRecord
from ludus.types import Match, PolicyRef, PolicySpec, State


def pack_ref(ref: PolicyRef) -> list[Any]:
    """[population, policy, version, mode]."""
    return [ref.population, ref.policy, ref.version, ref.mode]


def unpack_ref(packed: Sequence[Any]) -> PolicyRef:
    """What `pack_ref` packed."""
    return PolicyRef(*packed)


def pack_record(record: PolicyRecord) -> State:
    """Everything but its index, which its place in a list says."""
    lineage = record.lineage
    return {
        "ref": pack_ref(record.ref),
        "kind": record.spec.kind,
        "config": dict(record.spec.config),
        "task": lineage.task,
        "generation": lineage.generation,
        "parent": None if lineage.parent is None else pack_ref(lineage.parent),
        "start": lineage.start,
    }


def unpack_record(index: int, state: Mapping[str, Any]) -> PolicyRecord:
    """What `pack_record` packed."""
    parent = None if state["parent"] is None else unpack_ref(state["parent"])
    lineage = Lineage(state["task"], state["generation"], parent, state["start"])
    return PolicyRecord(unpack_ref(state["ref"]), index, PolicySpec(state["kind"], state["config"]), lineage)


def pack_matches(matches: Sequence[Match], players: int) -> State:
    """Columns over the k matches; wins are -1 where there are none."""
    k = len(matches)
    place: dict[PolicyRef, int] = {}  # of each policy that has played, among "refs"
    seats = [[place.setdefault(seat, len(place)) for seat in m.seats] for m in matches]
    nothing = ((-1, -1, -1),) * players
    return {
        "id": [m.id for m in matches],
        "refs": [pack_ref(ref) for ref in place],
        "seats": np.array(seats, dtype=np.int64).reshape(k, players),
        "wins": np.array([m.wins or nothing for m in matches], dtype=np.int64).reshape(k, players, 3),
        "profile": np.array([m.profile for m in matches], dtype=np.int64).reshape(k, players),
        "n": np.array([m.n for m in matches], dtype=np.int64),
        "mean": np.array([m.mean for m in matches], dtype=np.float64).reshape(k, players),
        "m2": np.array([m.m2 for m in matches], dtype=np.float64).reshape(k, players),
        "exact": np.array([m.exact for m in matches], dtype=np.bool_),
    }


def unpack_matches(state: Mapping[str, Any]) -> list[Match]:
    """What `pack_matches` packed."""
    refs = [unpack_ref(packed) for packed in state["refs"]]
    rows = zip(state["profile"].tolist(), state["seats"].tolist(), state["wins"].tolist(), strict=True)
    return [
        Match(
            id=name,
            profile=tuple(profile),
            seats=tuple(refs[seat] for seat in seats),
            n=int(state["n"][i]),
            mean=state["mean"][i],
            m2=state["m2"][i],
            wins=tuple((w, d, lost) for w, d, lost in wins) if wins[0][0] >= 0 else (),
            exact=bool(state["exact"][i]),
        )
        for i, (name, (profile, seats, wins)) in enumerate(zip(state["id"], rows, strict=True))
    ]
