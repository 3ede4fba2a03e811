"""The benchmark of the vector form: rows, medians, bars, and its result file, with contestants that only move a clock."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks import gymnasium_env
from benchmarks.gymnasium_env import Play, Row, shimmy, vector


def test_medians_are_compared_and_judged(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = 0.0
    monkeypatch.setattr(time, "process_time", lambda: now)

    def clock(speed: float) -> Play:
        def play(amount: int) -> int:
            nonlocal now
            now += amount / speed
            return amount

        return play

    def rows(game: str) -> Sequence[Row]:
        fast = 5000 if game == "kuhn_poker" else 1500
        return (
            Row(f"Shimmy, {game}", lambda: clock(100), 100),
            *(Row(f"Ludus, {game}, {n}", lambda: clock(fast), 100) for n in (64, 1024)),
        )

    assert gymnasium_env.main(["--results", str(tmp_path), "--only", "kuhn_poker", "leduc_poker"], rows=rows) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[1].split() == ["Shimmy,", "kuhn_poker", "100", "1.0"]
    assert said[-2:] == [
        "bar kuhn_poker, 1024 environments: 50 x (wanted >= 20 x) met",
        "bar leduc_poker, 1024 environments: 15 x (wanted >= 20 x) short",
    ]
    stored = json.loads((tmp_path / "gymnasium_env.quick.json").read_text())
    assert [len(many) for many in stored["measured"].values()] == [5] * 6


def test_both_sides_play_decisions_of_one_player() -> None:
    assert shimmy("kuhn_poker")(10) == 10
    assert vector("kuhn_poker", 8)(3) == 24
