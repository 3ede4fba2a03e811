"""What stands in for runs in the processes of an experiment: made-up ones, which end as the changes of their run say."""

from __future__ import annotations

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "storage"))

import synthetic_run as synthetic

from ludus.apps.common.experiments import OVER
from ludus.storage.base import RunSummary
from ludus.storage.store import Store


class MadeUp:
    """`end=…`: done; killed, once; stillborn (killed once, before there is a run); broken (an error before there is a run); breaks (an
    error after a generation); waits (for a stop). `x=…`: NashConv is 2 + |x| after the first
    generation and |x| after the second. Of overrides: end=killed, end=over (it has reached what it stops by)."""

    def ready(self):
        pass

    def go(self, folder: str, text: str, changes: list[str], overrides: list[str], log: str, asking: int) -> str:
        given = dict(change.replace('"', "").split("=", 1) for change in changes)
        end, x = given.get("end", "done"), abs(float(given.get("x", "1")))
        if overrides:
            if overrides == ["end=killed"]:
                os.kill(os.getpid(), signal.SIGKILL)
            return f"{OVER}: it has ended" if overrides == ["end=over"] else ""
        if end == "broken":
            return "the environment is broken"
        path = Path(folder)
        if end == "stillborn" and not (before := path.with_suffix(".log")).exists():
            before.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        begun = path.exists()
        opened = Store.open(path) if begun else Store.create(path, synthetic.info(path))
        with opened as store:
            if not begun:
                self.generation(store, 1, 2 + x)
                if end == "killed":
                    os.kill(os.getpid(), signal.SIGKILL)
            if end == "breaks":
                return "the environment is broken"
            reason = "reached generations=2"
            if end == "waits":
                reason = self.asked(asking)
            if reason.startswith("reached"):
                self.generation(store, 2, x)
            complete = reason.startswith("reached")
            store.run_finished(RunSummary(path, 2, 2.0, 200, x, reason, complete=complete))
        return ""

    def generation(self, store: Store, number: int, nash_conv: float) -> None:
        record = synthetic.generation(number, (1, 1), nash_conv=nash_conv)
        store.generation_done(replace(record, episodes=100 * number, seconds=float(number)))
        store.commit(f"g{number}")

    def asked(self, asking: int) -> str:
        said = b""
        while part := os.read(asking, 100):
            said += part
        return said.decode()

    def close(self) -> None:
        """Nothing to give back."""
