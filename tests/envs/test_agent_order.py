"""Agents are told apart by their names, in whatever order each process lists them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import unsteady_games as games

from ludus.core.errors import EnvError
from ludus.envs.config import Environment
from ludus.envs.registry import make_env


def returns(env: object) -> np.ndarray:
    """float64[E, P] of one episode of each environment."""
    out = np.zeros((env.num_envs, env.spec.num_players))  # type: ignore[attr-defined]
    timestep = env.reset(np.arange(env.num_envs, dtype=np.uint64), episodes=1)  # type: ignore[attr-defined]
    while any(len(due.slot) for due in timestep.due):
        timestep = env.step(tuple(np.zeros(len(due.slot), np.int64) for due in timestep.due))  # type: ignore[attr-defined]
        out[timestep.finished.environment] = timestep.finished.returns
    return out


@pytest.mark.slow
def test_subprocesses_list_the_agents_as_the_first_one_does(tmp_path: Path) -> None:
    env = make_env("unsteady_games:Rotating", num_envs=4, workers=2, folder=str(tmp_path))
    try:
        paid = [games.STEPS * games.PAY[agent.name] for agent in env.spec.agents]
        assert sorted(paid) == pytest.approx([4.0, 40.0, 400.0])
        assert returns(env) == pytest.approx(np.array([paid] * 4))
    finally:
        env.close()
    assert len(list(tmp_path.iterdir())) == 2, "two processes have made it, each in its own order"


def test_an_environment_keeps_the_order_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the processes of a run: teams, too, are those of the first environment."""
    settings = Environment(id="unsteady_games:Paid", options={"teams": {"x": ["carol"], "y": ["bob", "alice"]}})
    first, game = settings.make_described(num_envs=1)
    assert [(agent.name, agent.player) for agent in first.spec.agents] == [("carol", 0), ("bob", 1), ("alice", 1)]
    monkeypatch.setattr(games, "NAMES", ["bob", "carol", "alice"])
    again = settings.of_game(game).make(num_envs=2)
    assert again.spec.agents == first.spec.agents
    assert returns(again) == pytest.approx(np.array([[400.0, 44.0]] * 2))
    alone = Environment(id="unsteady_games:Paid")
    _, game = alone.make_described(num_envs=1)
    monkeypatch.setattr(games, "NAMES", ["alice", "carol", "bob"])
    assert [agent.name for agent in alone.make(num_envs=1).spec.agents] == ["alice", "carol", "bob"]
    assert [agent.name for agent in alone.of_game(game).make(num_envs=1).spec.agents] == ["bob", "carol", "alice"]


@pytest.mark.slow
def test_other_names_in_a_subprocess_are_refused() -> None:
    with pytest.raises(
        EnvError, match=r"is another game in this subprocess than in the first one: its agents are agent \d+, bob"
    ):
        make_env("unsteady_games:ByProcess", num_envs=2, workers=2)


@pytest.mark.parametrize(
    ("names", "shape", "sentence"),
    [
        (["alice", "bob"], {}, "it has 2 players, and 3 in the run."),
        (["alice", "bob", "dave"], {}, "its agents are alice, bob, dave, and alice, bob, carol in the run."),
        (
            None,
            {"observation": 3},
            r"the observation space of agent 'alice' is Box\(\[3\], float32, 0 to 1\), and Box\(\[2\]",
        ),
        (None, {"actions": 4}, r"the action space of agent 'alice' is Discrete\(4\), and Discrete\(2\) in the run."),
    ],
)
def test_changed_game_is_rejected_with_the_difference(
    names: list[str] | None, shape: dict[str, int], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Environment(id="unsteady_games:Paid")
    _, game = settings.make_described(num_envs=1)
    monkeypatch.setattr(games, "NAMES", names or games.NAMES)
    monkeypatch.setattr(games, "SHAPE", {**games.SHAPE, **shape})
    with pytest.raises(EnvError, match=f"unsteady_games:Paid is another game than in the run: {sentence}"):
        settings.of_game(game).make(num_envs=1)


def test_an_order_that_nobody_can_put_right_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a vector of one's own, which lists its agents itself."""
    _, game = Environment(id="unsteady_games:Paid").make_described(num_envs=1)
    monkeypatch.setattr(games, "NAMES", ["carol", "bob", "alice"])
    with pytest.raises(EnvError, match=r"player 0 is carol, and alice in the run\."):
        game.require(make_env("unsteady_games:Paid", num_envs=1).spec)
