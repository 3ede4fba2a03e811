"""`mlagents/…` against a game that speaks Unity's interface: the contract, who is due, ends, teams, masks, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from refusals import Refusal, check_refusals
from unity import CHOOSING, ONE, PICKING, Acts, Counting, FakeUnity, Observed, Spec, install_unity

from ludus.core.errors import ConfigError, EnvError
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

ID = "mlagents/builds/Count"


def begun(**options: Any) -> tuple[Any, Any]:
    env = make_env(ID, num_envs=1, **options)
    return env, env.reset(np.array([2**33 + 5], np.uint64))


CASTS: dict[str, Any] = {
    "alone": {"Count?team=0": (ONE, [Counting(5)])},
    "unlike": {"Count?team=0": (ONE, [Counting(5, each=2), Counting(3, interrupted=True)])},
    "sides": {
        "A?team=0": (CHOOSING, [Counting(4), Counting(4)]),
        "A?team=1": (CHOOSING, [Counting(4), Counting(6)]),
    },
    "kinds": {"A?team=0": (PICKING, [Counting(4)]), "B?team=0": (Spec([Observed((1,))], Acts(0, (2,))), [Counting(7)])},
}


@pytest.mark.parametrize("name", CASTS)
def test_mlagents_satisfy_vector_env_contract(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    install_unity(monkeypatch, CASTS[name])
    check_env(lambda n: make_env(ID, num_envs=n), num_envs=2, steps=25, team="split")


def test_one_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts down from 3: paid its actions, and 0.5 of its group with each."""
    install_unity(monkeypatch, {"Count?team=0": (ONE, [Counting(3)])})
    env, timestep = begun(time_scale=5.0, parameters={"gravity": 3}, additional_args=["-quiet"])
    agent = env.spec.agents[0]
    assert (agent.name, agent.observation.shape, agent.action) == ("Count_0_0", (2,), Box(-1, 1, (1,), np.float32))
    assert env.spec.determinism == "none"
    assert timestep.due[0].observation.tolist() == [[3, 3]]
    assert timestep.due[0].reward.tolist() == [0]
    for action, seen, paid in ((0.25, 2, 0.75), (-9.0, 1, -0.5)):  # clipped to -1
        timestep = env.step((np.array([[action]], np.float32),))
        assert timestep.due[0].observation.tolist() == [[seen] * 2]
        np.testing.assert_allclose(timestep.due[0].reward, [paid])
    timestep = env.step((np.array([[1]], np.float32),))
    assert timestep.ended[0].observation.tolist() == [[0, 0]]
    assert timestep.ended[0].terminated.tolist() == [True]
    np.testing.assert_allclose(timestep.finished.returns, [[0.75 - 0.5 + 1.5]])
    assert timestep.due[0].observation.tolist() == [[3, 3]]  # the next episode
    unity = env.game(0)
    assert (unity.file_name, unity.resets) == ("builds/Count", 2)
    assert unity.options["seed"] > 0, "of its first episode, not of the start that saw what there is"
    assert unity.options["no_graphics"] is True
    assert unity.options["additional_args"] == ["-quiet"]
    assert [channel.said for channel in unity.options["side_channels"]] == [{"time_scale": 5.0}, {"gravity": 3.0}]
    env.close()
    assert unity.closed


