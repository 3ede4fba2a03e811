"""`lbf/…`: the contract, agreement with a plain loop, ends, and what is refused."""

from __future__ import annotations

import importlib
import re
import sys
import zlib
from functools import partial

import numpy as np
import pytest
from gymnasium import registry
from gymnasium.envs.registration import load_env_creator
from pairs import covering
from refusals import Refusal, check_refusals
from zoo_replay import paid_as_in_a_plain_loop

from ludus.core.errors import ConfigError, EnvError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

ID = "lbf/Foraging-5x5-2p-1f-v3"


@pytest.mark.parametrize("teams", [None, "one"])
def test_lbf_satisfies_vector_env_contract(teams: str | None) -> None:
    check_env(lambda n: make_env(ID, num_envs=n, teams=teams), num_envs=2, steps=120, team="split")


def test_a_plain_loop_is_paid_the_same() -> None:
    spec = registry["Foraging-8x8-3p-2f-v3"]
    make = partial(load_env_creator(spec.entry_point), **spec.kwargs)
    paid_as_in_a_plain_loop(make_env("lbf/Foraging-8x8-3p-2f-v3", num_envs=1), make, episodes=10)


def test_food_that_is_left_means_that_time_ran_out() -> None:
    """Random players collect the food of some episodes, and not of others."""
    env = make_env(ID, num_envs=8, teams="one", max_episode_steps=30)
    timestep = env.reset(keys(1, "food", count=8))
    rng = np.random.default_rng(0)
    ends = set()
    for _ in range(200):
        timestep = env.step((rng.integers(6, size=16),))
        for terminated, length, paid in zip(
            timestep.finished.terminated, timestep.finished.length, timestep.finished.returns[:, 0], strict=True
        ):
            ends.add(bool(terminated))
            assert terminated == (abs(paid - 1) < 1e-9)  # all of the food: 1 together
            assert terminated or length == 30
    assert ends == {False, True}


REFUSED: list[Refusal] = [
    ("lbf/Foraging-8x8-2p-9f-v3", {}, UnknownName, "did you mean 'Foraging-8x8-2p-"),
    ("lbf/CartPole-v1", {}, UnknownName, "unknown environment of level-based foraging"),
    (ID, {"sihgt": 2}, ConfigError, "no option 'sihgt'; did you mean 'sight'"),
    (ID, {"state": True}, ConfigError, "has no state"),
    (ID, {"min_player_level": 9}, EnvError, "cannot be made: AssertionError"),
]


def test_lbf_rejects_invalid_ids_and_options() -> None:
    check_refusals(partial(make_env, num_envs=1), REFUSED)


NAME = re.compile(r"lbf/Foraging(-2s)?-(\d+)x\d+-(\d+)p-(\d)f(-coop)?-v3")
"""Sight, size, players, food and cooperation."""


def test_lbf_lists_its_environments() -> None:
    choices = [NAME.fullmatch(id).groups("") for id in list_envs("lbf")]  # type: ignore[union-attr]
    assert [len(set(kind)) for kind in zip(*choices, strict=True)] == [2, 15, 8, 4, 2]
    assert len(choices) == 2 * 15 * 8 * 4 * 2


@pytest.mark.long
def test_any_two_choices_together_satisfy_vector_env_contract() -> None:
    ids = sorted(list_envs("lbf"), key=lambda id: zlib.crc32(id.encode()))  # a mixed order needs fewer
    for id in covering(ids, [NAME.fullmatch(id).groups("") for id in ids]):  # type: ignore[union-attr]
        check_env(lambda n, id=id: make_env(id, num_envs=n), num_envs=2, steps=6)  # type: ignore[misc]


def test_drawing_without_a_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(self: object, mode: str) -> None:
        raise OSError('Cannot connect to display "None".')

    env = make_env("lbf/Foraging-8x8-2p-3f-v3", num_envs=1)
    env.reset(keys(1, "draw", count=1))
    monkeypatch.setattr(type(env._envs[0]._env), "render", draw)  # type: ignore[attr-defined]
    with pytest.raises(EnvError) as caught:
        env.render(0)  # type: ignore[attr-defined]
    assert str(caught.value) == (
        'lbf/Foraging-8x8-2p-3f-v3 cannot be drawn: OSError: Cannot connect to display "None". '
        "Without a screen, run the command under `xvfb-run -a`, which starts a virtual one."
    )


def test_drawing_without_a_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "no_pyglet", None)

    def draw(self: object, mode: str) -> None:
        importlib.import_module("no_pyglet")

    env = make_env("lbf/Foraging-8x8-2p-3f-v3", num_envs=1)
    env.reset(keys(1, "draw", count=1))
    monkeypatch.setattr(type(env._envs[0]._env), "render", draw)  # type: ignore[attr-defined]
    with pytest.raises(
        ConfigError, match="drawing lbf/Foraging-8x8-2p-3f-v3 needs no_pyglet, which cannot be imported"
    ):
        env.render(0)  # type: ignore[attr-defined]
