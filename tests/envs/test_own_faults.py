"""Own environments that misbehave: one clear error with environment, seed and step, never a wrong trajectory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import Refusal, check_refusals

from ludus.core.errors import ConfigError, EnvError
from ludus.core.seeding import keys
from ludus.envs.base import VectorEnv
from ludus.envs.registry import make_env
from ludus.testing.env import check_env

SEEDS = keys(1, "faults", count=2)
WHERE = f"environment 0 of 2, seed {SEEDS[0]}, episode 0, step 2."


def make(name: str, **options: Any) -> VectorEnv:
    return make_env(f"own_faults:{name}", num_envs=2, **options)


def play(env: VectorEnv, steps: int = 4) -> Any:
    timestep = env.reset(SEEDS)
    for _ in range(steps):
        timestep = env.step(tuple(np.zeros(len(due.slot), np.int64) for due in timestep.due))
    return timestep


STEP = "returned 4 values from step; expected the tuple"
NUMBER = "expected a finite number"
ONE_NUMBER = "expected one finite number: with several objectives, wrap the environment so that it weighs them"


@pytest.mark.parametrize(
    ("name", "fault", "message"),
    [
        ("Alone", "old step", f"{STEP} (observation, reward, terminated, truncated, info)"),
        ("Alone", "no reward", f"gave agent 'agent' the reward None; {NUMBER}"),
        ("Alone", "rewards", f"gave agent 'agent' the reward [1. 1.]; {ONE_NUMBER}"),
        ("Alone", "text", f"gave agent 'agent' the reward 1; {NUMBER}"),
        ("Alone", "listed end", "returned terminated=[False] from step; expected true or false"),
        ("Alone", "nan", f"gave agent 'agent' the reward nan; {NUMBER}"),
        ("Alone", "blind", "gave agent 'agent' an observation that is not finite; expected numbers"),
        ("Alone", "blind end", "gave agent 'agent' an observation that is not finite; expected numbers"),
        ("Alone", "text end", "returned terminated='no' from step; expected true or false"),
        ("Alone", "no end", "returned truncated=None from step; expected true or false"),
        ("Alone", "late mask", "gave an action mask, and none after its first reset"),
        ("Alone", "info", "returned the info None from step; expected a mapping"),
        ("Alone", "large byte", "gave agent 'agent' an observation with numbers that are no uint8"),
        ("Alone", "broken byte", "gave agent 'agent' an observation with numbers that are no uint8"),
        ("Pair", "one reward", "gave the rewards 1.0 to 2 agents; expected a list with one for each"),
        ("Pair", "named rewards", "gave the rewards {0: 1.0, 1: 2.0} to 2 agents"),
        ("Pair", "no rewards", f"gave agent 'agent_0' the reward None; {NUMBER}"),
        ("Pair", "vectors", f"gave agent 'agent_0' the reward array([0., 0.]); {ONE_NUMBER}"),
        ("Crowd", "vectors", f"gave agent 'worker_0' the reward array([0., 1.]); {ONE_NUMBER}"),
        ("Line", "vectors", f"gave agent 'scout_0' the reward array([0., 0.]); {ONE_NUMBER}"),
        ("Pair", "one ends", "returned terminated=[True, False] from step; expected one end for all agents"),
        ("Pair", "three", "returned 3 values from step; expected the tuple"),
        ("Crowd", "old step", f"{STEP} (observations, rewards, terminations, truncations, infos)"),
        ("Crowd", "no infos", "returned the infos None from step; expected a mapping"),
        ("Crowd", "one end", "returned the terminations False from step; expected a mapping"),
        ("Crowd", "no reward", f"gave agent 'worker_0' the reward None; {NUMBER}"),
        ("Crowd", "unpaid", "gave no reward for the agent 'worker_0', which acted"),
        ("Crowd", "text end", "gave the agent 'worker_0' 'no' in its terminations; expected true or false"),
        ("Crowd", "listed end", "gave the agent 'worker_0' [True] in its truncations; expected true or false"),
        ("Line", "unpaid", "gave no reward for the agent 'scout_1', which acted"),
        ("Line", "text end", "gave the agent 'scout_0' 'no' in its terminations; expected true or false"),
        ("Crowd", "no mask", "gave agent 'worker_0' an observation with ['observation']; expected action_mask and obs"),
        ("Line", "no reward", f"gave agent 'scout_0' the reward None; {NUMBER}"),
        ("Line", "swap", "removed the agent 'scout_1', which was neither terminated nor truncated"),
        ("Line", "stranger", "named the agent 'scout_7', which is not among its possible_agents"),
    ],
)
def test_a_wrong_step(name: str, fault: str, message: str) -> None:
    with pytest.raises(EnvError) as caught:
        play(make(name, fault=fault))
    assert str(caught.value).startswith(f"own_faults:{name} {message}")
    assert str(caught.value).endswith(WHERE)


ACTIONS = {  # kind of space -> what it is given for the second environment, what is said
    "several, beyond": ([[2, 3], [1, 4]], "chose the illegal action [1 4] in row 1; legal: MultiDiscrete([3 4])"),
    "several, below": ([[2, 3], [-1, 0]], "chose the illegal action [-1  0] in row 1; legal: MultiDiscrete([3 4])"),
    "several, halves": ([[0, 0], [0.5, 0]], "was given actions of dtype float64; its action space is MultiDiscrete"),
    "bits, beyond": ([[0, 1], [2, 0]], "chose the illegal action [2 0] in row 1; legal: MultiBinary(2)"),
    "box, no number": ([[0, 0], [np.nan, 0]], "chose the illegal action [nan  0.] in row 1; legal: finite numbers"),
    "one, beyond": ([0, 2], "chose the illegal action 2 in row 1; legal: 0 to 1"),
    "one, text": (["0", "1"], "was given actions of dtype <U1; its action space is Discrete(2)"),
}


@pytest.mark.parametrize("case", ACTIONS)
def test_actions_that_are_none(case: str) -> None:
    given, message = ACTIONS[case]
    env = make("Acting", kind=case.partition(",")[0])
    env.reset(SEEDS)
    with pytest.raises(EnvError) as caught:
        env.step((np.array(given),))
    assert str(caught.value).startswith(f"player 0 of own_faults:Acting {message}")


def test_actions_beyond_the_bounds_of_a_box_are_passed_on() -> None:
    env = make("Acting", kind="box")
    env.reset(SEEDS)
    assert env.step((np.array([[0, 1], [7, -2]], np.float32),)).due[0].reward.tolist() == [1, 5]


def test_a_state_that_is_no_number() -> None:
    with pytest.raises(EnvError, match="gave a state that is not finite") as caught:
        play(make("Crowd", state=True))
    assert str(caught.value).endswith(WHERE)


def test_who_goes_while_another_comes() -> None:
    """Both are noticed, though there are as many agents as before."""
    timestep = play(make("Swap"), 2)
    assert [due.slot.tolist() for due in timestep.due] == [[0, 1], [], [0, 1]]
    assert [ended.slot.tolist() for ended in timestep.ended] == [[], [0, 1], []]
    assert timestep.due[2].first.all()
    check_env(lambda n: make_env("own_faults:Swap", num_envs=n), num_envs=2, steps=12, early_rewards=True)
    with pytest.raises(EnvError, match="removed the agent 'worker_1', which was neither terminated nor truncated"):
        play(make("Swap", honest=False), 2)


def test_rewards_of_last_alone_are_rejected() -> None:
    """PettingZoo's own test refuses it, too."""
    with pytest.raises(EnvError, match=r"paid the agent 'c' 5 by last\(\), and no agent by rewards; set") as caught:
        play(make("Rounds"), 6)
    assert str(caught.value).endswith("episode 0, step 6.")
    for options, total in (({"honest": True}, 10), ({"pays": 0}, 0)):
        timestep = play(make("Rounds", **options), 6)
        assert timestep.finished.returns.tolist() == [[total] * 3] * 2


