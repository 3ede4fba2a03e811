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
    """Numbers as columns over the k matches; the rest as lists."""
    k = len(matches)
    return {
        "id": [m.id for m in matches],
        "seats": [[pack_ref(seat) for seat in m.seats] for m in matches],
        "wins": [[list(won) for won in m.wins] for m in matches],
        "profile": np.array([m.profile for m in matches], dtype=np.int64).reshape(k, players),
        "n": np.array([m.n for m in matches], dtype=np.int64),
        "mean": np.array([m.mean for m in matches], dtype=np.float64).reshape(k, players),
        "m2": np.array([m.m2 for m in matches], dtype=np.float64).reshape(k, players),
        "exact": np.array([m.exact for m in matches], dtype=np.bool_),
    }


def unpack_matches(state: Mapping[str, Any]) -> list[Match]:
    """What `pack_matches` packed."""
    return [
        Match(
            id=name,
            profile=tuple(int(p) for p in state["profile"][i]),
            seats=tuple(unpack_ref(seat) for seat in state["seats"][i]),
            n=int(state["n"][i]),
            mean=state["mean"][i],
            m2=state["m2"][i],
            wins=tuple((int(w), int(d), int(lost)) for w, d, lost in state["wins"][i]),
            exact=bool(state["exact"][i]),
        )
        for i, name in enumerate(state["id"])
    ]
