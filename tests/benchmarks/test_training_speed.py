"""The benchmark of training throughput: the same settings for all, a limit that does the work it says, figures that are what they say."""

from dataclasses import replace
from itertools import islice

import pytest
import torch

from benchmarks import training_speed, training_speed_limit, training_speed_run, training_speed_updates_run
from benchmarks.contestants import Repetition
from benchmarks.harness import Medians
from benchmarks.machine import ROOT
from benchmarks.peers.collecting import per_wall
from benchmarks.peers.training import REPLAY, SETTINGS, Setting, cases
from benchmarks.training_speed_limit import Networks, updates
from benchmarks.training_speed_updates_limit import squashed
from ludus.algorithms.ppo.config import PPO
from ludus.core.types import EvaluationTask, Mixture, TrainingTask
from ludus.envs.registry import make_env
from ludus.policies.actor_critic import layouts

SMALL = Setting(environments=4, steps=16, minibatch=32, epochs=2, hidden=(8,))


def test_a_setting_says_how_many_steps_an_iteration_has() -> None:
    setting = Setting(environments=8, steps=256, minibatch=300, epochs=10)
    assert setting.batch == 2048
    assert setting.minibatches == 7
    assert cases("sb3") == ("sb3/gymnasium", "sb3/python")


@pytest.mark.parametrize("name", SETTINGS)
def test_ludus_and_the_limit_have_the_same_networks_and_batches(name: str) -> None:
    """Stable-Baselines3's, by hand: (4 + 1) 64 + 65 64 + 65 2 = 4610 for the policy, 65 less for the value."""
    setting, chosen = SETTINGS[name], training_speed_run.scenario(f"{name}/gymnasium", iterations=3, seed=5)
    ppo = chosen.algorithm
    assert isinstance(ppo, PPO)
    assert (ppo.batch, ppo.batch_unit, ppo.epochs, ppo.minibatches) == (
        setting.batch,
        "decisions",
        setting.epochs,
        setting.minibatches,
    )
    assert (chosen.env.num_envs, chosen.seed) == (setting.environments, 5)
    spec = ppo.policy(make_env("gymnasium/CartPole-v1", num_envs=1).spec, (0,))
    size = sum(layout.size for layout in layouts(spec).values())
    assert size == sum(p.numel() for p in Networks(setting).parameters())
    if name == "sb3":
        assert size == 4610 + 4545


def test_both_kinds_of_environments_are_what_they_are_called() -> None:
    kinds = {
        kind: training_speed_run.scenario(f"sb3/{kind}", iterations=1, seed=0).env for kind in ("gymnasium", "python")
    }
    assert {kind: env.options["vector"] for kind, env in kinds.items()} == {"gymnasium": "native", "python": "python"}


def test_speed_is_counted_between_the_ends_of_iterations() -> None:
    """1000 decisions: a half of them in 2 seconds, 1 of the processor; evaluations before and after say nothing."""
    clock = training_speed_run.Clock()
    clock.task_progress(None, {})
    clock.task_progress(1.0, {})
    clock.task_started(EvaluationTask("before", 0, ()))
    clock.task_progress(0.1, {"return": 3.0})
    clock.task_started(TrainingTask("training", 1, 0, (0,), "0-1", Mixture(())))
    for share in (0.25, 0.5, 0.75):
        clock.task_progress(share, {"return": 100 * share})
    clock.task_progress(1.0, {"return": 7.0})
    assert [share for share, _, _ in clock.seen] == [0.25, 0.5, 0.75]
    assert clock.returned == 75.0
    clock.seen = [(0.25, 10.0, 5.0), (0.5, 11.0, 5.5), (0.75, 12.0, 6.0)]
    assert clock.per_second(1000) == (250.0, 500.0)


def test_the_limit_takes_every_step_and_each_moves_every_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    class Counting(torch.optim.Adam):
        def step(self, closure=None):
            taken.append(
                all(p.grad is not None and bool(p.grad.any()) for group in self.param_groups for p in group["params"])
            )
            return super().step(closure)

    monkeypatch.setattr(torch.optim, "Adam", Counting)
    torch.manual_seed(0)
    networks = Networks(SMALL)
    before = [p.detach().clone() for p in networks.parameters()]
    updates(SMALL, networks)()
    assert taken == [True] * 4  # 64 rows in minibatches of 32, twice
    assert all(bool((p != old).any()) for p, old in zip(networks.parameters(), before, strict=True))


@pytest.mark.parametrize("environment", ["gymnasium", "python", "update"])
def test_the_limit_counts_an_iteration_s_decisions(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(training_speed_limit.SETTINGS, "sb3", SMALL)
    assert list(islice(training_speed_limit.both(f"sb3/{environment}", 0), 2)) == [64, 64]


def test_squashed_gaussians_have_torch_s_densities() -> None:
    torch.manual_seed(1)
    out = 0.5 * torch.randn(6, 4, dtype=torch.float64)
    action, logp = squashed(out)
    mean, log_std = out.chunk(2, 1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    squash = torch.distributions.transforms.TanhTransform()
    expected = torch.distributions.TransformedDistribution(normal, [squash]).log_prob(action).sum(1)
    assert torch.allclose(logp, expected, atol=1e-9)


@pytest.mark.parametrize("kind", REPLAY)
def test_ludus_does_as_many_updates_as_it_says_from_a_full_table(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small = replace(REPLAY[kind], capacity=100, updates=7, hidden=(8,), batch=16)
    monkeypatch.setitem(training_speed_updates_run.REPLAY, kind, small)
    assert list(islice(training_speed_updates_run.orders(kind, 3), 3)) == [7, 7, 7]


def medians(**speeds: dict[str, float]) -> Medians:
    return Medians(
        {f"{name}, PPO": [Repetition(0, {per_wall(case): v for case, v in of.items()})] for name, of in speeds.items()}
    )


def test_bars_compare_like_with_like() -> None:
    seen = medians(
        Ludus={"sb3/gymnasium": 600.0, "sb3/python": 300.0},
        limit={"sb3/gymnasium": 500.0, "sb3/python": 400.0},
        SB3={"sb3/gymnasium": 100.0, "sb3/python": 150.0},
    )
    values = {bar.name: bar.judge(seen).value for bar in training_speed.BENCHMARK.bars}
    assert values["PPO, sb3/gymnasium, times SB3"] == 6.0
    assert values["PPO, sb3/python, times SB3"] == 2.0
    assert values["PPO, sb3/gymnasium, relative to the limit"] == 1.2
    assert values["PPO, sb3/python, relative to the limit"] == 0.75
    assert values["DQN, updates relative to the limit"] is None


@pytest.mark.parametrize("setting", training_speed.PEERS)
def test_every_peer_has_a_worker_with_its_setting_and_one_thread(setting: str) -> None:
    """Read from the source, since the peers' packages are in environments of their own."""
    folder = ROOT / "benchmarks" / "peers" / training_speed.folder_of(setting)
    source = (folder / ("training.py" if setting in training_speed.FOLDERS else "run.py")).read_text()
    assert (folder / "requirements.txt").exists()
    assert "torch.set_num_threads(1)" in source
    assert f'SETTINGS["{setting}"]' in source
    assert all(f'"{case}"' in source for case in cases(setting))
