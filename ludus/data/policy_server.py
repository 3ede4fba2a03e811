"""Policy server: versioned weights, durable before they are announced. A passive store whose readers never wait."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np

from ludus.errors import DataError, nearest
from ludus.types import PolicyRef, Weights

Key: TypeAlias = tuple[int, str]
"""(population, policy)."""


class Durable(Protocol):
    """Writes weights where they outlive this process. `ref` has its version. When it raises, nothing is announced."""

    def __call__(self, ref: PolicyRef, weights: Weights) -> None: ...


def in_memory(ref: PolicyRef, weights: Weights) -> None:
    """A `Durable` that keeps nothing: for runs without a directory."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One version of a policy: `ref` with its version, read-only weights."""

    ref: PolicyRef
    weights: Weights


@dataclass(frozen=True, slots=True, eq=False)
class _Shelf:
    """What is announced of one policy; replaced as a whole, so that readers need no lock. versions: oldest first."""

    versions: tuple[Snapshot, ...]
    frozen: bool = False


class PolicyServer:
    """Keeps the newest `keep` versions of every policy; a frozen policy keeps its last one for good and takes no more."""

    def __init__(self, durable: Durable = in_memory, *, keep: int = 2) -> None:
        if keep < 1:
            raise DataError(f"keep is {keep}; a policy server keeps 1 version of each policy or more.")
        self._durable = durable
        self._keep = keep
        self._writing = threading.Lock()
        self._shelves: dict[Key, _Shelf] = {}

    def publish(self, ref: PolicyRef, weights: Weights) -> PolicyRef:
        """Write the weights, then announce them as `ref.version` (None: the next); the ref with its version.

        Publishing the same version again with the same weights (a retry) changes nothing. Raises DataError if the version is older
        than the newest, was published with other weights, or the policy is frozen; whatever `durable` raises, announcing nothing.
        """
        with self._writing:
            shelf = self._shelves.get(_key(ref))
            newest = shelf.versions[-1] if shelf else None
            version = _next(newest) if ref.version is None else ref.version
            ref = replace(ref, version=version)
            if newest is not None and version == newest.ref.version and _equal(newest.weights, weights):
                return newest.ref
            self._refuse(ref, shelf)
            snapshot = Snapshot(ref, _read_only(weights))
            self._durable(ref, snapshot.weights)
            earlier = shelf.versions if shelf else ()
            self._shelves[_key(ref)] = _Shelf((*earlier, snapshot)[-self._keep :])
        return ref

    def restore(self, ref: PolicyRef, weights: Weights, *, frozen: bool) -> None:
        """Announce what is durable already (read back from a run directory), without writing it again. Replaces what was there."""
        if ref.version is None:
            raise DataError(f"policy {ref.policy!r} is restored without a version; give the one that was published.")
        with self._writing:
            self._shelves[_key(ref)] = _Shelf((Snapshot(ref, _read_only(weights)),), frozen)

    def freeze(self, ref: PolicyRef) -> PolicyRef:
        """No more versions of this policy; the ref of its last one, which is the only one kept."""
        with self._writing:
            last = self._shelf(ref).versions[-1]
            self._shelves[_key(ref)] = _Shelf((last,), frozen=True)
        return last.ref

    def frozen(self, ref: PolicyRef) -> bool:
        """Whether the policy takes no more versions."""
        return self._shelf(ref).frozen

    def latest(self, ref: PolicyRef) -> PolicyRef:
        """`ref` (its mode kept) with the newest version of its policy."""
        return replace(ref, version=self._shelf(ref).versions[-1].ref.version)

    def get(self, ref: PolicyRef, *, unchanged_since: int | None = None) -> Snapshot | None:
        """Weights of `ref.version` (None: the newest); None if that is the version `unchanged_since`, which the caller has.

        Never waits. Raises DataError for an unknown policy (with the nearest) or a version that is not kept.
        """
        shelf = self._shelf(ref)
        for snapshot in reversed(shelf.versions):
            if ref.version is None or snapshot.ref.version == ref.version:
                if snapshot.ref.version == unchanged_since:
                    return None
                return Snapshot(replace(ref, version=snapshot.ref.version), snapshot.weights)
        held = [snapshot.ref.version for snapshot in shelf.versions]
        raise DataError(
            f"policy {ref.policy!r} of population {ref.population}: version {ref.version} is not kept (kept: {held}). Ask for one of "
            "these, for the newest (None), or raise `keep`."
        )

    def policies(self) -> tuple[PolicyRef, ...]:
        """The newest version of every policy, in order of (population, policy)."""
        return tuple(shelf.versions[-1].ref for _, shelf in sorted(self._shelves.copy().items()))

    def forget(self, ref: PolicyRef) -> None:
        """Drop a policy from memory (its durable copy stays). Raises DataError if it is unknown."""
        with self._writing:
            self._shelf(ref)
            del self._shelves[_key(ref)]

    def _shelf(self, ref: PolicyRef) -> _Shelf:
        shelf = self._shelves.get(_key(ref))
        if shelf is None:
            known = [policy for population, policy in list(self._shelves) if population == ref.population]
            raise DataError(
                f"population {ref.population} has no published policy {ref.policy!r}{nearest(ref.policy, known)}. Publish it first."
            )
        return shelf

    def _refuse(self, ref: PolicyRef, shelf: _Shelf | None) -> None:
        if shelf is None:
            return
        newest = shelf.versions[-1].ref.version
        if shelf.frozen:
            raise DataError(
                f"policy {ref.policy!r} is frozen at version {newest}; train a new policy instead of publishing to it."
            )
        assert ref.version is not None
        assert newest is not None
        if ref.version <= newest:
            raise DataError(
                f"policy {ref.policy!r}: version {ref.version} comes after version {newest}; versions only go up, and one version "
                f"has one set of weights. Publish {newest + 1} or more."
            )


def _key(ref: PolicyRef) -> Key:
    return ref.population, ref.policy


def _next(newest: Snapshot | None) -> int:
    if newest is None:
        return 0
    assert newest.ref.version is not None
    return newest.ref.version + 1


def _equal(ours: Weights, theirs: Weights) -> bool:
    """Bit for bit, so NaN equals itself."""
    return ours.keys() == theirs.keys() and all(
        a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
        for a, b in ((ours[name], np.asarray(theirs[name])) for name in ours)
    )


def _read_only(weights: Weights) -> Weights:
    """Copies that nobody can write to."""
    copies: dict[str, np.ndarray] = {}
    for name, array in weights.items():
        copies[name] = np.array(array, order="C")
        copies[name].flags.writeable = False
    frozen: Mapping[str, np.ndarray] = copies
    return frozen
