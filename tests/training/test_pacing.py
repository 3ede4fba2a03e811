"""How fast replay goes: samples for each insert in a window, samplers and removers by name, and how often weights are published."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus.algorithms.common.base import REPLAY, LearnerContext
from ludus.algorithms.ddpg.config import DDPG, TD3
from ludus.algorithms.dqn.config import DQN, Rainbow
from ludus.algorithms.nfsp.config import NFSP
from ludus.algorithms.r2d2.config import R2D2
from ludus.algorithms.sac.config import SAC, SACDiscrete
from ludus.contrib.algorithms.maddpg.config import MADDPG
from ludus.contrib.algorithms.mpo.config import MPO
from ludus.contrib.algorithms.qmix.config import QMIX, VDN
from ludus.core.errors import ConfigError, LudusError, ScenarioError
from ludus.core.types import AgentSpec, EnvSpec, Mixture, PolicyRef, PolicySpec, TrainingTask
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.base import TableSpec
from ludus.replay.episode_server import EpisodeServer
from ludus.replay.kinds import build_table
from ludus.replay.rate_limiter import RateLimiter, TableFill
from ludus.rollout.async_limits import AsyncLimits
from ludus.rollout.manager import RolloutManager
from ludus.runtime.inprocess import InProcess
from ludus.testing.algorithm import synthetic_rollout
from ludus.training.stopping import parse_stopper
from ludus.training.trainer import BatchPlacement, Trainer, TrainerSpec
from ludus.training.training import Training, TrainingParts

AGENTS = (AgentSpec("player_0", 0, Box(-np.inf, np.inf, (4,), np.float32), Discrete(3)),)
ENV = EnvSpec(id="made up", agents=AGENTS, utility_range=((-2.0, 2.0),), symmetry=((0,),), zero_sum=False)
SMALL: dict[str, Any] = {"hidden": (8,), "batch": 8, "min_size": 10}


def trainer(algorithm: DQN, feed: BatchPlacement | None = None) -> tuple[Trainer, EpisodeServer]:
    episodes = EpisodeServer(0)
    context = LearnerContext(ENV, (0,), 0, total=1000)
    return Trainer(TrainerSpec("task", algorithm, context), episodes, feed=feed or BatchPlacement()), episodes


def feed_rounds(made: Trainer, rounds: int = 3) -> list[tuple[int, int]]:
    """(rows, updates) of each round."""
    found = []
    for number in range(rounds):
        policy = build_policy(made.spec, made.weights)
        rows = synthetic_rollout(ENV, policy, seats=(0,), segments=20, rng=np.random.default_rng([number, 5]))
        learned = made.learn([rows], version=number)
        assert learned.failure is None
        found.append((rows.num_rows, learned.updates))
    return found


# ---------------------------------------------------------------------------------------------- samples for each insert


def test_without_a_window_it_is_updates_per_decision() -> None:
    """0.125 updates of 8 items for each decision are 1 sample for each insert: equal to the bit."""
    by_decisions, by_items = (
        trainer(DQN(**SMALL, **pace))[0] for pace in ({"updates_per_decision": 0.125}, {"samples_per_insert": 1.0})
    )
    assert feed_rounds(by_decisions) == feed_rounds(by_items)
    for name, array in by_decisions.weights.items():
        np.testing.assert_array_equal(array, by_items.weights[name])


@pytest.mark.parametrize("window", [{"updates_per_decision": 0.5}, {"samples_per_insert": 1.0, "max_diff": 1000.0}])
def test_a_rollout_that_is_larger_than_the_table_comes_in_by_pieces(window: dict[str, float]) -> None:
    made, episodes = trainer(DQN(capacity=12, **SMALL, **window))
    ((rows, updates),) = feed_rounds(made, 1)
    table = episodes.statistics("task")[REPLAY]
    assert rows > 24
    assert table["inserted"] == rows
    assert table["size"] == 12
    assert updates > 0


def test_decisions_and_items_are_counted_exactly() -> None:
    """100 × 0.29 is 29, and 49 × (1 / 49) is 1; both are less in floats."""
    for pace in ({"updates_per_decision": 0.29}, {"samples_per_insert": 29.0}):
        algorithm = DQN(**{**SMALL, "batch": 100, **pace})
        assert [algorithm.due(decisions=10 + n, items=10 + n, updates=0) for n in (99, 100)] == [28, 29]
    assert DQN(**SMALL, updates_per_decision=1 / 49).warm_up().decisions_per_update == 49


def differences(episodes: EpisodeServer, ratio: float, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What ratio × inserted − sampled comes to with each insert and each sample, once the least size is held."""
    seen: list[float] = []

    def note() -> None:
        told = episodes.statistics("task")[REPLAY]
        if told["size"] >= SMALL["min_size"]:
            seen.append(ratio * told["inserted"] - told["sampled"])

    for name in ("try_insert", "try_sample"):
        call = getattr(episodes, name)

        def noted(*args: Any, call: Any = call) -> Any:
            done = call(*args)
            note()
            return done

        monkeypatch.setattr(episodes, name, noted)
    return seen


