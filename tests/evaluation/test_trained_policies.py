"""Trained policies in a program of one's own: `load_policy`, `predict`, `play`."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pyspiel
import pytest

import ludus
from ludus.core.errors import ConfigError, PolicyError
from ludus.evaluation.policies import NamedPlayers, SampledPolicy
from ludus.evaluation.trained import PlayState
from ludus.policies.base import Policy
from ludus.policies.file import save_policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import mlp_spec
from ludus.testing.fakes import CountingPolicy

KUHN = "openspiel/kuhn_poker"


@pytest.fixture(scope="module")
def kuhn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kuhn") / "run"
    ludus.run(ludus.PSRO(env=KUHN, algorithm="exact", generations=3), run_dir=folder, report=False)
    return folder


def tensor(*actions: int) -> list[float]:
    state = pyspiel.load_game("kuhn_poker").new_initial_state()
    for action in actions:
        state.apply_action(action)
    found: list[float] = state.information_state_tensor()
    return found


def test_tabular_policies_take_tensors_or_ids(kuhn: Path) -> None:
    """Against a bet a king (2) calls and a jack (0) folds."""
    second = ludus.load_policy(f"{kuhn}@1/1-1")
    assert (second.player, second.takes_ids) == (1, True)
    action, state = second.predict(tensor(1, 2, 1))
    assert (int(action), action.shape, state) == (1, (), None)
    assert second.predict(tensor(1, 0, 1))[0] == 0
    policy = ludus.load_policy(f"{kuhn}@0/0-1")
    env = ludus.Environment(id=KUHN).make(num_envs=1)
    assert env.spec.enumeration is not None
    ids = env.spec.enumeration.ids(0)
    batch = env.spec.enumeration.observation[ids.start : ids.stop]
    one, _ = policy.predict(np.arange(ids.start, ids.stop))
    two, _ = policy.predict(batch)
    assert one.tolist() == two.tolist()
    assert one.shape == (6,)
    table = policy.tabulate(env.spec.enumeration, 0, mode="greedy")
    assert table is not None
    assert table[np.arange(6), one].tolist() == [1.0] * 6
    with pytest.raises(PolicyError, match="an observation was given that player 0 of openspiel/kuhn_poker never sees"):
        policy.predict(tensor(2, 0, 1))


def test_wrong_questions_say_what_is_expected(kuhn: Path) -> None:
    second = ludus.load_policy(f"{kuhn}@1/1-1")
    mixed = ludus.load_policy(str(kuhn))
    _, state = mixed.predict([tensor(0, 1)] * 2)
    for ask, words in (
        (lambda: second.predict(0), "information state 0 was given; player 1 of openspiel/kuhn_poker has 6 to 11"),
        (lambda: second.predict(np.zeros((0, 11))), "which are none; expected at least one"),
        (lambda: mixed.predict([tensor(0, 1)] * 2, state=7), "state=7 was given; expected what the last call"),
        (
            lambda: mixed.predict([tensor(0, 1)] * 2, state=state, episode_start=[True] * 3),
            r"of shape \(3,\) was given with 2",
        ),
        (lambda: second.play(others=3), "others=3 was given; expected players with policies"),
        (lambda: second.play(others={7: second}), "others names 7, and openspiel/kuhn_poker has the players 0 to 1"),
        (lambda: second.play(seed=-1), "seed=-1 was given; expected a whole number from 0"),
        (lambda: ludus.load_policy(str(kuhn), seed="x"), "seed='x' was given; expected a whole number from 0"),
    ):
        with pytest.raises(PolicyError, match=words):
            ask()


def test_a_mixture_draws_when_an_episode_begins(kuhn: Path) -> None:
    mixed = ludus.load_policy(str(kuhn), seed=0)
    observations = [tensor(0, 1)] * 300
    _, state = mixed.predict(observations)
    assert isinstance(state, PlayState)
    assert len(set(state.member.tolist())) > 1
    _, after = mixed.predict(observations, state=state)
    assert after is not None
    assert after.member.tolist() == state.member.tolist()
    _, anew = mixed.predict(observations, state=state, episode_start=np.arange(300) < 150)
    assert anew is not None
    assert (anew.member[150:] == state.member[150:]).all()
    assert (anew.member[:150] != state.member[:150]).any()
    with pytest.raises(PolicyError, match=r"is a mixture of . policies; name one, or use predict and play"):
        _ = mixed.spec
    with pytest.raises(PolicyError, match="2 observations were given with the state of 300"):
        mixed.predict(observations[:2], state=state)


def test_games_are_played_by_everybodys_own(kuhn: Path) -> None:
    best = ludus.load_policy(f"{kuhn}@best")
    returns = best.play(seed=5)
    assert returns.shape == (2,)
    assert returns.sum() == 0
    assert [best.play(seed=k).tolist() for k in range(4)] == [best.play(KUHN, seed=k).tolist() for k in range(4)]
    alone = ludus.load_policy(f"{kuhn}@0/0-1")
    with pytest.raises(PolicyError, match=r"nobody plays player 1 of openspiel/kuhn_poker: give others=\{1: policy\}"):
        alone.play()
    assert alone.play(others={1: ludus.load_policy(f"{kuhn}@1/1-1")}).sum() == 0
    with pytest.raises(PolicyError, match="cannot play player 0 of openspiel/leduc_poker"):
        best.play("openspiel/leduc_poker")
    with pytest.raises(PolicyError, match="nobody was given for player 1; there is somebody for player 0"):
        alone.of(1)


def trained(policy: Policy, mode: str = "explore") -> ludus.TrainedPolicy:
    return ludus.TrainedPolicy([[SampledPolicy("own", policy, mode)]], seed=0)


def perceptron(bias: list[float]) -> Policy:
    """Two inputs; the logits are `bias` whatever it sees."""
    spec = mlp_spec(inputs=2, actions=len(bias), hidden=(), value="none")
    weights = {"head.weight": np.zeros((len(bias), 2), np.float32), "head.bias": np.array(bias, np.float32)}
    return build_policy(spec, weights)


def test_one_observation_or_a_batch_greedy_or_drawn() -> None:
    """Logits 0, ln 3 and 0: the middle action has probability 3/5."""
    policy = trained(perceptron([0.0, np.log(3.0), 0.0]))
    assert policy.predict([0.5, 0.5], deterministic=True) == (1, None)
    assert policy.predict(np.zeros((1, 2)), deterministic=True)[0].tolist() == [1]
    assert policy.predict(np.zeros((3, 2)), [True, False, True], deterministic=True)[0].tolist() == [0, 0, 0]
    drawn, _ = policy.predict(np.zeros((4000, 2)))
    assert np.bincount(drawn, minlength=3) / 4000 == pytest.approx([0.2, 0.6, 0.2], abs=0.03)
    assert set(trained(perceptron([0.0, 1.0]), "greedy").predict(np.zeros((100, 2)))[0].tolist()) == {1}, (
        "as it is played"
    )


@pytest.mark.parametrize(
    ("observation", "mask", "words"),
    [
        ([1.0, 2.0, 3.0], None, r"an observation of shape \(3,\) was given; expected \(2,\), or a batch \[n, 2\]"),
        ({"x": 1}, None, "a mapping was given; expected an array. gymnasium.spaces.flatten"),
        ([1.0, 2.0], [1, 0], r"mask of shape \(1, 2\) for 1 rows and 3 actions"),
    ],
)
def test_trained_policy_rejects_mismatched_inputs(observation: Any, mask: Any, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        trained(perceptron([0.0, 0.0, 0.0])).predict(observation, mask)


def test_a_memory_goes_from_call_to_call() -> None:
    """It acts by the number of its decision, modulo 2, until an episode begins anew."""
    policy, state, seen = trained(CountingPolicy()), None, []
    for _ in range(4):
        action, state = policy.predict(np.zeros((2, 1)), state=state)
        seen.append(action.tolist())
    assert seen == [[0, 0], [1, 1], [0, 0], [1, 1]]
    action, state = policy.predict(np.zeros((2, 1)), state=state, episode_start=[False, True])
    assert action.tolist() == [0, 0]
    action, _ = policy.predict(np.zeros((2, 1)), state=state)
    assert action.tolist() == [1, 1]
    assert policy.predict(np.zeros((2, 1)))[0].tolist() == [0, 0], "without a state an episode begins"


class Corridor(gymnasium.Env[Any, Any]):
    """Three steps; actions are 1 and 2, of which only the one that is not masked is allowed, and each pays its number."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2, start=1)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps = 0
        return self._answer()

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        seen, info = self._answer()
        return seen, float(action), self.steps == 3, False, info

    def _answer(self) -> tuple[Any, dict[str, Any]]:
        mask = np.array([self.steps != 1, True])  # at the second step only action 2
        return np.zeros(2, np.float32), {"action_mask": mask}


