"""Updates from blocks whose rows are not counted, and graphs of several streams."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from ludus.algorithms.common.base import LearnerContext
from ludus.algorithms.common.device_policy import RoundSettings, SupportsRounds
from ludus.algorithms.on_policy.config import A2C, IMPALA
from ludus.algorithms.on_policy.learner import OnPolicyLearner
from ludus.algorithms.on_policy.ondevice.rounds import minibatches
from ludus.algorithms.ppo.config import PPO
from ludus.algorithms.ppo.learner import make_model
from ludus.backend import device, network
from ludus.backend.device import Graphs
from ludus.backend.streams import side_stream, stream_number
from ludus.core.errors import TrainingError
from ludus.core.types import DeviceChoice, Mixture, OpponentFactor, PolicyRef
from ludus.envs.registry import make_env
from ludus.envs.tree.stepping import TreeDeviceEnv
from ludus.rollout.base import RolloutRequest
from ludus.rollout.ondevice_trees import DeviceRollout, TreePlay, TreeRollouts
from ludus.testing.cuda_graphs import FakeGraphs, LaunchCounter

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fake() -> Iterator[FakeGraphs]:
    with FakeGraphs().installed() as graphs:
        yield graphs


OPPONENT, LEARNER = PolicyRef(0, "one"), PolicyRef(0, "0-1", 1)
TORCH = DeviceChoice("cpu", written=False)


class Game:
    """A learner of one player, and what it plays against: a random table."""

    def __init__(
        self, algorithm: Any, name: str = "leduc_poker", seat: int = 0, envs: int = 48, total: int = 480
    ) -> None:
        env: Any = make_env(f"openspiel/{name}", num_envs=1)
        there: TreeDeviceEnv = env.on_device(CPU, num_envs=envs)
        self.tree, self.seat, self.envs = there.games.tree, seat, envs
        context = LearnerContext(env=env.spec, seats=(seat,), seed=3, total=total, unit="episodes", device=TORCH)
        self.learner = algorithm.learner(context)
        self.play = TreePlay(TreeRollouts(there), self.learner, self)

    def table(self, ref: PolicyRef, player: int) -> np.ndarray:
        mask = self.tree.enumeration.mask[self.tree.enumeration.ids(player)]
        weight = np.random.default_rng(player).exponential(size=mask.shape) * mask
        return weight / weight.sum(1, keepdims=True)

    def acts(self, ref: PolicyRef) -> Any:
        raise AssertionError

    def request(self, number: int) -> RolloutRequest:
        factors = tuple(
            OpponentFactor((p,), ((OPPONENT,),), (1.0,)) for p in range(self.tree.num_players) if p != self.seat
        )
        return RolloutRequest(LEARNER, (self.seat,), Mixture(factors), "episodes", self.envs, seed=number)

    def enqueue(self, number: int, ahead: int, table: torch.Tensor) -> tuple[DeviceRollout, RoundSettings, Any]:
        rollout = self.play.enqueue(self.request(number), table)
        settings = self.learner.round_settings(ahead, self.envs)
        return rollout, settings, self.learner.enqueue_update(rollout.block, settings)


PPO_ = PPO(hidden=(16,), epochs=4, minibatches=1, learning_rate=0.01, entropy=0.01, normalise_observations=False)


@pytest.mark.parametrize(
    "algorithm",
    [PPO_, PPO_.model_copy(update={"normalise_advantages": False}), A2C(hidden=(16,))],
    ids=["ppo", "advantages as they are", "a2c"],
)
def test_an_update_of_rows_that_are_not_counted_is_that_of_those_that_are(algorithm: Any) -> None:
    """Up to the order of sums, for both players, over three rounds."""
    for seat in (0, 1):
        unread, known = Game(algorithm, seat=seat), Game(algorithm, seat=seat)
        for number in range(3):
            rollout, settings, update = unread.enqueue(number, 0, unread.learner.table())
            numbers = rollout.numbers.tolist()
            rows = rollout.read(numbers, block=False).counters["learner_decisions"]
            one = unread.learner.finish_update(settings, update.numbers.tolist(), rows, rollout.episodes(numbers))
            (block,) = known.play.play(known.request(number)).left
            assert block.num_rows == rows < rollout.block.num_rows
            other = known.learner.learn(block)
            assert one.keys() == other.keys()
            assert one == pytest.approx(dict(other), rel=2e-3, abs=2e-4)
            torch.testing.assert_close(update.table.exp(), known.learner.table().exp(), rtol=2e-3, atol=2e-4)
        assert unread.learner._budget == known.learner._budget


def test_without_a_row_nothing_is_learned() -> None:
    """A whole rollout in which the learner had nothing to decide."""
    for algorithm in (PPO_, PPO_.model_copy(update={"minibatches": 2})):
        game = Game(algorithm)
        before, table = game.learner.weights(), game.learner.table()
        rollout = game.play.enqueue(game.request(0), table)
        nothing = replace(rollout.block, row=torch.zeros_like(rollout.block.row))
        update = game.learner.enqueue_update(nothing, game.learner.round_settings(0, 48))
        after = game.learner.weights()
        assert all(np.array_equal(before[name], after[name]) for name in before)
        torch.testing.assert_close(update.table, table, rtol=0, atol=0)
        _, _, update = game.enqueue(1, 0, table)
        assert np.isfinite(update.numbers.tolist()).all()


@pytest.mark.parametrize("fused", [False, True])
def test_an_update_that_fails_leaves_the_state_of_before(fused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second of three that are read together, whose rewards are no numbers from the start."""
    monkeypatch.setattr(network, "ModuleAdam", partial(network.ModuleAdam, fused=fused))
    monkeypatch.setattr(
        "ludus.algorithms.on_policy.autograd_model.ModuleAdam", partial(network.ModuleAdam, fused=fused)
    )
    alone, game = Game(PPO_), Game(PPO_)
    alone.enqueue(0, 0, alone.learner.table())
    table, enqueued = game.learner.table(), []
    for number in range(3):
        rollout = game.play.enqueue(game.request(number), table)
        settings, block = game.learner.round_settings(number, game.envs), rollout.block
        if number == 1:
            block = replace(block, reward=torch.full_like(block.reward, torch.nan))
        update = game.learner.enqueue_update(block, settings)
        enqueued.append((settings, rollout.numbers.tolist(), update.numbers.tolist()))
        table = update.table
    (settings, _, numbers) = enqueued[0]
    game.learner.finish_update(settings, numbers, 100, 48)
    settings, _, numbers = enqueued[1]
    with pytest.raises(TrainingError, match=r"update 2: the .* became NaN or infinite in one of 4 epochs"):
        game.learner.finish_update(settings, numbers, 100, 48)
    assert_same_state(game.learner.model.state_dict(), alone.learner.model.state_dict())
    _, _, update = game.enqueue(3, 0, game.learner.table())
    assert np.isfinite(update.numbers.tolist()).all(), "it learns again"


