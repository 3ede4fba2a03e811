"""Tells the user when Ray's shared memory is full and values go to disk."""

from __future__ import annotations

from collections.abc import Callable

from ludus.storage.base import GenerationRecord, NullObserver, Observer, RunSummary


class ObjectStoreSpillObserver(NullObserver):
    """Looks after every generation, and says so the first time and whenever twice as much has gone to disk."""

    def __init__(self, spilled: Callable[[], int], *, observer: Observer, event: Callable[[str, str], None]) -> None:
        """spilled: bytes so far. observer: is told. event: keeps (kind, text)."""
        self._spilled, self._observer, self._event = spilled, observer, event
        self._next = 1

    def generation_done(self, record: GenerationRecord) -> None:
        self._look()

    def run_finished(self, summary: RunSummary) -> None:
        self._look()

    def _look(self) -> None:
        count = self._spilled()
        if count < self._next:
            return
        self._next = 2 * count
        text = (
            f"the shared memory of Ray is full: {count / 1e6:,.0f} MB went to disk so far. Nothing is lost, and the run is slower. Have "
            "less in progress (runtime.tasks, runtime.in_flight, smaller batches), or give Ray more memory."
        )
        self._event("spilling", text)
        self._observer.message(text)
