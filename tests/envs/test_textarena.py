"""`textarena/…` against a module that speaks TextArena's interface: the contract, texts, masks, invalid moves, and what is refused."""

from __future__ import annotations

import copy
import random
import re
from functools import partial
from typing import Any

import numpy as np
import pytest
import textarena_games
from refusals import Refusal, check_refusals

from ludus.core.errors import ConfigError, UnknownName
from ludus.envs.base import VectorEnv
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

LISTED = {"moves": ["[low]", "[high]", "[what]"]}


@pytest.fixture(autouse=True)
def objects(monkeypatch: pytest.MonkeyPatch) -> list[textarena_games.FakeGame]:
    return textarena_games.install(monkeypatch)


def begun(name: str, *, seed: int = 5, **options: Any) -> tuple[VectorEnv, Any]:
    env = make_env(f"textarena/{name}", num_envs=1, **options)
    return env, env.reset(np.array([seed], np.uint64))


def play(env: VectorEnv, timestep: Any, action: int) -> Any:
    return env.step(tuple(np.full(len(timestep.due[p].slot), action, np.int64) for p in range(2)))


def shown(timestep: Any, player: int) -> str:
    row = (
        timestep.due[player].observation[0] if len(timestep.due[player].slot) else timestep.ended[player].observation[0]
    )
    return bytes(row[row > 0]).decode()


@pytest.mark.parametrize(
    ("name", "options"), [("KuhnPoker-v0", {"rounds": 2}), ("IteratedPrisonersDilemma-v0", {}), ("Talk-v0", LISTED)]
)
def test_textarena_satisfies_vector_env_contract(name: str, options: dict[str, Any]) -> None:
    check_env(lambda n: make_env(f"textarena/{name}", num_envs=n, **options), num_envs=3, steps=20)


def test_texts_are_observations_and_read_by_agents() -> None:
    env, timestep = begun("Talk-v0", **LISTED)
    assert re.fullmatch(r"\[GAME\] You are Player 0, card \d\.\n", shown(timestep, 0))
    assert timestep.due[0].observation.shape == (1, 1024)
    timestep = play(env, timestep, 1)
    game: Any = env.game(0)  # type: ignore[attr-defined]
    assert shown(timestep, 1) == game.text(1)
    assert re.fullmatch(r"\[GAME\] You are Player 1, card \d\.\n\[Player 0\] \[high\]\n", game.text(1))
    assert game.move_names == copy.deepcopy(game).move_names == LISTED["moves"]
    assert copy.deepcopy(game).text(1) == game.text(1)
    timestep = play(env, timestep, 0)
    assert timestep.finished.returns.tolist() == [[1, -1]]
    assert timestep.ended[1].terminated.tolist() == [True]
    assert timestep.finished.statistics.tolist() == [[[0, 0], [0, 0]]]


def test_a_row_has_the_last_bytes() -> None:
    _, timestep = begun("Talk-v0", characters=8, **LISTED)
    assert re.fullmatch(r"card \d\.\n", shown(timestep, 0))


def test_masks_are_what_the_rules_permit() -> None:
    env, timestep = begun("KuhnPoker-v0")
    assert timestep.due[0].mask.tolist() == [[True, True, False, False]]
    assert env.spec.zero_sum


def test_invalid_moves_are_counted_and_end_the_game() -> None:
    env, timestep = begun("Talk-v0", **LISTED)
    timestep = play(env, timestep, 2)
    assert [len(timestep.due[p].slot) for p in range(2)] == [1, 0]  # the same player again
    assert shown(timestep, 0).endswith("[GAME] That was invalid.\n")
    timestep = play(env, timestep, 2)
    assert timestep.finished.returns.tolist() == [[-1, 1]]
    assert timestep.finished.statistics.tolist() == [[[2, 1], [0, 0]]]


def test_a_limit_of_moves_truncates() -> None:
    env, timestep = begun("Talk-v0", rounds=9, max_moves=3, **LISTED)
    for _ in range(3):
        timestep = play(env, timestep, 0)
    assert timestep.ended[0].terminated.tolist() == [False]
    assert timestep.finished.length.tolist() == [3]


def test_each_episode_is_a_new_object(objects: list[textarena_games.FakeGame]) -> None:
    random.seed(3)
    env, timestep = begun("Talk-v0", **LISTED)
    for _ in range(4):
        timestep = play(env, timestep, 0)
    assert len(objects) == 4  # one of them told the moves
    assert {game.resets for game in objects} == {1}
    assert random.random() == random.Random(3).random()


def test_a_dilemma_has_the_least_talk(objects: list[textarena_games.FakeGame]) -> None:
    begun("IteratedPrisonersDilemma-v0")
    begun("IteratedPrisonersDilemma-v0", communication_turns=2)
    assert [game.rounds for game in objects] == [1, 1, 2, 2]


def test_textarena_names_and_refusals() -> None:
    assert list_envs("textarena") == ["textarena/IteratedPrisonersDilemma-v0", "textarena/KuhnPoker-v0"]
    refused: list[Refusal] = [
        ("textarena/KuhnPoker-v1", {}, UnknownName, "KuhnPoker-v0"),
        ("textarena/Talk-v0", {}, ConfigError, "Give moves="),
        ("textarena/Talk-v0", {"moves": "[low]"}, ConfigError, "expected a list of texts"),
        ("textarena/KuhnPoker-v0", {"state": True}, ConfigError, "no state but its texts"),
        ("textarena/KuhnPoker-v0", {"stakes": 3}, ConfigError, "cannot be made with the options"),
        ("textarena/KuhnPoker-v0", {"max_moves": 0}, ConfigError, "max_moves=0 was given"),
    ]
    check_refusals(partial(make_env, num_envs=1), refused)


def test_text_of_a_board() -> None:
    env, _ = begun("KuhnPoker-v0")
    assert env.render(0) == "0 moves"  # type: ignore[attr-defined]
