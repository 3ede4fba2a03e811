"""What the peers of the rollout benchmark share: clock and command, environments that do what they are told, and the bars."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
import torch

from benchmarks import rollout_peers
from benchmarks.contestants import Repetition
from benchmarks.harness import Medians
from benchmarks.machine import ROOT
from benchmarks.peers.cartpole import CartPoleVector
from benchmarks.peers.collecting import per_core, work
from benchmarks.peers.connect_four import ACTIONS, INPUTS, ConnectFour
from benchmarks.peers.networks import mlp, nature_cnn


def figures(capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {name: value for line in lines if line["kind"] == "figures" for name, value in line.items()}


def test_a_worker_warms_up_once_and_reports_the_median_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Orders of 1000, 10, 20 and 30 steps, each taking half a second of the processor and one by the clock: the first is
    the warm-up; the medians are 20 / 0.5 and 20 / 1."""
    clocks = {"process_time": 0.0, "perf_counter": 0.0}
    built = []

    def orders(seed: int) -> Iterator[int]:
        built.append(seed)
        for steps in (1000, 10, 20, 30):
            clocks["process_time"] += 0.5
            clocks["perf_counter"] += 1.0
            yield steps

    for name in clocks:
        monkeypatch.setattr(f"time.{name}", lambda name=name: clocks[name])
    assert work({"a": orders, "b": orders}, (), ["--case", "a", "--orders", "3", "--seed", "7"]) == 0
    found = figures(capsys)
    assert built == [7]
    assert found[per_core("a")] == 40.0
    assert found["a, steps per wall second"] == 20.0


def test_every_case_is_measured_on_its_own_and_in_the_order_given(capsys: pytest.CaptureFixture[str]) -> None:
    """A worker of a peer that is not installed: two orders each, one of them to warm up, then no more are asked for."""
    taken: list[tuple[str, int]] = []

    def orders(case: str, seed: int) -> Iterator[int]:
        for number in range(2):
            taken.append((case, number + seed))
            yield sum(range(1000))  # takes a little time, so that there is a speed

    cases = {case: partial(orders, case) for case in ("a", "b", "c")}
    assert work(cases, (), ["--case", "c", "a", "--orders", "1", "--seed", "4"]) == 0
    assert taken == [("c", 4), ("c", 5), ("a", 4), ("a", 5)]
    found = figures(capsys)
    assert sorted(found) == [
        "a, steps per core second",
        "a, steps per wall second",
        "c, steps per core second",
        "c, steps per wall second",
        "kind",
    ]
    with pytest.raises(SystemExit):
        work(cases, (), ["--case", "d"])
    assert "invalid choice: 'd'" in capsys.readouterr().err


def test_the_shared_clock_needs_the_standard_library_only() -> None:
    """Without site-packages: no peer may miss what another one needs."""
    code = "import benchmarks.peers.collecting, sys; print(*(n for n in ('numpy', 'torch', 'gymnasium') if n in sys.modules))"
    done = subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize("folder", rollout_peers.PEERS.values())
def test_every_peer_collects_every_case_on_one_thread(folder: str) -> None:
    """Read from the source, since the peers' packages are in environments of their own."""
    source = (ROOT / "benchmarks" / "peers" / f"{folder}_rollout" / "run.py").read_text()
    cases = [
        [key.value for key in node.value.keys if isinstance(key, ast.Constant)]
        for node in ast.parse(source).body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Dict)
        and [ast.unparse(target) for target in node.targets] == ["CASES"]
    ]
    assert cases == [[case for cases in rollout_peers.CASES.values() for case in cases]]
    assert "torch.set_num_threads(1)" in source
    assert source.count("num_threads=1") == source.count("envpool.make")
    assert source.count("disable_env_checker=True") == source.count("gymnasium.make(")


def medians(**speeds: dict[str, float]) -> Medians:
    """Speeds on CartPole by contestant and environment; a peer that is not named has 1 step per second everywhere."""
    names = ("Ludus", *rollout_peers.PEERS)
    return Medians(
        {
            f"{name}, cartpole": [
                Repetition(
                    0, {per_core(case): speeds.get(name, {}).get(case, 1.0) for case in rollout_peers.CASES["cartpole"]}
                )
            ]
            for name in names
        }
    )