@pytest.mark.parametrize("feed", [BatchPlacement(), BatchPlacement(prefetch=2)])
def test_both_sides_stay_in_the_window(feed: BatchPlacement, monkeypatch: pytest.MonkeyPatch) -> None:
    """2 samples for each insert, 10 items at least: around 20, by 9 at most. Of n items, (2 n − 11) / 8 updates."""
    made, episodes = trainer(DQN(**SMALL, samples_per_insert=2.0, error_buffer=9.0), feed)
    seen = differences(episodes, 2.0, monkeypatch)
    rounds = feed_rounds(made)
    assert 11 <= min(seen) < 19
    assert 21 < max(seen) <= 29
    rows, updates = np.cumsum(rounds, axis=0).T
    assert updates.tolist() == [(2 * n - 11) // 8 for n in rows.tolist()]


def test_prefetched_batches_are_the_same() -> None:
    """Inserts and samples come in one order, whoever draws."""
    now, ahead = (
        trainer(DQN(**SMALL, samples_per_insert=2.0, error_buffer=9.0), feed)
        for feed in (BatchPlacement(), BatchPlacement(2))
    )
    assert feed_rounds(now[0]) == feed_rounds(ahead[0])
    for name, array in now[0].weights.items():
        np.testing.assert_array_equal(array, ahead[0].weights[name])


@given(
    ratio=st.sampled_from([0.3, 1.0, 2.5, 8.0]),
    low=st.integers(-20, 20),
    width=st.integers(1, 60),
    least=st.integers(1, 12),
    batch=st.integers(1, 8),
    steps=st.lists(st.booleans(), max_size=40),
)
def test_room_and_owed_are_the_most_that_is_allowed(
    ratio: float, low: int, width: int, least: int, batch: int, steps: list[bool]
) -> None:
    """Counted out one by one, on a table that may be anywhere."""
    limiter = RateLimiter(ratio, least, low, low + width)
    inserted = sampled = 0
    for insert in steps:
        fill = TableFill(inserted, sampled, inserted)
        if insert and limiter.allows_insert(1, fill):
            inserted += 1
        elif not insert and limiter.allows_sample(batch, fill):
            sampled += batch
    fill = TableFill(inserted, sampled, inserted)
    room, owed = limiter.room(fill), limiter.owed(batch, fill)
    assert [limiter.allows_insert(n, fill) for n in range(1, 99)] == [n <= room for n in range(1, 99)]
    drawn = 0
    while drawn < 99 and limiter.allows_sample(batch, TableFill(inserted, sampled + drawn * batch, inserted)):
        drawn += 1
    assert owed == drawn


# ---------------------------------------------------------------------------------------------- who samples, who makes room

FAMILIES = [DQN, Rainbow, R2D2, VDN, QMIX, SAC, SACDiscrete, TD3, DDPG, MADDPG, MPO]


@pytest.mark.parametrize("cls", FAMILIES)
def test_every_learner_that_replays_takes_the_options(cls: Any) -> None:
    plain = cls().tables()[0]
    assert (plain.sampler, plain.remover) == (None, None)
    assert plain.limiter.keys() <= {"min_size"}
    plain_config = cls()
    paced = cls(
        priority_exponent=0.0,
        sampler="less_used_newest",
        remover="most_used",
        samples_per_insert=4.0,
        error_buffer=900,
        publish_every=3,
    )
    least = getattr(paced, plain_config.warm_up_option)
    assert paced.collect().publish_every == 3
    (table,) = paced.tables()
    wanted = {"samples_per_insert": 4.0, "min_size": least, "error_buffer": 900.0}
    assert table == TableSpec(
        REPLAY, "ring", table.capacity, sampler="less_used_newest", remover="most_used", limiter=wanted
    )
    build_table(table).check_sizes(insert=paced.sizes()[REPLAY].insert, batch=paced.batch)  # type: ignore[attr-defined]
    assert cls(**paced.model_dump(mode="json")) == paced


def test_the_best_response_of_nfsp_takes_them_too() -> None:
    paced = NFSP(best_response={"samples_per_insert": 2.0, "sampler": "lifo", "publish_every": 2})
    assert paced.collect().publish_every == 2
    assert paced.tables()[0].sampler == "lifo"


def test_a_learner_tells_errors_to_whom_it_may_concern() -> None:
    """Items with the least error make room: they are told to a table that draws all alike, and weighs nothing."""
    made, episodes = trainer(DQN(**SMALL, capacity=100, remover="min_heap", samples_per_insert=1.0))
    feed_rounds(made, rounds=3)
    told = episodes.state_dict("task")[REPLAY]["table"]["contents"]["priority"]
    assert len(np.unique(told)) > 5


# ---------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("cls", "options", "words"),
    [
        (DQN, {"max_diff": 3.0}, "max_diff bounds samples_per_insert × inserted − sampled; give samples_per_insert, too"),
        (DQN, {"samples_per_insert": 1.0, "error_buffer": 5.0, "max_diff": 3.0}, "error_buffer must be above 0 and stands for"),
        (DQN, {"samples_per_insert": 1.0, "min_diff": 5.0, "max_diff": 3.0}, r"max_diff \(3\) is not above min_diff \(5\)"),
        (DQN, {"sampler": "lifoo"}, "unknown sampler 'lifoo'; did you mean 'lifo'"),
        (DQN, {"sampler": "prioritised"}, "at 0 is uniform; give priority_exponent"),
        (Rainbow, {"sampler": "uniform"}, "sampler=uniform goes by no priorities; set priority_exponent=0"),
        (SAC, {"importance": 1.5}, "importance is an exponent from 0 to 1"),
        (QMIX, {"sampler": "lifo", "capacity": 99, "batch": 100}, "the batch 100 is more than the capacity 99"),
    ],
)  # fmt: skip
def test_pacing_rejects_conflicting_options(cls: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((ConfigError, LudusError), match=words):
        cls(**options)


def scenario(**algorithm: Any) -> ludus.FixedOpponents:
    return ludus.FixedOpponents(
        env={"id": "openspiel/catch", "num_envs": 4, "tree": "off"},
        algorithm={"kind": "dqn", "rollout": 20, "rollout_unit": "decisions", **SMALL, **algorithm},
        response={"decisions": 100},
        evaluation={"payoffs": "simulate", "exploitability": "off"},
    )


def test_deadlocking_pacing_is_rejected_before_the_run() -> None:
    """Up by 3, down by 8: from 21 to 30 there are 10 values, and the shortest way round visits 11."""
    spec = make_env("openspiel/catch", num_envs=4, tree="off").spec
    with pytest.raises(
        ScenarioError, match=r"algorithm 'dqn', table 'replay': the table must deadlock: inserts of 1 move"
    ) as told:
        scenario(samples_per_insert=3.0, min_diff=21.0, max_diff=30.0).check(spec)
    assert "[21, 30] is too narrow" in str(told.value)
    assert "Raise max_diff to 32" in str(told.value)
    scenario(samples_per_insert=3.0, min_diff=21.0, max_diff=31.0).check(spec)


# ---------------------------------------------------------------------------------------------- tasks


def training(algorithm: DQN, limits: AsyncLimits | None = None) -> Training:
    vector = make_env("openspiel/catch", num_envs=4, tree="off")
    rollouts = RolloutManager(InProcess(), _make, spec=vector.spec, num_envs=4, shards=2, hosts=2)
    uniform = build_policy(PolicySpec("random", {"actions": 3}), {})
    parts = TrainingParts(rollouts, EpisodeServer(0), lambda ref: uniform, 0)
    mixture = Mixture.product({0: ([PolicyRef(0, "uniform")], [1.0])})
    task = TrainingTask("task", 1, 0, (0,), "0-1", mixture)
    stop = parse_stopper({"decisions": 400})
    return Training(task, algorithm=algorithm, parts=parts, stop=stop, start=None, async_limits=limits)


def _make(*, num_envs: int) -> Any:
    return make_env("openspiel/catch", num_envs=num_envs, tree="off")


PACED = DQN(
    **SMALL,
    rollout=20,
    rollout_unit="decisions",
    samples_per_insert=2.0,
    error_buffer=12.0,
    capacity=50,
    publish_every=3,
)


def weights_of(made: Training) -> dict[str, np.ndarray]:
    return dict(made.newest("explore")[1].weights())  # type: ignore[union-attr]


def test_weights_are_published_every_third_round_and_at_barriers() -> None:
    made = training(PACED)
    versions, played = [], []
    for number in range(1, 8):
        made.step()
        versions.append(made.newest("explore")[0].version)
        played.append(weights_of(made))
        if number == 4:
            made.barrier()
    assert versions == [1, 1, 2, 2, 3, 4, 4]  # the barrier after the fourth published the third version
    changed = [not all(np.array_equal(a[k], b[k]) for k in a) for a, b in pairwise(played)]
    assert changed == [False, True, False, True, True, False]


def test_a_paced_task_resumes_to_the_bit() -> None:
    straight, resumed = training(PACED), training(PACED)
    for _ in range(4):
        straight.step()
    straight.barrier()
    resumed.load_state_dict(straight.state_dict())
    for made in (straight, resumed):
        for _ in range(4):
            made.step()
    assert straight.newest("explore")[0] == resumed.newest("explore")[0]
    ends = [made.result().weights for made in (straight, resumed)]
    for name, array in ends[0].items():
        np.testing.assert_array_equal(array, ends[1][name])


def test_workers_that_play_each_for_itself_are_paced_too(monkeypatch: pytest.MonkeyPatch) -> None:
    made = training(PACED, AsyncLimits())
    seen = differences(made._parts.episodes, 2.0, monkeypatch)
    while not made.finished():
        made.step()
    made.barrier()
    assert made.result().failure is None
    assert 8 <= min(seen) < 20 < max(seen) <= 32
