"""Runs that begin in the same second, without names."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import pytest

import ludus
from ludus.runs import runner


class Frozen(datetime):
    @classmethod
    def now(cls, tz: object = None) -> Frozen:
        return cls(2026, 1, 2, 3, 4, 5)


def test_each_gets_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "datetime", Frozen)
    scenario = ludus.PSRO(env="openspiel/kuhn_poker", algorithm="exact", generations=1)
    found = [ludus.run(scenario, report=False).run_dir for _ in range(3)]
    assert [folder.name for folder in found] == [f"kuhn_poker-20260102-030405{end}" for end in ("", "-2", "-3")]
