"""The weights of a run's policies on disk: `policies/<population>/<policy>.safetensors`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ludus.errors import PolicyError, RunError
from ludus.policies.file import load_policy, save_policy
from ludus.types import PolicyRef, PolicySpec, Weights


class PolicyFiles:
    """Implements `WeightsStore`. Files are written aside and renamed at once, and made durable together by `sync`, which a barrier
    calls before the database names them; until then a kill may lose them, and the resumed run makes them again."""

    def __init__(self, run_dir: Path, digests: Mapping[PolicyRef, str] | None = None) -> None:
        """digests: SHA-256 per policy, as the database recorded them."""
        self.run_dir = run_dir
        self._digests = dict(digests or {})
        self._unsynced: list[Path] = []

    def put(self, ref: PolicyRef, spec: PolicySpec, weights: Weights) -> None:
        path = self.run_dir / self.file(ref)
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        self._digests[ref] = save_policy(path, spec, weights, sync=False)
        self._unsynced.append(path)

    def get(self, ref: PolicyRef) -> Weights:
        path = self.run_dir / self.file(ref)
        try:
            return load_policy(path, self._digests.get(ref)).weights()
        except PolicyError as error:
            raise RunError(f"{error} The run cannot go on without it; restore the file from a copy.") from error

    @staticmethod
    def file(ref: PolicyRef) -> str:
        """Relative to the run directory."""
        return os.path.join("policies", str(ref.population), f"{ref.policy}.safetensors")

    def locate(self, ref: PolicyRef) -> tuple[str, str]:
        """(file relative to the run directory, SHA-256) for the database."""
        return self.file(ref), self._digests[ref]

    def sync(self) -> None:
        """Make all files and folders written since the last call durable."""
        for path in [*self._unsynced, *sorted({path.parent for path in self._unsynced})]:
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        self._unsynced.clear()

    def remove_unknown(self) -> None:
        """Remove policy files that the database does not name: leftovers from after the last barrier."""
        known = {self.run_dir / self.file(ref) for ref in self._digests}
        for path in (self.run_dir / "policies").glob("*/*"):
            if path not in known:
                path.unlink()