def test_episodes_of_gymnasium_by_hand() -> None:
    env = Corridor()
    assert trained(perceptron([1.0, 0.0])).play(env, deterministic=True) == 4.0, "1 + 2 + 1"
    assert trained(perceptron([0.0, 1.0])).play(Corridor, deterministic=True) == 6.0
    with pytest.raises(PolicyError, match="policy 'own' cannot play player 0 of object/Corridor"):
        trained(perceptron([0.0, 1.0, 2.0])).play(env)
    with pytest.raises(PolicyError, match=r"no environment was given, and a file does not say .* give play\(env\)"):
        trained(perceptron([0.0, 1.0])).play()
    env.reset()  # it is still open


def test_files(kuhn: Path, tmp_path: Path) -> None:
    policy = perceptron([0.0, 5.0])
    save_policy(tmp_path / "net.safetensors", policy.spec, policy.weights())
    loaded = ludus.load_policy(tmp_path / "net.safetensors", seed=0)
    assert loaded.predict([0.0, 0.0], deterministic=True)[0] == 1
    assert repr(loaded) == "<TrainedPolicy net, player 0>"
    inside = ludus.load_policy(kuhn / "policies/1/1-2.safetensors")
    assert inside.player == 1
    shutil.copy(kuhn / "policies/1/1-2.safetensors", tmp_path / "table.safetensors")
    with pytest.raises(
        PolicyError, match=r"plays by the ids of a compiled game, which its file does not have. Load it from"
    ):
        ludus.load_policy(tmp_path / "table.safetensors").predict(tensor(2, 0))
    with pytest.raises(ConfigError, match="'random' is no trained policy"):
        ludus.load_policy("random")


def test_profiles_that_nobody_named_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meta-strategies and newest policies are crossed where that is up to 64 profiles, as of six players; of seven it would be 128."""

    class Run:
        def __init__(self, players: int) -> None:
            self.population = range(players)
            self.members = [[SimpleNamespace(ref=p)] for p in range(players)]

        def name(self, ref: int) -> str:
            return f"{ref}/new"

    crossed, few = (NamedPlayers(Run(players), None).profiles([]) for players in (6, 7))  # type: ignore[arg-type]
    assert len(crossed) == 64
    assert len(few) == 9
    assert few[0] == ("@meta",) * 7
    assert few[1] == tuple(f"@{p}/new" for p in range(7))
    assert [sum(name != "@meta" for name in profile) for profile in few[2:]] == [1] * 7
