"""`jumanji/…`: the contract, agents, what they see, ends, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from installed import require
from jax_games import check_form
from last_steps import check_last_step, first_end
from refusals import Refusal, check_refusals

from ludus.core.errors import ConfigError, UnknownName
from ludus.core.seeding import keys
from ludus.envs.registry import list_envs, make_env
from ludus.testing.env import check_env

require("jumanji", "Jumanji is installed with --no-deps, as docs/environments/jumanji.md says")
jax = pytest.importorskip("jax")

# The packages' own code is not up to date with JAX's types, which JAX says when it compiles it.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:scatter inputs"),
    pytest.mark.filterwarnings("ignore:Explicitly requested dtype"),
]

WAREHOUSE = "jumanji/RobotWarehouse-v0"
CONNECTOR: dict[str, Any] = {"generator": {"grid_size": 5, "num_agents": 2}, "teams": "one"}
ALONE = ("jumanji/Connector", "jumanji/MMST", "jumanji/Rubiks")
"""Played without neighbours: compiling them for another number of environments takes long."""


def test_agents_and_what_they_see() -> None:
    env = make_env("jumanji/Connector-v2", num_envs=1, **CONNECTOR)
    seen = env.reset(keys(1, "jumanji", count=1)).due[0].observation
    assert seen.shape == (2, 6, 5, 5)
    assert (
        seen[:, [1, 2, 4, 5]].sum(axis=(2, 3)).tolist() == [[1, 1, 1, 1]] * 2
    )  # heads and goals: own, then the other's
    np.testing.assert_array_equal(seen[0, :3], seen[1, 3:])
    assert env.spec.agents[0].action == spaces.Discrete(5)


def test_puzzles_and_options() -> None:
    env = make_env("jumanji/Minesweeper-v0", num_envs=2)
    assert env.spec.agents[0].action == spaces.Discrete(100)  # a row and a column
    timestep = env.reset(keys(1, "jumanji", count=2))
    timestep = env.step((np.array([37, 37]),))
    mask = timestep.due[0].mask
    assert mask is not None
    assert [row[37] for row, first in zip(mask, timestep.due[0].first, strict=True) if not first] == [False] * int(
        (~timestep.due[0].first).sum()
    )


REFUSED: list[Refusal] = [
    ("jumanji/RobotWarehouse-v9", {}, UnknownName, "did you mean 'RobotWarehouse-v0'"),
    (WAREHOUSE, {"time_limits": 3}, ConfigError, "did you mean 'time_limit'"),
    (WAREHOUSE, {"time_limit": 0}, ConfigError, "time_limit=0 was given; expected a number of steps from 1"),
    (WAREHOUSE, {"generator": {"num_agent": 3}}, ConfigError, "did you mean 'num_agents'"),
    (WAREHOUSE, {"generator": 3}, ConfigError, "expected a mapping"),
]


def test_jumanji_rejects_invalid_ids_and_options() -> None:
    check_refusals(partial(make_env, num_envs=1), REFUSED)
    assert "jumanji/Sokoban-v0" not in list_envs("jumanji")


def long(*values: object) -> object:
    """Compiled for five to ten seconds."""
    return pytest.param(*values, marks=pytest.mark.long)


LBF = {
    "generator": {"grid_size": 6, "num_agents": 3, "num_food": 1, "max_agent_level": 2, "force_coop": False, "fov": 6}
}


@pytest.mark.parametrize(
    ("id", "options"),
    [
        ("jumanji/Snake-v1", {"num_rows": 4, "num_cols": 4}),
        long("jumanji/LevelBasedForaging-v0", {**LBF, "teams": "one"}),
        long("jumanji/Maze-v0", {"generator": {"num_rows": 4, "num_cols": 4}}),
    ],
)
def test_true_end_in_the_last_permitted_step_terminates(id: str, options: dict[str, Any]) -> None:
    check_last_step(id, "time_limit", most=400, shorter=False, **options)  # each limit is compiled anew


def package() -> Any:
    from ludus.contrib.envs.jumanji import _package

    return _package()


def test_time_limit_of_pac_man() -> None:
    """Jumanji takes the option and has 1000 for it always. If the first line fails, it has changed, and Ludus's own limit may go."""
    assert package().make("PacMan-v1", time_limit=3, viewer=object()).time_limit == 1000
    assert first_end("jumanji/PacMan-v1", time_limit=3) == (3, False)


def test_jumanji_calls_its_limit_the_end() -> None:
    """Why Ludus looks at the limit itself. If this fails, Jumanji has changed, and `JumanjiEnv` may be simpler."""
    env = package().make("Maze-v0", time_limit=1, viewer=object())
    state, _ = jax.jit(env.reset)(jax.random.key(0))
    _, timestep = jax.jit(env.step)(state, 0)
    assert timestep.last()
    assert timestep.discount == 0


@pytest.mark.parametrize(
    ("id", "options"),
    [
        long(WAREHOUSE, {"time_limit": 10, "generator": {"num_agents": 2}}),
        ("jumanji/Connector-v2", CONNECTOR),
        long("jumanji/Cleaner-v0", {"time_limit": 10}),
        long(
            "jumanji/MMST-v0",  # who is connected is not due any more
            {
                "generator": {
                    "num_nodes": 12,
                    "num_edges": 18,
                    "max_degree": 5,
                    "num_agents": 2,
                    "num_nodes_per_agent": 3,
                }
            },
        ),
        ("jumanji/TSP-v1", {}),  # the same only in a vector of the same size
        ("jumanji/JobShop-v0", {}),  # several numbers, with masks
        long("jumanji/RubiksCube-partly-scrambled-v0", {}),  # and without
    ],
)
def test_jumanji_environments_satisfy_vector_env_contract(id: str, options: dict[str, Any]) -> None:
    num_envs = 1 if id.startswith(ALONE) else 2
    check_env(lambda n: make_env(id, num_envs=n, **options), num_envs=num_envs, steps=30)


@pytest.mark.long
def test_every_environment_has_the_form_that_it_announces(subtests: pytest.Subtests) -> None:
    """But one that calls JAX as it was before 0.10."""
    for id in sorted(set(list_envs("jumanji")) - {"jumanji/Tetris-v0"}):
        with subtests.test(id):
            check_form(make_env(id, num_envs=2))