def test_agents_that_ask_in_their_own_time_and_end_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agent 0 asks in every second step and counts from 5; agent 1 counts from 3 and is interrupted. Whoever takes the place of agent 1
    waits until agent 0 has ended, and is sent zeros."""
    install_unity(monkeypatch, CASTS["unlike"])
    env, timestep = begun()

    def step(*actions: float) -> Any:
        return env.step((np.array(actions, np.float32)[:, None],))

    assert timestep.due[0].slot.tolist() == [0, 1]
    timestep = step(0.5, 0.5)
    assert timestep.due[0].slot.tolist() == [1]
    timestep = step(0.5)
    assert timestep.due[0].slot.tolist() == [0, 1]
    np.testing.assert_allclose(timestep.due[0].reward, [1.0, 1.0])
    timestep = step(0.25, 0.5)  # agent 1 ends; agent 0 asks a step later, which is made at once
    assert timestep.ended[0].slot.tolist() == [1]
    assert timestep.ended[0].terminated.tolist() == [False]
    assert timestep.due[0].slot.tolist() == [0]
    assert timestep.due[0].observation.tolist() == [[1, 1]]
    assert env.game(0).sent[-1] == ("Count?team=0", [[0.0]])
    timestep = step(1.0)
    assert timestep.ended[0].slot.tolist() == [0]
    assert timestep.ended[0].terminated.tolist() == [True]
    assert timestep.finished.terminated.tolist() == [True]
    assert timestep.due[0].slot.tolist() == [0, 1]


def test_teams_masks_and_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    install_unity(monkeypatch, CASTS["sides"])
    env, timestep = begun()
    assert [(agent.name, agent.player) for agent in env.spec.agents] == [
        ("A_0_0", 0), ("A_0_1", 0), ("A_1_0", 1), ("A_1_1", 1)
    ]  # fmt: skip
    assert env.spec.agents[0].action == MultiDiscrete([2, 3])
    assert env.spec.agents[0].observation.shape == (3,)  # two sensors, side by side
    assert timestep.due[0].mask.all()
    timestep = env.step((np.array([[1, 2], [0, 1]]), np.array([[0, 0], [1, 1]])))
    assert env.game(0).sent[-2:] == [("A?team=0", [[1, 2], [0, 1]]), ("A?team=1", [[0, 0], [1, 1]])]
    assert timestep.due[1].mask.tolist() == [[True, False, True, True, False]] * 2  # the last of each, in an odd count
    with pytest.raises(EnvError, match="illegal action"):
        env.step((np.array([[1, 0], [0, 0]]), np.array([[0, 0], [0, 0]])))
    assert make_env(ID, num_envs=1, teams="one").spec.num_players == 1
    assert make_env(ID, num_envs=1, teams=None).spec.num_players == 4


def test_a_game_that_is_refused_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    install_unity(monkeypatch, CASTS["sides"])
    games: list[FakeUnity] = []
    start = FakeUnity.__init__

    def started(self: FakeUnity, *args: Any, **options: Any) -> None:
        start(self, *args, **options)
        games.append(self)

    monkeypatch.setattr(FakeUnity, "__init__", started)
    with pytest.raises(ConfigError, match="no player has"):
        make_env(ID, num_envs=1, teams={"a": ["A_0_0"]})
    assert [game.closed for game in games] == [True]


def test_unlike_agents_of_one_team(monkeypatch: pytest.MonkeyPatch) -> None:
    install_unity(monkeypatch, CASTS["kinds"])
    env, timestep = begun()
    assert [agent.action for agent in env.spec.agents] == [Discrete(3)] * 2
    assert timestep.due[0].mask.tolist() == [[True] * 3, [True, False, False]]  # 4 and 7 are left


def test_each_environment_is_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    install_unity(monkeypatch, CASTS["alone"])
    env = make_env(ID, num_envs=2)
    env.reset(np.array([2**33 + 5, 6], np.uint64))
    first, second = (env.game(e).options for e in range(2))  # type: ignore[attr-defined]
    assert first["base_port"] != second["base_port"]
    assert first["seed"] != second["seed"]
    assert all(0 < one["seed"] < 2**31 for one in (first, second))
    with pytest.raises(EnvError, match="opens a window"):
        env.render(0)  # type: ignore[attr-defined]


def silent() -> Any:
    return Spec([Observed((2,))], Acts(2, (2,)))


REFUSED: list[tuple[Any, Refusal]] = [
    ("alone", ("mlagents/nowhere", {}, EnvError, "cannot be started: FileNotFoundError: Couldn't launch")),
    ("alone", (ID, {"time_scal": 2}, ConfigError, "no option 'time_scal'; did you mean 'time_scale'")),
    ("alone", (ID, {"state": True}, ConfigError, "has no state")),
    ({"A?team=0": (silent(), [Counting(2)])}, (ID, {}, EnvError, "both continuous and discrete actions")),
    ({"A?team=0": (Spec([], Acts(2, ())), [Counting(2)])}, (ID, {}, EnvError, "observe nothing")),
    ({"A?team=0": (ONE, [])}, (ID, {}, EnvError, "no agent that asks for an action")),
]


def test_mlagents_reject_invalid_ids_and_options(monkeypatch: pytest.MonkeyPatch) -> None:
    for cast, refusal in REFUSED:
        install_unity(monkeypatch, CASTS[cast] if isinstance(cast, str) else cast)
        check_refusals(partial(make_env, num_envs=1), [refusal])


def test_more_agents_than_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    install_unity(monkeypatch, CASTS["alone"])
    env, _ = begun()
    env.game(0).mine["Count?team=0"][1].append(Counting(2))
    with pytest.raises(EnvError, match="has 2 agents of Count\\?team=0 after a reset; there were 1 after its first"):
        env.reset(np.array([1], np.uint64))


def test_builds_are_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    install_unity(monkeypatch, CASTS["alone"])
    assert list_envs("mlagents") == []


def test_another_protobuf(monkeypatch: pytest.MonkeyPatch) -> None:
    install_unity(monkeypatch, CASTS["alone"])

    class Old:
        def __getattr__(self, name: str) -> Any:
            raise TypeError("Descriptors cannot be created directly")

    monkeypatch.setitem(__import__("sys").modules, "mlagents_envs.environment", Old())
    with pytest.raises(
        ConfigError, match="cannot be imported with this protobuf: Descriptors cannot be created directly"
    ):
        make_env(ID, num_envs=1)
