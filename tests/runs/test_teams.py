"""Players with several agents, through whole runs (invariant 2): PSRO, PPO and DQN on a game of two teams."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from numpy.typing import NDArray

import ludus
from ludus.core import seeding
from ludus.core.errors import EnvError, LudusError, ScenarioError
from ludus.core.types import ActionRequests, AgentSpec, Array, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.worker import RolloutWorker
from ludus.testing.env import check_env

TEAM, STEPS = 2, 2


class Votes:
    """Two teams of two agents, all at once, twice: each agent sees a coin of its own and scores for its team by repeating it.

    A team's reward is its score minus the other's, paid to each of its agents.
    """

    def __init__(self, num_envs: int) -> None:
        self.num_envs = num_envs
        space = Box(0.0, 1.0, (3,), np.float32)
        agents = tuple(AgentSpec(f"team_{p}_{k}", p, space, Discrete(2)) for p in (0, 1) for k in range(TEAM))
        most = float(TEAM * STEPS)
        self.spec = EnvSpec("votes", agents, ((-most, most),) * 2, ((0,), (1,)), zero_sum=True)

    def reset(self, seeds: NDArray[np.uint64], *, episodes: int | NDArray[np.int64] | None = None) -> Timestep:
        self._keys = np.asarray(seeds, np.uint64)
        self._left = np.broadcast_to(np.asarray(-1 if episodes is None else episodes, np.int64), self.num_envs).copy()
        self._episode, self._time = np.zeros(self.num_envs, np.int64), 0
        self._returns = np.zeros((self.num_envs, 2))
        self._reward = np.zeros((self.num_envs, 2))
        return self._timestep(np.empty(0, np.int64))

    def step(self, actions: tuple[Array, ...]) -> Timestep:
        playing = np.flatnonzero(self._left)
        coins = self._coins()[playing]
        given = np.stack([np.asarray(a).reshape(-1, TEAM) for a in actions], axis=1)
        if ((given < 0) | (given > 1)).any():
            raise EnvError("an action other than 0 and 1 was given.")
        score = (given == coins).sum(axis=2)
        self._reward[:] = 0
        self._reward[playing] = score - score[:, ::-1]
        self._returns[playing] += self._reward[playing]
        self._time += 1
        ended = playing if self._time % STEPS == 0 else playing[:0]
        self._episode[ended] += 1
        self._left[ended] -= 1
        return self._timestep(ended)

    def _coins(self) -> NDArray[np.int64]:
        """[E, players, agents] of the present step, from (seed, episode, step, agent) alone."""
        coins = np.empty((self.num_envs, 2 * TEAM), np.int64)
        for k in range(2 * TEAM):
            counter = (self._episode * STEPS + self._time % STEPS) * 2 * TEAM + k
            coins[:, k] = seeding.uniforms(self._keys, counter.astype(np.uint64)) < 0.5
        return coins.reshape(self.num_envs, 2, TEAM)

    def _slots(self, environments: NDArray[np.int64]) -> NDArray[np.int32]:
        return (environments[:, None] * TEAM + np.arange(TEAM)).ravel().astype(np.int32)

    def _timestep(self, ended: NDArray[np.int64]) -> Timestep:
        due, closed, first = [], [], self._time % STEPS == 0
        playing, coins = np.flatnonzero(self._left), self._coins()
        for p in (0, 1):
            n = TEAM * len(playing)
            agent = np.tile(np.eye(TEAM, dtype=np.float32), (len(playing), 1))
            seen = np.concatenate([coins[playing, p].reshape(-1, 1).astype(np.float32), agent], axis=1)
            reward = np.repeat(self._reward[playing, p] * (not first), TEAM).astype(np.float32)
            due.append(ActionRequests(self._slots(playing), seen, None, reward, np.full(n, first)))
            reward = np.repeat(self._reward[ended, p], TEAM).astype(np.float32)
            m = len(reward)
            closed.append(
                ClosedDecisions(self._slots(ended), reward, np.ones(m, np.bool_), np.zeros((m, 3), np.float32))
            )
        returns = self._returns[ended].copy()
        self._returns[ended] = 0
        k = len(ended)
        finished = FinishedEpisodes(ended.astype(np.int32), returns, np.ones(k, np.bool_), np.full(k, STEPS, np.int32))
        return Timestep(tuple(due), tuple(closed), finished)

    def snapshot(self) -> bytes | None:
        return None

    def restore(self, snapshot: bytes) -> Timestep:
        raise EnvError("this environment cannot be resumed inside an episode.")

    def close(self) -> None:
        return None


def test_the_game_keeps_the_contract() -> None:
    check_env(lambda num_envs: Votes(num_envs=num_envs))


REPLAY = {"rollout": 50, "hidden": [16], "batch": 64, "updates_per_decision": 0.1}
QMIX = {"kind": "qmix", "min_size": 200, "target_period": 50, "epsilon": {"start": 1.0, "end": 0.0}}
MADDPG = {"kind": "maddpg", "critic": "state", "normalise_rewards": "scale", "start_decisions": 200}
ORACLES = {
    "ppo": {"kind": "ppo", "batch": 100, "hidden": [16], "epochs": 8},
    "dqn": {
        "kind": "dqn",
        "min_size": 200,
        "rollout_unit": "episodes",
        "gamma": 1.0,
        "learning_rate": {"start": 0.01, "end": 0.0005},
        **REPLAY,
    },
    "qmix": {**QMIX, "learning_rate": 5e-3, **REPLAY},
    "maddpg": {**MADDPG, "rollout_unit": "episodes", "learning_rate": 5e-3, **REPLAY},
}


def scenario(algorithm: str, generations: int = 1, wrappers: list[dict[str, str]] | None = None) -> ludus.PSRO:
    return ludus.PSRO(
        env=ludus.Environment(id="test_teams:Votes", num_envs=25, wrappers=wrappers or []),
        algorithm=ORACLES[algorithm],
        generations=generations,
        response={"episodes": 800},
        evaluation=ludus.Evaluation(episodes=400),
    )


def repeats_its_coins(result: ludus.Result) -> bool:
    policy = result.policy(0)
    x = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]], np.float32)  # both coins, for each agent
    act = policy.act(x, None, None, np.zeros((4, policy.noise_width), np.float32), mode="greedy")
    return act.action.tolist() == [0, 1, 0, 1]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["qmix", "maddpg"])
def test_a_team_with_a_learner_of_teams_answers_a_population_of_teams(algorithm: str, tmp_path: Path) -> None:
    """By value decomposition and with central critics. Two teams who know how are even. Actors that climb alone stop, for six seeds of
    eight, where one of them repeats its coin and the other does not look, which wins by 1 instead of 2."""
    asked = scenario(algorithm, generations=2, wrappers=[{"kind": "joint_state"}])
    result = ludus.run(asked, run_dir=tmp_path, report=False)
    assert [len(members) for members in result.populations] == [3, 3]
    payoffs = result.payoffs.mean[0]
    if algorithm == "maddpg":
        assert (payoffs[0, 1:] < -0.5).all()
        assert (payoffs[1:, 0] > 0.5).all()
        return
    np.testing.assert_allclose(payoffs, np.array([[0, -2, -2], [2, 0, 0], [2, 0, 0]]), atol=0.5)
    assert repeats_its_coins(result)


@pytest.mark.parametrize("algorithm", ["dqn", "ppo"])
def test_one_policy_plays_a_whole_team(algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeating every coin is worth 4, and guessing 2: so a team that knows how wins by 2 against one that guesses."""
    seen: Counter[tuple[int, int]] = Counter()
    steps = RolloutWorker._steps

    def watching(worker: RolloutWorker, request: RolloutRequest) -> Iterator[Rollout | None]:
        for rollout in steps(worker, request):
            if rollout is not None and rollout.trajectories is not None:
                seen.update(zip(rollout.trajectories.seat.tolist(), rollout.trajectories.agent.tolist(), strict=True))
            yield rollout

    monkeypatch.setattr(RolloutWorker, "_steps", watching)
    result = ludus.run(scenario(algorithm), run_dir=tmp_path, report=False)
    assert seen == dict.fromkeys([(0, 0), (0, 1), (1, 2), (1, 3)], 800)  # one segment per agent and episode
    np.testing.assert_allclose(result.payoffs.mean[0], [[0, -2], [2, 0]], atol=0.4)
    assert [[record.ref.policy for record in members] for members in result.populations] == [
        ["0-0", "0-1"],
        ["1-0", "1-1"],
    ]
    assert repeats_its_coins(result)


