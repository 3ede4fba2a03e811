"""Bots of a user's own are made, and play, in processes that can be ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from bots_here import BotsHere
from gymnasium.spaces import Discrete

from ludus.core.errors import LudusError, PartDied, PolicyError
from ludus.envs.config import Environment
from ludus.policies.file import save_policy
from ludus.policies.specs import random_spec
from ludus.rollout import bot_process
from ludus.tournament.run import Options, play_tournament
from ludus.tournament.tournament_report import TournamentReport
from ludus.tournament.tournament_store import FILE

KUHN = Environment(id="openspiel/kuhn_poker", num_envs=16)


def play(*entrants: str, to: Path, **options: float) -> TournamentReport:
    return play_tournament(entrants, to, env=KUHN, options=Options(**{"episodes": 40, **options}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bot", "error", "words"),
    [
        (
            "NeverMade",
            PolicyError,
            "bot 'own_bots:NeverMade' was not made within 0.4 seconds and was ended; --deadline",
        ),
        pytest.param(
            "DiesMade",
            PartDied,
            "ended with exit code 3 while 'own_bots:DiesMade' was made",
            marks=pytest.mark.slow,
        ),
        (
            "LeavesMade",
            PolicyError,
            r"could not be made: LeavesMade.__init__ raised SystemExit: 4 \(.*own_bots.py, line \d+\)",
        ),
    ],
)
def test_a_bot_that_cannot_be_made_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bot: str, error: type[LudusError], words: str
) -> None:
    monkeypatch.setattr(bot_process, "MAKING", 0.4)
    with pytest.raises(error, match=words):
        play("bot:random", "own_bots:First", f"own_bots:{bot}", to=tmp_path, deadline=0.1)
    assert not (tmp_path / FILE).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bot", "error", "words"),
    [
        ("Hangs", PolicyError, "bot 'own_bots:Hangs' did not answer within 0.2 seconds and was ended"),
        pytest.param(
            "Dies",
            PartDied,
            "ended with exit code 3 while 'own_bots:Dies' was asked",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_bot_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bot: str, error: type[LudusError], words: str
) -> None:
    monkeypatch.setattr("ludus.rollout.bot_process.BotProcess", BotsHere)  # they can be made
    with pytest.raises(error, match=words):
        play("bot:random", f"own_bots:{bot}", to=tmp_path, deadline=0.2 if bot == "Hangs" else 30.0)


@pytest.mark.slow
def test_bots_play_in_processes_and_are_made_nowhere_else(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """What they play is what they would play here. Policies that meet each other do not make them either."""
    file = tmp_path / "chance.safetensors"
    save_policy(file, random_spec(Discrete(2)), {})
    there = play("bot:random", str(file), "own_bots:Drawn", "own_bots:MadeElsewhere", to=tmp_path / "there")
    assert there.episodes == 6 * 80
    request.getfixturevalue("bots_here")
    (here,) = play("bot:random", "own_bots:Drawn", to=tmp_path / "here").results
    (same,) = [result for result in there.results if result.pairing == here.pairing]
    assert (same.n, same.mean.tolist()) == (here.n, here.mean.tolist())
    assert here.m2[0] > 0