def assert_same_state(one: Any, other: Any) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        if isinstance(value, dict):
            assert_same_state(value, other[name])
        else:
            np.testing.assert_array_equal(value, other[name])


@pytest.mark.parametrize(("rows", "room", "count"), [(17, 20, 3), (5, 5, 2), (2, 9, 4), (0, 4, 2), (12, 12, 12)])
def test_minibatches_have_each_row_once_and_nearly_equal_sizes(rows: int, room: int, count: int) -> None:
    valid = torch.arange(room) < rows
    index = minibatches(valid, torch.tensor(5), epochs=40, count=count)
    assert index is not None
    assert index.shape == (40 * count, -(-room // count))
    orders = set()
    for epoch in index.view(40, -1).unbind():
        order = [int(row) for row in epoch if row >= 0]
        assert sorted(order) == list(range(rows))
        orders.add(tuple(order))
    assert len(orders) > 20 or rows < 5
    sizes = (index >= 0).sum(1).view(40, count)
    assert sizes.tolist() == [[len(part) for part in np.array_split(np.arange(rows), count)]] * 40
    assert torch.equal(index, minibatches(valid, torch.tensor(5), epochs=40, count=count) + 0)
    assert minibatches(valid, torch.tensor(5), epochs=3, count=1) is None


def test_nothing_is_read_while_an_update_is_enqueued() -> None:
    """On the device "meta" `item()`, `bool()`, `cpu()` and `numpy()` raise."""
    for algorithm in (PPO_, PPO_.model_copy(update={"minibatches": 3})):
        host: Any = make_env("openspiel/kuhn_poker", num_envs=4)
        meta = DeviceChoice("meta", written=False)
        learner = algorithm.learner(LearnerContext(env=host.spec, seats=(0,), seed=3, total=100, device=meta))
        game = Game(algorithm, "kuhn_poker")
        block = game.play.enqueue(game.request(0), game.learner.table()).block
        there = {
            name: column.to("meta")
            for name, column in ((name, getattr(block, name)) for name in block.__dataclass_fields__)
            if isinstance(column, torch.Tensor)
        }
        update = learner.enqueue_update(replace(block, **there), learner.round_settings(0, 48))
        assert {update.numbers.device.type, update.table.device.type} == {"meta"}


def test_a_round_is_few_launches(monkeypatch: pytest.MonkeyPatch, fake: FakeGraphs) -> None:
    """Once graphs are captured: a rollout of games of up to eight decisions, the update of ten epochs, and the numbers of both."""

    def captured(*args: Any) -> Any:
        answer, _ = fake.capture(*args)
        return answer, lambda: None

    monkeypatch.setattr(device, "captured", captured)
    game = Game(PPO_.model_copy(update={"epochs": 10}))
    table = game.learner.table()
    for number in range(3):
        _, _, (_, table) = game.enqueue(number, 0, table)
    with LaunchCounter() as counter:
        rollout, _, (numbers, _) = game.enqueue(3, 0, table)
        torch.cat([rollout.numbers, numbers])
    assert counter.launches == 3 + 3 + 1, "copies by dtype for both graphs, and what joins their numbers"


def test_what_a_graph_of_updates_reads_lives_as_long_as_its_model() -> None:
    """A learner that takes over a model with its graphs has the inputs that they were captured with."""
    game = Game(PPO_)
    for number in range(3):
        game.enqueue(number, number, game.learner.table())
    model, inputs, context = game.learner.model, game.learner._items.inputs, game.learner._context
    del game
    gc.collect()
    learner = PPO_.learner(context)
    assert learner.model is model
    assert learner._items.inputs is inputs


# ------------------------------------------------------------------ who can


@pytest.mark.parametrize(
    ("algorithm", "why"),
    [
        (PPO_, ""),
        (PPO_.model_copy(update={"target_kl": 0.1}), "kl_limit is looked at after each epoch"),
        (PPO_.model_copy(update={"normalise_observations": True}), "statistics are updated in memory"),
        (IMPALA(hidden=(16,)), "V-trace corrects its rows"),
        (PPO_.model_copy(update={"batch": 100_000_000}), "its steps are no graphs"),
    ],
)
def test_a_learner_says_why_its_updates_are_read_one_by_one(algorithm: Any, why: str) -> None:
    env: Any = make_env("openspiel/kuhn_poker", num_envs=1)
    learner = algorithm.learner(LearnerContext(env=env.spec, seats=(0,), seed=3, total=100, device=TORCH))
    assert isinstance(learner, SupportsRounds)
    assert learner.rounds_unsupported_reason() == why


def test_updates_of_a_learner_of_ones_own_are_read_one_by_one() -> None:
    class Own(OnPolicyLearner):
        """Which may learn in another way."""

    game = Game(PPO_)
    own = Own(PPO_, make_model(PPO_, game.learner._context), game.learner._context)
    assert own.rounds_unsupported_reason() == "its learner is of a class of its own"


@pytest.mark.parametrize(
    ("name", "always"),
    [("kuhn_poker", (True, True)), ("nim(pile_sizes=2;0)", (True, False)), ("leduc_poker", (True, True))],
)
def test_who_has_a_decision_in_every_game_is_known(name: str, always: tuple[bool, ...]) -> None:
    env: Any = make_env(f"openspiel/{name}", num_envs=1)
    whole = TreeRollouts(env.on_device(CPU, num_envs=2)).whole
    assert tuple(whole.always_decides(p) for p in (0, 1)) == always


def test_graphs_of_streams_that_run_at_the_same_time_are_their_own(fake: FakeGraphs) -> None:
    """Products on one stream share memory."""
    double = Graphs().of(lambda x: 2 * x, CPU)
    for number in (1, 2):
        for _ in range(3):
            with side_stream(CPU, number):
                assert stream_number() == number
                double(torch.ones(2))
    assert stream_number() == 0
    assert fake.runs == [1, 1]
