"""Time and memory in environments that restart a step later, or work at their own pace."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_streams import StreamEnv

from ludus.core.types import Mixture, PolicyRef
from ludus.rollout import worker as worker_module
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.testing.fakes import CountingPolicy, FixedPolicy

ME, A, B = PolicyRef(0, "me", 1), PolicyRef(1, "a"), PolicyRef(1, "b")
NEXT_STEP = ("ddde", "de", "dde")  # after its end, an environment lists nothing for a step
ASYNCHRONOUS = ("d..d.dE.", "dd.E", "..d..d..e")


def play(
    env: StreamEnv, amount: int, *, unit: str = "decisions", requests: int = 1, seconds: float | None = None
) -> list[Rollout]:
    worker = RolloutWorker(env, LocalBank(env.spec, env.num_envs))
    worker.bank.load([(ME, CountingPolicy()), (A, CountingPolicy()), (B, CountingPolicy())])
    others = Mixture.product({p: ([A, B], [0.5, 0.5]) for p in range(1, env.spec.num_players)})
    return [
        worker.run(RolloutRequest(ME, (0,), others, unit, amount, seed=k, carry_on=k > 0, seconds=seconds))
        for k in range(requests)
    ]


def times(rollouts: list[Rollout]) -> dict[int, list[int]]:
    """episode -> the times of its decisions, over all fragments."""
    out: dict[int, list[int]] = {}
    for rollout in rollouts:
        rows = rollout.trajectories
        for s in range(rows.num_segments):
            out.setdefault(int(rows.episode[s]), []).extend(rows.t[rows.start[s] : rows.start[s + 1]].tolist())
    return out


@pytest.mark.parametrize("streams", [NEXT_STEP, ASYNCHRONOUS])
def test_time_counts_the_steps_in_which_an_environment_has_something_due(streams):
    (got,) = play(StreamEnv(streams), 9, unit="episodes")
    rows = got.trajectories
    assert rows.t.tolist() == rows.observation[:, 1].tolist()  # what the environment itself calls the time
    lengths = zip(got.episodes.index.tolist(), got.episodes.length.tolist(), strict=True)
    assert {episode: len(t) for episode, t in times([got]).items()} == dict(lengths)
    assert got.counters["env_steps"] == rows.num_rows == got.episodes.length.sum()
    assert got.counters["decisions"] == rows.num_rows


def test_whole_episodes_that_are_cut_short():
    # Steps:          0 1 2 3   time is over in step 1
    # environment 0:  d d d e   episode 0 is played to its end
    # environment 1:  d e d e   episode 1 ended in time; 3 has begun only then
    (whole,) = play(StreamEnv(("ddde", "de")), 9, unit="episodes")
    (cut,) = play(StreamEnv(("ddde", "de")), 9, unit="episodes", seconds=0.0)
    assert cut.episodes.index.tolist() == [0, 1]
    assert times([cut]) == {0: [0, 1, 2], 1: [0]} == {k: times([whole])[k] for k in (0, 1)}
    assert cut.episodes.returns.tolist() == whole.episodes.returns[:2].tolist()
    assert (cut.counters["episodes"], cut.counters["learner_decisions"]) == (2, 4)
    (ample,) = play(StreamEnv(("ddde", "de")), 9, unit="episodes", seconds=1e9)
    assert times([ample]) == times([whole])


def test_fragments_that_are_cut_short_go_on():
    first, second = play(StreamEnv(("ddde", "de")), 100, requests=2, seconds=0.0)
    assert times([first]) == {0: [0], 1: [0]}, "each environment's first decision has its reward"
    assert times([first, second]) == {0: [0, 1], 1: [0]}


def test_literal_clock_of_next_step_restarts():
    # Steps:          0 1 2 3 | 4: the fifth decision has its reward
    # environment 0:  d d e d | d   episodes 0 and 2
    # environment 1:  d e d e | d   episodes 1, 3 and 5
    (got,) = play(StreamEnv(["dde", "de"]), 5)
    rows = got.trajectories
    assert times([got]) == {0: [0, 1], 1: [0], 2: [0], 3: [0]}
    assert dict(zip(rows.episode.tolist(), rows.tail.tolist(), strict=True)) == {0: 0, 1: 0, 2: 2, 3: 0}
    assert got.counters["env_steps"] == 5


@pytest.mark.parametrize("streams", [NEXT_STEP, ASYNCHRONOUS])
@pytest.mark.parametrize("amount", [1, 4, 50])
def test_the_clock_goes_on_in_the_next_fragment(streams, amount):
    rollouts = play(StreamEnv(streams), amount, requests=6)
    finished = {int(e): int(n) for r in rollouts for e, n in zip(r.episodes.index, r.episodes.length, strict=True)}
    got = times(rollouts)
    assert finished
    for episode, t in got.items():
        assert t == list(range(len(t)))
        if episode in finished:
            assert len(t) == finished[episode]


@given(
    streams=st.lists(st.text("d.eE", min_size=1, max_size=6).map(lambda s: "d" + s + "e"), min_size=1, max_size=4),
    amount=st.integers(1, 12),
)
def test_any_stream_keeps_time_and_memory(streams, amount):
    streams = [_possible(stream) for stream in streams]
    for got in play(StreamEnv(streams), amount, requests=3):
        rows = got.trajectories
        assert rows.t.tolist() == rows.observation[:, 1].tolist()
        assert rows.action.tolist() == (rows.t % 2).tolist()  # it counts its own decisions in the episode
        assert rows.memory0[:, 0].tolist() == rows.t[rows.start[:-1]].tolist()


def _possible(stream: str) -> str:
    """An episode cannot end before its first decision."""
    out, open_ = "", False
    for letter in stream:
        if letter == "d" or open_:
            out += letter
            open_ = letter != "e"
        else:
            out += "."
    return out


@pytest.mark.parametrize("streams", [NEXT_STEP, ASYNCHRONOUS])
def test_opponents_memory_is_reset_with_each_episode_and_each_draw(streams):
    """Episodes of odd and even lengths; the policy that counts answers its own count, so any rest of another episode would show."""
    env = StreamEnv(streams, players=2)
    play(env, 40)
    entries = {tuple(actions[1].tolist()) for _, _, actions in env.given}
    assert len(entries) > 1
    for _, time, actions in env.given:
        assert actions[0].tolist() == actions[1].tolist() == [t % 2 for t in time]


def test_an_evaluation_counts_the_lengths_of_its_episodes():
    env = StreamEnv(NEXT_STEP)
    bank = LocalBank(env.spec, 3)
    bank.load([(A, FixedPolicy.of(0))])
    request = RolloutRequest(None, (), Mixture.product({0: ([A], [1.0])}), "episodes", 7, seed=0)
    got = RolloutWorker(env, bank).run(request)
    assert got.episodes.length.tolist() == [3, 1, 2, 3, 1, 2, 3]
    assert got.counters["env_steps"] == got.counters["decisions"] == 15


class Shared(StreamEnv):
    """Says that it has waited half a second for others in each step, and that every second step repaired an environment."""

    waited = 0.0
    restarts = 3

    def step(self, actions):
        self.waited += 0.5
        self.restarts += len(self.given) % 2
        return super().step(actions)


def test_waiting_is_taken_out_of_the_environments_time(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(worker_module, "perf_counter", lambda: float(next(ticks)))
    env = Shared(["dd.e"] * 2)
    first, second = play(env, 6, requests=2)
    steps = len(env.given)
    for got in (first, second):
        assert set(got.seconds) == {"environment", "inference", "writing", "waiting"}
    assert first.seconds["waiting"] + second.seconds["waiting"] == steps * 0.5
    assert (
        first.seconds["environment"] + second.seconds["environment"] == 2 + steps * 0.5
    )  # one tick a step, and two beginnings
    assert first.seconds["inference"] + second.seconds["inference"] == steps
    assert first.counters["env_restarts"] + second.counters["env_restarts"] == steps // 2


def test_an_environment_that_counts_nothing_has_waited_for_nobody():
    (got,) = play(StreamEnv(NEXT_STEP), 5)
    assert got.seconds["waiting"] == 0.0
    assert "env_restarts" not in got.counters
