"""Policy server: versioned weights, durable before they are announced. A passive store whose readers never wait."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from ludus.core.arrays import read_only, same_weights
from ludus.core.errors import DataError, nearest
from ludus.core.types import Weights


class Durable(Protocol):
    """Writes weights where they outlive this process. When it raises, nothing is announced."""

    def __call__(self, policy: str, version: int, weights: Weights) -> None: ...


def in_memory(policy: str, version: int, weights: Weights) -> None:
    """A `Durable` that keeps nothing: for runs without a directory, and policies that a checkpoint holds anyway."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One version of a policy; the weights are read-only."""

    version: int
    weights: Weights


@dataclass(frozen=True, slots=True, eq=False)
class _Versions:
    """What is announced of one policy; replaced as a whole, so that readers need no lock. snapshots: oldest first, never empty."""

    snapshots: tuple[Snapshot, ...]
    frozen: bool = False

    @property
    def newest(self) -> Snapshot:
        return self.snapshots[-1]


class PolicyServer:
    """Keeps the newest `keep` versions of every policy, by policy id; a frozen policy keeps its last one and takes no more."""

    def __init__(self, durable: Durable = in_memory, *, keep: int = 2) -> None:
        if keep < 1:
            raise DataError(f"keep is {keep}; a policy server keeps 1 version of each policy or more.")
        self._durable = durable
        self._keep = keep
        self._writing = threading.Lock()
        self._versions: dict[str, _Versions] = {}

    def publish(self, policy: str, weights: Weights, version: int) -> None:
        """Write copies of the weights, then announce them.

        Publishing the newest version again with the same weights (a retry) changes nothing. Raises DataError if the version is not
        above the newest otherwise, or the policy is frozen; whatever `durable` raises, and then announces nothing.
        """
        with self._writing:
            versions = self._versions.get(policy)
            earlier: tuple[Snapshot, ...] = ()
            if versions is not None:
                if versions.newest.version == version and same_weights(versions.newest.weights, weights):
                    return
                self._refuse(policy, version, versions)
                earlier = versions.snapshots
            snapshot = Snapshot(version, read_only(weights))
            self._durable(policy, version, snapshot.weights)
            self._versions[policy] = _Versions((*earlier, snapshot)[-self._keep :])

    def restore(self, policy: str, weights: Weights, version: int, *, frozen: bool = False) -> None:
        """Announce what is durable already (read back from a run directory), without writing it; replaces what was there."""
        snapshot = Snapshot(version, read_only(weights))
        with self._writing:
            self._versions[policy] = _Versions((snapshot,), frozen)

    def freeze(self, policy: str) -> int:
        """No more versions of this policy; the last one, which is the only one kept."""
        with self._writing:
            last = self._of(policy).newest
            self._versions[policy] = _Versions((last,), frozen=True)
        return last.version

    def forget(self, policy: str) -> None:
        """Drop a policy from memory; its durable copy stays."""
        with self._writing:
            self._of(policy)
            del self._versions[policy]

    def get(self, policy: str, version: int | None = None) -> Weights:
        """Weights of a version (None: the newest). Never waits.

        Raises DataError for an unknown policy (with the nearest) and for a version that is not kept.
        """
        versions = self._of(policy)
        for snapshot in reversed(versions.snapshots):
            if version is None or snapshot.version == version:
                return snapshot.weights
        held = [snapshot.version for snapshot in versions.snapshots]
        raise DataError(
            f"version {version} of policy {policy!r} is not kept (kept: {held}); ask for one of these, or for the newest with None."
        )

    def newest(self, policy: str, *, unchanged_since: int | None = None) -> Snapshot | None:
        """The newest version with its weights; None if it is still `unchanged_since`, which the caller has. Never waits."""
        snapshot = self._of(policy).newest
        return None if snapshot.version == unchanged_since else snapshot

    def latest(self, policy: str) -> int:
        """The newest version's number."""
        return self._of(policy).newest.version

    def frozen(self, policy: str) -> bool:
        """Whether the policy takes no more versions."""
        return self._of(policy).frozen

    def policies(self) -> tuple[str, ...]:
        """Every policy that has a version, sorted."""
        return tuple(sorted(self._versions.copy()))

    def _of(self, policy: str) -> _Versions:
        versions = self._versions.get(policy)
        if versions is None:
            raise DataError(
                f"no policy {policy!r} is published here{nearest(policy, self._versions.copy())} Publish it first."
            )
        return versions

    def _refuse(self, policy: str, version: int, versions: _Versions) -> None:
        newest = versions.newest.version
        if versions.frozen:
            raise DataError(
                f"policy {policy!r} is frozen at version {newest}; train a new policy instead of publishing to it."
            )
        if version <= newest:
            raise DataError(
                f"policy {policy!r}: version {version} comes after version {newest}. Versions only go up, and one version has one set "
                f"of weights: publish {newest + 1} or more."
            )
