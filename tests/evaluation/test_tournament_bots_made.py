"""Bots of a user's own are made in a process that can be ended, like the one in which they play."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from gymnasium.spaces import Discrete

from ludus.core.errors import ConfigError, LudusError, PartDied, PolicyError
from ludus.envs.options import Environment
from ludus.evaluation.tournament import process
from ludus.evaluation.tournament.run import Options, play_tournament
from ludus.evaluation.tournament.store import FILE
from ludus.policies.file import save_policy
from ludus.policies.specs import random_spec

KUHN = Environment(id="openspiel/kuhn_poker", num_envs=16)


@pytest.fixture(autouse=True)
def own_bots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path(__file__).parents[1] / "evaluation")])
    monkeypatch.setattr(process, "MAKING", 1.0)


def play(*entrants: str, to: Path, deadline: float = 30.0) -> int:
    return play_tournament(entrants, to, env=KUHN, options=Options(episodes=40, deadline=deadline)).episodes


@pytest.mark.parametrize(
    ("bot", "error", "words"),
    [
        ("NeverMade", PolicyError, "bot 'own_bots:NeverMade' was not made within 1 seconds and was ended; --deadline"),
        ("DiesMade", PartDied, "ended with exit code 3 while 'own_bots:DiesMade' was made"),
        ("LeavesMade", PolicyError, "bot 'own_bots:LeavesMade' could not be made: SystemExit: 4"),
        ("Nothing", PolicyError, r"bot 'own_bots:Nothing' has no methods restart\(player, seed\)"),
        ("Frist", ConfigError, "has no 'Frist'; did you mean 'First'"),
    ],
)
def test_a_bot_that_cannot_be_made_is_named(tmp_path: Path, bot: str, error: type[LudusError], words: str) -> None:
    begun = time.monotonic()
    with pytest.raises(error, match=words):
        play("bot:random", "own_bots:First", f"own_bots:{bot}", to=tmp_path, deadline=0.1)
    assert time.monotonic() - begun < 60
    assert not (tmp_path / FILE).exists()


def test_a_bot_that_is_never_made_where_it_plays_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="bot 'own_bots:NeverMadeToPlay' was not made within 1 seconds and was ended"):
        play("bot:random", "own_bots:NeverMadeToPlay", to=tmp_path, deadline=0.1)
    assert play("bot:random", "own_bots:First", to=tmp_path) == 80


def test_bots_are_never_made_in_the_users_process(tmp_path: Path) -> None:
    """Nor where policies play among themselves."""
    file = tmp_path / "chance.safetensors"
    save_policy(file, random_spec(Discrete(2)), {})
    assert play("bot:random", str(file), "own_bots:MadeElsewhere", to=tmp_path) == 240