def test_agents_that_agree_about_the_end() -> None:
    timestep = play(make("Pair", fault="agents' ends"))
    assert timestep.finished.length.tolist() == [4, 4]
    assert timestep.finished.returns.tolist() == [[4, 8], [4, 8]]


NOT_MADE: list[Refusal] = [
    ("Alone", {"fault": "old reset"}, EnvError, r"returned array.* from reset; expected the tuple \(observation,"),
    ("Alone", {"fault": "no info"}, EnvError, r"the info None from reset; expected a mapping, .* \(observation,"),
    ("Pair", {"fault": "old reset"}, EnvError, r"the info array.* from reset; expected .* \(observation, info\)"),
    ("Acting", {"kind": "tuple"}, EnvError, "of each agent, .* If it is one agent that acts, give it a MultiDisc"),
    ("Alone", {"fault": "space"}, EnvError, r"are in \(2,\), which is no Gymnasium space"),
    ("Crowd", {"fault": "old reset"}, EnvError, r"from reset; expected the tuple \(observations, infos\)"),
    ("Crowd", {"fault": "no space"}, EnvError, r"no spaces of its agent 'worker_1' \(KeyError"),
    ("Crowd", {"fault": "twins"}, EnvError, "expected a list of different names"),
    ("Large", {}, ConfigError, "missing a required argument: 'size'"),
    ("nothing", {}, EnvError, "made None, which is no environment"),
    ("a_class", {}, EnvError, "made <class 'own_faults.Alone'>, which is no environment"),
    ("Alnoe", {}, ConfigError, "module 'own_faults' has no 'Alnoe'; did you mean 'Alone'"),
]


def test_custom_environment_that_cannot_be_made_raises() -> None:
    check_refusals(make, NOT_MADE)


@pytest.mark.parametrize(
    ("id", "message"),
    [
        ("unclosed:Env", "importing 'unclosed' raised SyntaxError"),
        ("dividing:Env", "importing 'dividing' raised ZeroDivisionError: division by zero"),
        ("poor:Env", "No module named 'no_such_package'. 'poor' imports it; install it"),
        (
            "p00r:Env",
            "No module named 'p00r'. The working directory, {here}, is not on Python's path; PYTHONPATH=. adds it.",
        ),
        ("poorr:Env", "No module named 'poorr'; did you mean 'poor'?"),
        ("gymnasium.vectr:Env", "No module named 'gymnasium.vectr'; did you mean 'gymnasium.vector'?"),
        ("gymnasium.zzz:Env", "No module named 'gymnasium.zzz'. 'gymnasium' has no such module."),
        ("gymnasium/poorr:Own-v0", "No module named 'poorr'; did you mean 'poor'?"),
        ("gymnasium/poor:Own-v0", "needs no_such_package, which cannot be imported; `pip install no_such_package`"),
        ("poor.py:Env", "Name the module as Python imports it, poor:Env"),
    ],
)
def test_modules_that_cannot_be_imported(
    id: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (("unclosed", "x = ("), ("dividing", "1 / 0"), ("poor", "import no_such_package")):
        (tmp_path / f"{name}.py").write_text(text)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", ".")])
    with pytest.raises(ConfigError) as caught:
        make_env(id, num_envs=1)
    assert message.format(here=elsewhere.resolve()) in str(caught.value)


def test_the_working_directory_that_was_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    with pytest.raises(ConfigError) as caught:
        make_env("p00r:Env", num_envs=1)
    assert f"Python looked in the working directory, {tmp_path.resolve()}, and on its path" in str(caught.value)
