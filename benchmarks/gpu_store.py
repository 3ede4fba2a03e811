"""The result files of `benchmarks.gpu`: one for each contestant, written anew after each repetition, so that a measurement can be stopped
at any moment and continued from there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contestants import Contestant, Repetition
from benchmarks.lines import versions
from benchmarks.machine import this_machine, today
from benchmarks.results import PACKAGES, dump, from_json, to_json


def file_name(contestant: Contestant) -> str:
    """The kind of a worker of ours, the module of a peer's, without an ending."""
    if contestant.peer is None:
        return contestant.arguments[1]
    return contestant.module.removeprefix("benchmarks.peers.").removesuffix(".run").replace(".", "_")


@dataclass(frozen=True, slots=True)
class Store:
    """Repetitions in a folder.

    Attributes:
        folder: Where they are.
        gpu: What it is called; "" without one.
        commit: Of the code that is measured now.
        again: Whether those of other commits are measured again.
    """

    folder: Path
    gpu: str = ""
    commit: str = "unknown"
    again: bool = False

    def read(self, contestant: Contestant) -> dict[str, Any]:
        """The contestant's file; empty if there is none."""
        path = self.folder / f"{file_name(contestant)}.json"
        return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}

    def repetitions(self, contestant: Contestant) -> list[Repetition]:
        """What is stored, whatever its commit, in the order in which it was measured."""
        return [from_json(stored) for stored in self.read(contestant).get("repetitions", ())]

    def counted(self, contestant: Contestant, seeds: Sequence[int], gpu: str) -> list[Repetition]:
        """What need not be measured again: on this GPU, and of this commit; of another one where all seeds are there and nobody wants them
        `again`."""
        document, found = self.read(contestant), self.repetitions(contestant)
        if not document or document["gpu"] != gpu:
            return []
        whole = not self.again and set(seeds) <= {each.seed for each in found}
        return found if whole or document["commit"] == self.commit else []

    def add(self, contestant: Contestant, repetition: Repetition, kept: Sequence[Repetition], gpu: str) -> None:
        """Write the contestant's file: what is `kept`, and one more."""
        document = {
            "contestant": contestant.name,
            "date": today(),
            "commit": self.commit,
            "machine": this_machine().as_json(),
            "gpu": gpu,
            "versions": versions(PACKAGES),
            "repetitions": [to_json(each) for each in (*kept, repetition)],
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{file_name(contestant)}.json"
        aside = path.with_suffix(".part")
        aside.write_text(dump(document), encoding="utf-8")
        aside.replace(path)
