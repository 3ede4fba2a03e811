"""The weights of a run's policies on disk: `policies/<population>/<policy>.safetensors`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ludus.core.errors import PolicyError, RunError
from ludus.core.files import sync
from ludus.core.types import PolicyRef, PolicySpec, Weights
from ludus.policies.file import load_policy, save_policy
from ludus.storage.store import sha256_of

_SYNCING = 8  # files flushed at once: file systems commit those together


class PolicyFiles:
    """Implements `WeightsStore`. Files are written aside and renamed at once, and made durable together by `sync`, which a barrier
    calls before the database names them; until then a kill may lose them, and the resumed run makes them again."""

    def __init__(self, run_dir: Path, known: Mapping[PolicyRef, tuple[str, str]] | None = None) -> None:
        """known: (file, SHA-256) per policy, as they were recorded."""
        self.run_dir = run_dir
        self._files = {ref: file for ref, (file, _) in (known or {}).items()}
        self._digests = dict((known or {}).values())
        self._unsynced: list[Path] = []

    def put(self, ref: PolicyRef, spec: PolicySpec, weights: Weights) -> None:
        path = self.run_dir / self.file(ref)
        if not path.parent.exists():
            path.parent.mkdir(parents=True)
        self._digests[self.file(ref)] = save_policy(path, spec, weights, sync=False)
        self._unsynced.append(path)

    def get(self, ref: PolicyRef) -> Weights:
        path = self.run_dir / self.file(ref)
        try:
            return load_policy(path, self._digests.get(self.file(ref))).weights()
        except PolicyError as error:
            raise RunError(f"{error} The run cannot go on without it; restore the file from a copy.") from error

    def check(self) -> None:
        """Raise RunError if a policy that the database names is missing or changed."""
        for file, sha256 in self._digests.items():
            digest = sha256_of(self.run_dir / file)
            if digest != sha256:
                what = "was changed or damaged" if digest else "is missing"
                raise RunError(
                    f"policy file {str(self.run_dir / file)!r} {what}. The run cannot go on without it; restore it from a copy."
                )

    def file(self, ref: PolicyRef) -> str:
        """Return the path relative to the run directory."""
        return self._files.get(ref) or os.path.join("policies", str(ref.population), f"{ref.policy}.safetensors")

    def locate(self, ref: PolicyRef) -> tuple[str, str]:
        """Return (file relative to the run directory, SHA-256) for the database."""
        return self.file(ref), self._digests[self.file(ref)]

    def sync(self) -> None:
        """Make all files and folders written since the last call durable."""
        if not self._unsynced:
            return
        folders = {path.parent for path in self._unsynced}
        with ThreadPoolExecutor(_SYNCING) as pool:
            list(pool.map(sync, self._unsynced))
        for folder in [*sorted(folders | {folder.parent for folder in folders}), self.run_dir]:
            sync(folder)
        self._unsynced.clear()

    def remove_unknown(self) -> None:
        """Remove policy files that the database does not name: leftovers from after the last barrier."""
        known = {self.run_dir / file for file in self._digests}
        for path in (self.run_dir / "policies").glob("*/*"):
            if path not in known and not path.is_dir():  # which no policy is
                path.unlink()