def test_a_peer_is_compared_on_the_environment_on_which_it_is_fastest() -> None:
    seen = medians(
        Ludus={"cartpole/gymnasium": 600.0, "cartpole/envpool": 300.0, "cartpole/python": 50.0},
        SB3={"cartpole/gymnasium": 200.0, "cartpole/envpool": 100.0},
        torchrl={"cartpole/gymnasium": 100.0, "cartpole/envpool": 150.0},
    )
    values = {bar.name: bar.judge(seen).value for bar in rollout_peers.BENCHMARK.bars}
    assert values["cartpole, times SB3"] == 3.0
    assert values["cartpole, times torchrl"] == 2.0
    assert values["cartpole, times the best peer, aim"] == 3.0
    assert values["pong, times SB3"] is None


def test_ludus_plays_every_case_that_is_measured() -> None:
    from benchmarks.rollout_run import ENVS

    assert set(ENVS) == {case for cases in rollout_peers.CASES.values() for case in cases}


@pytest.mark.slow
@pytest.mark.parametrize("case", ["cartpole/gymnasium", "cartpole/python", "connect_four/pettingzoo"])
def test_ludus_collects_what_it_says(case: str) -> None:
    """About 128 decisions of each of 64 environments, in the first order and in one that goes on."""
    from benchmarks.rollout_run import orders

    played = orders(case, 0)
    for _ in range(2):
        assert next(played) == pytest.approx(128 * 64, rel=0.1)


def test_the_cartpole_vector_resets_what_it_is_told_to_and_nothing_else() -> None:
    env = CartPoleVector(3)
    env.reset(seed=1)
    actions = np.array([0, 1, 0])
    while True:
        seen, _, terminated, _, _ = env.step(actions)
        if terminated[1]:
            break
    later, _, still, _, _ = env.step(actions)
    assert still[1]  # it went on falling: nothing has reset it
    assert abs(later[1, 2]) > abs(seen[1, 2])
    fresh, _ = env.reset(np.array([1]))
    assert fresh.shape == (1, 4)
    assert np.abs(fresh).max() <= 0.05
    assert env.steps.tolist()[1] == 0
    assert env.steps[0] > 0
    everything, _ = env.reset(options={"reset_mask": np.array([False, False, True])})
    assert np.array_equal(everything[:2], np.concatenate([later[:1], fresh]))
    assert np.abs(everything[2]).max() <= 0.05


def test_connect_four_alternates_and_pays_the_player_who_has_four() -> None:
    """Column 0 against column 1: after seven stones the first player has four in a column, and column 0 has two places left."""
    env = ConnectFour(named=("seen", "legal"))
    first, _ = env.reset()
    assert first["seen"].shape == (6, 7, 2)
    assert not first["seen"].any()
    rewards = []
    for turn in range(7):
        seen, reward, terminated, truncated, _ = env.step(turn % 2)
        rewards.append(reward)
        assert terminated == (turn == 6)
        assert not truncated
        if turn == 0:  # the stone is the other one's now
            assert seen["seen"][..., 0].sum() == 0
            assert seen["seen"][..., 1].sum() == 1
    assert rewards == [0, 0, 0, 0, 0, 0, 1]
    assert ConnectFour().reset()[0].shape == (6, 7, 2)


def test_full_columns_are_not_legal() -> None:
    env = ConnectFour()
    env.reset()
    for _ in range(6):
        assert env.action_masks().tolist() == [1] * 7
        env.step(3)
    assert env.action_masks().tolist() == [1, 1, 1, 0, 1, 1, 1]


def test_networks_give_logits_and_a_value_for_each_observation() -> None:
    board = torch.zeros((5, 6, 7, 2), dtype=torch.int8)
    logits, value = mlp(INPUTS, ACTIONS, dims=3)(board)
    assert (logits.shape, value.shape) == ((5, 7), (5, 1))
    network = nature_cnn(4, 6)
    logits, value = network(torch.zeros((2, 4, 84, 84), dtype=torch.uint8))
    assert (logits.shape, value.shape) == ((2, 6), (2, 1))
    # Mnih et al. 2015 with a value head: 8224 + 32832 + 36928 + 1606144 + 6 * 513 + 513
    assert sum(p.numel() for p in network.parameters()) == 1687719
