"""A process of bots that is killed is replaced, and its bots know again what they knew."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import ludus
from ludus.core.errors import LudusError
from ludus.envs.config import Environment
from ludus.rollout.bot_players import BotRequests
from ludus.rollout.bot_process import _OpenEpisodes


def asked(slots: list[int], begins: list[bool], *, worker: str = "w", value: float = 0.0) -> BotRequests:
    n = len(slots)
    return BotRequests(
        worker,
        0,
        np.zeros(n, np.int32),
        np.array(slots, np.int32),
        np.array([5 if begin else -1 for begin in begins], np.int64),
        np.full((n, 2), value, np.float32),
        None,
        [None] * n,
    )


def test_rows_of_open_episodes_are_held() -> None:
    episodes = _OpenEpisodes()
    episodes.add(asked([0, 1], [True, True], value=1))
    episodes.add(asked([0, 1], [False, False], value=2))
    episodes.add(asked([0, 1], [True, False], value=3))
    batches = episodes.batches()
    assert batches is not None
    assert [(batch.slot.tolist(), batch.observation[:, 0].tolist()) for batch in batches] == [
        ([1], [1.0]),
        ([1], [2.0]),
        ([0, 1], [3.0, 3.0]),
    ]


def test_what_is_held_does_not_grow_with_the_number_of_episodes() -> None:
    episodes = _OpenEpisodes()
    episodes.add(asked([9], [True], worker="left open"))
    for k in range(2000):
        episodes.add(asked([0, 1], [k % 3 == 0, k % 5 == 0], value=k))
    batches = episodes.batches()
    assert batches is not None
    assert len(episodes._batches) <= 256
    rows = [
        (batch.worker, int(slot), float(value))
        for batch in batches
        for slot, value in zip(batch.slot, batch.observation[:, 0], strict=True)
    ]
    assert rows[0] == ("left open", 9, 0.0)
    assert sorted(rows[1:], key=lambda row: row[1:]) == [
        *(("w", 0, float(k)) for k in range(1998, 2000)),
        *(("w", 1, float(k)) for k in range(1995, 2000)),
    ]


def test_too_much_is_not_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.rollout.bot_process._BYTES", 100)
    episodes = _OpenEpisodes()
    episodes.add(asked([0], [True]))
    assert episodes.batches() is None


class Messages(ludus.NullObserver):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


def run(folder: Path, bot: str, observer: ludus.NullObserver | None = None, **options: object) -> ludus.Result:
    """Leduc poker against a bot that remembers: its episodes have several decisions."""
    return ludus.run(
        ludus.FixedOpponents(
            env={"id": "openspiel/leduc_poker", "num_envs": 8},
            algorithm={"kind": "ppo", "batch": 64, "epochs": 1, "hidden": [4]},
            response={"episodes": 200},
            generations=1,
            evaluation={"payoffs": "simulate", "episodes": 40},
            opponents=[bot],
            **options,
        ),
        run_dir=folder,
        observer=observer,
        report=False,
    )


@pytest.fixture(autouse=True)
def bots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.slow
def test_a_run_whose_bots_are_killed_is_the_run_without_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(tmp_path / "whole", "bots_that_die:Remembers")
    kills = tmp_path / "kills"
    kills.mkdir()
    for k in range(3):
        (kills / str(k)).touch()
    monkeypatch.setenv("BOT_KILLS", str(kills))
    messages = Messages()
    disturbed = run(tmp_path / "run", "bots_that_die:Remembers", messages)
    assert not list(kills.iterdir())
    for ours, theirs in zip(disturbed.payoffs.mean, whole.payoffs.mean, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    counts = [re.match(r"(\d+) processes of bots died, and were made again", text) for text in messages.texts]
    assert sum(int(count[1]) for count in counts if count) == 3


@pytest.mark.slow
def test_a_process_of_bots_that_always_dies_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(LudusError, match=r"the process in which the bots play was killed by SIGKILL while .*Always"):
        run(tmp_path / "run", "bots_that_die:Always", runtime={"restarts": 2})


@pytest.mark.slow
def test_bots_of_a_tournament_that_are_killed_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kills = tmp_path / "kills"
    kills.mkdir()
    for k in range(3):
        (kills / str(k)).touch()
    monkeypatch.setenv("BOT_KILLS", str(kills))
    entrants, options = ("bots_that_die:Remembers", "random"), ludus.TournamentOptions(episodes=40)
    report = ludus.play_tournament(
        entrants, tmp_path / "cup", env=Environment(id="openspiel/leduc_poker", num_envs=8), options=options
    )
    assert not list(kills.iterdir())
    assert len(report.results) == 1