def test_single_agent_features_reject_teams(tmp_path: Path) -> None:
    for algorithm in ("exact", "tabular_q"):
        with pytest.raises(LudusError, match="needs a game that is compiled to a tree"):
            ludus.run(
                scenario("ppo").model_copy(update={"algorithm": ludus.PSRO(env="e", algorithm=algorithm).algorithm}),
                run_dir=tmp_path / "no",
            )
    assert not (tmp_path / "no").exists()


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ("ppo", "PPO needs one space of actions and one shape of observations in all its seats"),
        ("vdn", "VDN learns for teams of one size"),
    ],
)
def test_seats_that_one_policy_cannot_serve_are_refused_before_anything_starts(algorithm: str, message: str) -> None:
    """Each player alone would do; they share a population, and differ in size or in what they see."""
    sizes, widths = ((2, 2), (3, 2)) if algorithm == "ppo" else ((2, 3), (3, 3))
    seen = [Box(0.0, 1.0, (width,), np.float32) for width in widths]
    agents = tuple(AgentSpec(f"{p}_{k}", p, seen[p], Discrete(2)) for p in (0, 1) for k in range(sizes[p]))
    spec = EnvSpec("unequal", agents, ((-1.0, 1.0),) * 2, ((0, 1),))
    options = {"meta_solver": "projected_replicator_dynamics", "generations": 1, "response": {"episodes": 9}}
    scenario = ludus.PSRO(env="openspiel/tic_tac_toe", algorithm=algorithm, **options)
    with pytest.raises(ScenarioError, match=message):
        scenario.check(spec)
    ludus.PSRO(env="openspiel/tic_tac_toe", algorithm=algorithm, **options, share="never").check(spec)
