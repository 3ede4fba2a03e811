"""Teams as EPyMARL takes them, and what stands in its processes' place."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from benchmarks.peers.epymarl.environments import Team
from benchmarks.peers.epymarl.run import Here, NoProcess

ID = "mpe2/simple_speaker_listener_v4"


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of environments' packages
def test_a_team_is_padded_summed_and_over_after_25_steps() -> None:
    """The speaker sees 3 numbers and says one of 3 words, the listener sees 11 and has 5 actions."""
    mpe2 = pytest.importorskip("mpe2.simple_speaker_listener_v4")
    plain = mpe2.parallel_env(max_cycles=25)
    seen, _ = plain.reset(seed=7)
    team = Team(ID, seed=7)
    assert team.get_env_info() == {
        "state_shape": 22, "obs_shape": 11, "n_actions": 5, "n_agents": 2, "episode_limit": 25,
    }  # fmt: skip
    assert team.get_avail_actions() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    np.testing.assert_array_equal(team.get_obs()[0], [*seen["speaker_0"], *[0] * 8])
    np.testing.assert_array_equal(team.get_state()[11:], seen["listener_0"])
    overs = []
    for step in range(25):
        seen, rewards, *_ = plain.step({"speaker_0": step % 3, "listener_0": step % 5})
        found, reward, over, truncated, info = team.step(np.array([step % 3, step % 5]))
        np.testing.assert_array_equal(found[1], seen["listener_0"])
        assert (reward, truncated, info) == (sum(rewards.values()), False, {})
        overs.append(over)
    assert overs == [False] * 24 + [True]
    team.reset()
    team.seed(7)
    team.reset()
    np.testing.assert_array_equal(team.get_state()[11:], plain.reset(seed=7)[0]["listener_0"])


def test_foragers_are_over_with_the_steps() -> None:
    pytest.importorskip("lbforaging")
    team = Team("lbf/Foraging-8x8-2p-2f-coop-v3", seed=0)
    assert (team.n_agents, team.episode_limit, team.get_env_info()["state_shape"]) == (2, 50, 24)
    overs = [team.step([0, 0])[2] for _ in range(50)]
    assert overs == [False] * 49 + [True]


def test_a_pipe_without_a_process_answers_as_its_worker_does() -> None:
    here = Here()
    seen = {"state": [3.0], "avail_actions": [[1]], "obs": [[2.0]]}
    done: list[object] = []
    env = SimpleNamespace(
        step=lambda actions: (done.append(actions), 0.5, False, True, {"a": 1}), reset=lambda: done.append("reset"),
        get_state=lambda: [3.0], get_avail_actions=lambda: [[1]], get_obs=lambda: [[2.0]], get_stats=lambda: {"s": 2},
    )  # fmt: skip
    NoProcess(target=None, args=(here, SimpleNamespace(x=lambda: env))).start()
    for message in (("reset", None), ("step", 4), ("get_stats", None)):
        here.send(message)
    assert here.recv() == seen
    assert here.recv() == {**seen, "reward": 0.5, "terminated": True, "info": {"a": 1}}
    assert here.recv() == {"s": 2}
    assert done == ["reset", 4]
