"""Where learners compute; and that inside an update none reads a number back from its device."""

from __future__ import annotations

from dataclasses import replace

import alphazero_games
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, MultiDiscrete
from team_games import team_env, team_rollout
from torch import nn

from ludus.algorithms.common.base import LearnerContext, updated_priorities
from ludus.algorithms.common.registry import ALGORITHMS
from ludus.algorithms.on_policy.learner import OnPolicyLearner
from ludus.algorithms.ppo.config import PPO
from ludus.backend import device
from ludus.backend.device import UpdateCost, floats_to_host, parse_device, resolve_placement
from ludus.backend.network import FlatModule, ModuleAdam
from ludus.core.errors import ConfigError
from ludus.core.parts import resolve_name
from ludus.core.types import CPU, DeviceChoice
from ludus.envs.registry import make_env
from ludus.policies.registry import build_policy
from ludus.replay.base import ON_HOST, Sample, TableSpec
from ludus.replay.kinds import build_table
from ludus.testing.algorithm import synthetic_rollout

# ------------------------------------------------------------------ which device, and which backend

LITTLE, LARGE = (
    UpdateCost(5_000, 750, has_cpu_kernel=True),
    UpdateCost(2_000_000, 2_048, has_cpu_kernel=False, no_kernel_reason="it sees images"),
)


@pytest.mark.parametrize(
    ("choice", "work", "gpus", "expected"),
    [
        (DeviceChoice("auto"), LITTLE, 0, "cpu (CPU kernels): there is no GPU"),
        (DeviceChoice("auto"), LARGE, 0, "cpu (torch): there is no GPU; it sees images"),
        (
            DeviceChoice("auto"),
            LITTLE,
            1,
            "cpu (CPU kernels): 3.8e+06 multiplications a step are too few for a GPU",
        ),
        (DeviceChoice("auto"), LARGE, 1, "cuda:0 (torch): 4.1e+09 multiplications a step"),
        (
            DeviceChoice("auto"),
            replace(LITTLE, rows=1024),
            1,
            "cpu (CPU kernels): 5.1e+06 multiplications a step are too few",
        ),
        (
            DeviceChoice("auto"),
            replace(LITTLE, rows=1024, kind="graph"),
            1,
            "cuda:0 (torch): 5.1e+06 multiplications a step",
        ),
        (
            DeviceChoice("auto"),
            replace(LITTLE, rows=1024, kind="acting"),
            1,
            "cpu (CPU kernels): 5.1e+06 multiplications for all answers of a step are too few for a GPU (from 2e+07)",
        ),
        (
            DeviceChoice("auto"),
            replace(LITTLE, rows=8192, kind="acting"),
            1,
            "cuda:0 (torch): 4.1e+07 multiplications for all",
        ),
        (DeviceChoice("cuda"), LITTLE, 2, "cuda:0 (torch): as asked for"),
        (DeviceChoice("cuda:1"), LITTLE, 2, "cuda:1 (torch): as asked for"),
        (DeviceChoice("cpu", written=False), LITTLE, 2, "cpu (torch): as asked for"),
    ],
)
def test_one_function_decides(monkeypatch, choice, work, gpus, expected):
    monkeypatch.setattr(device, "gpu_count", lambda: gpus)
    assert str(resolve_placement(choice, work)).startswith(expected)


@pytest.mark.parametrize(
    ("choice", "gpus", "message"),
    [
        (DeviceChoice("cuda"), 0, "was built for CPUs only. Install one"),
        (DeviceChoice("cuda:1"), 1, "there is one GPU, cuda:0. Name"),
        (DeviceChoice("cuda:4"), 3, "there are 3 GPUs, cuda:0 to cuda:2. Name"),
        (DeviceChoice("cpu", precision="tf32"), 0, "precision is tf32, which is a GPU's"),
    ],
)
def test_missing_device_raises(monkeypatch, choice, gpus, message):
    monkeypatch.setattr(device, "gpu_count", lambda: gpus)
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigError, match=message):
        resolve_placement(choice, LARGE)


@pytest.mark.parametrize("name", ["mps", "rocm:0", "cuda:", "CPU", "", "gpu"])
def test_names_that_are_no_devices(name):
    with pytest.raises(ConfigError, match="expected auto, cpu, cuda"):
        parse_device(name)


# ------------------------------------------------------------------ what updates are made of


def test_the_fused_optimizer_is_the_compiled_one_and_steps_over_what_is_no_number():
    torch.manual_seed(0)
    modules = [nn.Linear(5, 3), nn.Linear(5, 3)]
    modules[1].load_state_dict(modules[0].state_dict())
    here, there = map(FlatModule, modules)
    compiled, fused = ModuleAdam(here), ModuleAdam(there, fused=True)
    for step in range(4):
        here.grad.copy_(torch.randn(18) if step != 2 else torch.full((18,), torch.nan))
        there.grad.copy_(here.grad)
        held = torch.tensor(step == 1)
        norms = [adam.step(rate=0.01, max_norm=0.5, held=held) for adam in (compiled, fused)]
        np.testing.assert_allclose(*norms, rtol=1e-6)
    torch.testing.assert_close(here.values, there.values)
    kept = fused.state_dict()
    assert kept["steps"] == compiled.state_dict()["steps"] == 2
    np.testing.assert_allclose(kept["m"], compiled.state_dict()["m"], rtol=1e-5)
    ModuleAdam(there, fused=True).load_state_dict(compiled.state_dict())


# ------------------------------------------------------------------ one contract of all that learn by gradients

WITHOUT_GRADIENTS = {"exact", "tabular_q"}
SMALL = {
    "batch": 24, "rollout": 40, "min_size": 10, "start_decisions": 10, "hidden": (8,), "learning_rate": 1e-3, "atoms": 5, "epochs": 2,
    "mixing_width": 4, "minibatches": 2, "width": 8, "central_width": 6, "predictor_width": 6,
    "sequence": 2,
}  # fmt: skip
BURNT = {"memory": 4, "length": 3, "period": 3, "burn_in": 2}
FEW_STEPS = {"conjugate_steps": 2, "line_search_steps": 2}
MORE = {
    "ppo, separate, vtrace": ("ppo", {"value_network": "separate", "correction": "vtrace", "entropy": 0.1}),
    "ppo, states": ("ppo", {"clip_value": 0.2, "activation": "tanh"}, "enumerated"),
    "ppo, gru": ("ppo", {"memory": "gru", "memory_size": 4, "target_kl": 0.1, "epochs": 2}),
    "ppo, by agent": ("ppo", {"share_weights": False}, "teams"),
    "ppo, gru by agent": ("ppo", {"share_weights": False, "memory": "gru", "memory_size": 4}, "teams"),
    "a2c, of many": ("a2c", {"normalise_observations": True}, "multi"),
    "impala, lstm": ("impala", {"memory": "lstm", "memory_size": 4, "sequence": 2}),
    "mmd, moving": ("mmd", {"magnet": "moving", "magnet_rate": 0.3, "alpha": 0.2}, "enumerated"),
    "rnad, magnet": ("rnad", {"value_network": "separate", "magnet_period": 1, "advantage_clip": 0.8, "announce": "average"}),
    "rnad, bounds": ("rnad", {"logit_threshold": 0.02, "magnet_period": 1}),
    "rnad, surrogate": ("rnad", {"policy_loss": "surrogate", "clip": 0.1, "magnet_period": 1}, "enumerated"),
    "dqn, states": ("dqn", {"double": False, "dueling": True, "n_step": 2, "priority_exponent": 0.6}, "enumerated"),
    "dqn, states, double": ("dqn", {"double": True, "dueling": False}, "enumerated"),
    "dqn, dueling": ("dqn", {"double": False, "dueling": True}),
    "dqn, by agent": ("munchausen_dqn", {"share_weights": False}, "teams"),
    "nfsp, states": ("nfsp", {"max_gradient_norm": 0.1, "best_response": {"dueling": True, "hidden": (8,)}}, "enumerated"),
    "ddpg, twin": ("ddpg", {"twin": True, "activation": "tanh", "max_gradient_norm": 0.1}),
    "a2c, rnd": ("a2c", {"learned_reward": {"kind": "rnd", "hidden": (8,), "features": 4}}),
    "dqn, icm": ("dqn", {"learned_reward": {"kind": "icm", "hidden": (8,), "features": 4}}, "enumerated"),
    "sac, one": ("sac", {"twin": False, "learn_temperature": False}),
    "sac, states": ("sac_discrete", {"twin": False}, "enumerated"),
    "vmpo, box": ("vmpo", {"value_network": "separate"}, "box"),
    "vmpo, gru by agent": ("vmpo", {"share_weights": False, "memory": "gru", "memory_size": 4}, "teams"),
    "mpo, discrete": ("mpo", {"twin": True, "target_period": 1}, "tensors"),
    "mpo, states": ("mpo", {"target_period": 0}, "enumerated"),
    "maddpg, box": ("maddpg", {"critic": "state", "twin": True}, "team boxes"),
    "maddpg, cold": ("maddpg", {"critic": "state", "temperature": 0.5}),
    "mat, boxes": ("mat", {"heads": 2, "normalise_observations": True}, "team boxes"),
    "qmix, gru": ("qmix", {"core": "gru", **BURNT}),
    "qmix, by agent": ("qmix", {"share_weights": False}),
    "happo, gru": ("happo", {"memory": "gru", "memory_size": 4}),
    "hatrpo, gru, shared": (
        "hatrpo",
        {"memory": "gru", "memory_size": 4, "share_weights": True, **FEW_STEPS},
        "team boxes",
    ),
    "a2po, shared": ("a2po", {"share_weights": True, "normalise_observations": True}),
    "coppo, gru by agent": ("coppo", {"memory": "gru", "memory_size": 4, "share_weights": False}),
    "cw_qmix, gru": ("cw_qmix", {"core": "gru", **BURNT}),
    "cds_qmix, gru": ("cds_qmix", {"core": "gru", **BURNT}),
    "coma, gru": ("coma", {"critic_hidden": (6,), "memory": "gru", "memory_size": 4, "normalise_returns": True}),
}  # fmt: skip
REPEATED = {
    *(
        "ppo, gru by agent",
        "vmpo, gru by agent",
        "mat, boxes",
        "cw_qmix, gru",
        "cds_qmix, gru",
        "coma, gru",
        "happo, gru",
    ),
    *(
        "mmd, moving",
        "rnad, magnet",
        "rnad, bounds",
        "rnad, surrogate",
        "dqn, states, double",
        "dqn, dueling",
        "ddpg, twin",
    ),
    *("sac, one", "maddpg, cold", "apex", "apex_ddpg", "mat_dec", "munchausen_dqn", "ow_qmix", "reinforce", "vdn"),
    *("ppo, gru", "coppo, gru by agent"),
}
"""Whose updates are those of other cases, but for terms of a loss that hold no device."""
OWN_GAMES = {"alphazero", "muzero"}
"""Those that learn from what no made-up rollout has."""
OF_GAMES = {"gamma": 1.0, "rollout_unit": "episodes", "unroll": 3}
OPTIONS = {"r2d2": BURNT, "muzero": OF_GAMES, "coma": {"critic_hidden": (6,)}, "hatrpo": FEW_STEPS}
CASES = {name: (name, OPTIONS.get(name, {})) for name in ALGORITHMS if name not in WITHOUT_GRADIENTS} | MORE
TORCH = {
    *("alphazero", "muzero"),
    *("a2c", "a2c, of many", "a2c, rnd", "reinforce", "impala", "impala, lstm", "ppo, gru", "ppo, by agent", "ppo, gru by agent", "mappo"),
    *("mat", "mat, boxes", "mat_dec", "maddpg", "maddpg, box", "maddpg, cold"),
    *("dqn, by agent", "munchausen_dqn", "qr_dqn", "iqn", "rainbow", "r2d2", "qmix", "qmix, gru", "qmix, by agent", "vdn"),
    *("mpo", "mpo, discrete", "mpo, states", "vmpo", "vmpo, box", "vmpo, gru by agent"),
    *("happo", "happo, gru", "hatrpo", "hatrpo, gru, shared", "a2po", "a2po, shared", "coppo", "coppo, gru by agent"),
    *("cds_qmix", "cds_qmix, gru", "cw_qmix", "cw_qmix, gru", "ow_qmix", "qplex", "coma", "coma, gru"),
}  # fmt: skip
"""Those without passes that are written out."""


class Case:
    """An algorithm of the registry, small, where it serves."""

    def __init__(self, name, request, **changes):
        name, options, *kind = CASES[name]
        cls, self.remembers = resolve_name("algorithm", name, ALGORITHMS), bool(options.keys() & {"core", "memory"})
        self.algorithm = cls(**{k: v for k, v in (SMALL | changes).items() if k in cls.model_fields} | options)
        if name in OWN_GAMES:
            self.env, self.seats = alphazero_games.spec(), (0, 1)
            return
        teams, self.seats = getattr(cls, "for_teams", False), (0,)
        self.env = self._env(kind[0] if kind else "teams" if teams else cls.about.actions[0], request)

    def _env(self, kind, request):
        if "team" in kind:
            return team_env(agents=2, action=Box(-1.0, 3.0, (2, 1), np.float32) if "boxes" in kind else None)
        env = request.getfixturevalue("enumerated" if kind == "enumerated" else "tensors")
        spaces = {"multi": MultiDiscrete([2, 3]), "box": Box(-1.0, 3.0, (2, 1), np.float32)}
        agents = tuple(replace(agent, action=spaces.get(kind, agent.action)) for agent in env.agents)
        return replace(env, agents=agents)

    def learner(self, device=CPU):
        return self.algorithm.learner(LearnerContext(self.env, self.seats, 0, total=1000, device=device))

    def experience(self, learner, number=0):
        if len(self.seats) > 1:
            return alphazero_games.played(learner, number)
        rng = np.random.default_rng([number, 5])
        if len(self.env.agents_of(0)) > 1:
            return team_rollout(self.env, learner, pieces=15, rng=rng, longest=3)
        policy = build_policy(learner.spec, learner.weights())
        collect = self.algorithm.collect()
        return synthetic_rollout(self.env, policy, seats=(0,), segments=30, rng=rng, collect=collect)


FLAT = ("weights", "target", "average")


def taught(learner, rows, tables=None):
    """What an update from each of its tables said, and how much attention it asks for. tables: the device that they lie on."""
    told = {}
    for name, items in learner.items(rows):
        size = len(next(iter(items.values())))
        sample = Sample(items, np.arange(size), np.linspace(0.5, 1.0, size))
        if tables is not None:
            table = build_table(TableSpec(name), torch.device(tables))
            table.try_insert(items)
            drawn = table.try_sample(0, np.random.default_rng(0)).columns
            assert {type(column) for key, column in drawn.items() if key not in ON_HOST} == {torch.Tensor}
            sample = replace(sample, columns=drawn)
        told |= learner.update(sample)
        told |= {f"priorities of {name}": np.linalg.norm(found) for _, _, found in updated_priorities(learner)}
    return told


def shaken(state, rng):
    """Networks and their targets elsewhere, each by itself, so that it matters which of them is asked."""
    if not isinstance(state, dict):
        return state
    apart = {
        k: v + 0.3 * rng.standard_normal(v.shape).astype(v.dtype)
        for k, v in state.items()
        if k in FLAT and not isinstance(v, dict)
    }
    return {k: apart[k] if k in apart else shaken(v, rng) for k, v in state.items()}


def leaves(state, path=""):
    """Arrays and numbers by where they are."""
    for key, value in state.items() if isinstance(state, dict) else enumerate(state):
        if isinstance(value, dict | list | tuple):
            yield from leaves(value, f"{path}/{key}")
        else:
            yield f"{path}/{key}", np.asarray(value)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:for .* copying from a non-meta parameter")  # says that nothing is copied
@pytest.mark.parametrize("name", [name for name in CASES if name not in REPEATED])
def test_an_update_reads_nothing_back(name, request):
    """Where tensors have no numbers, whatever wants one raises. What it says and keeps has the form of what a CPU's does. Rows come from
    the device; for each algorithm, from the host too."""
    case = Case(name, request, epochs=1)
    here, there = case.learner(), case.learner(DeviceChoice("meta"))
    assert (here.placement.written, there.placement.device) == (name not in TORCH, "meta")
    rows = case.experience(here)
    there.load_state_dict(here.state_dict())
    told = taught(here, rows).keys()
    for tables in (None, "meta") if name in ALGORITHMS or case.remembers else ("meta",):
        assert taught(there, rows, tables=tables).keys() == told
    first, second = ({path: leaf.shape for path, leaf in leaves(each.state_dict())} for each in (here, there))
    assert first == second
    assert {k: v.shape for k, v in here.weights().items()} == {k: v.shape for k, v in there.weights().items()}
    here.load_state_dict(there.state_dict())


def assert_same(one, other, *, rtol=2e-3, atol=1e-4):
    """All that two learners keep."""
    first, second = (dict(leaves(learner.state_dict())) for learner in (one, other))
    assert first.keys() == second.keys()
    for path, leaf in first.items():
        np.testing.assert_allclose(leaf, second[path], rtol=rtol, atol=atol, err_msg=path)


def unexplained(told):
    """What is explained of the variance is the rest of a quotient, which is exact to so many digits as that."""
    return {name: 1.0 - value if name == "explained_variance" else value for name, value in told.items()}


def assert_learn_alike(case, one, other, *, updates=4, sizes=4):
    """From the same experience, and where each goes on from what the other has. sizes: of how many rollouts the lengths are."""
    begin = shaken(one.state_dict(), np.random.default_rng(1))
    for learner in (one, other):
        learner.load_state_dict(begin)
    for number in range(updates):
        if number == 2:
            kept = one.state_dict()
            one.load_state_dict(other.state_dict())
            other.load_state_dict(kept)
        rows = case.experience(one, number % sizes)
        told = [unexplained(taught(learner, rows)) for learner in (other, one)]
        assert told[0] == pytest.approx(told[1], rel=2e-3, abs=2e-5), number
    assert_same(one, other)


@pytest.mark.parametrize("name", [name for name in CASES if name not in TORCH])
def test_both_backends_learn_alike(name, request):
    case = Case(name, request)
    written, autograd = case.learner(), case.learner(DeviceChoice("cpu", written=False))
    assert (written.placement.written, autograd.placement.written) == (True, False)
    assert_learn_alike(case, written, autograd)


@pytest.mark.parametrize("name", ["muzero", "ppo, states", "impala, lstm", "dqn, states", "rainbow", "r2d2", "qmix, gru", "sac",
                                  "sac, states", "nfsp, states", "maddpg", "hatrpo", "a2po, shared", "coppo, gru by agent"])  # fmt: skip
def test_device_tables_give_the_same_update_as_host_tables(name, request):
    """To the bit. (Tensors on a CPU stand for those of a GPU.)"""
    case = Case(name, request)
    one, other = (case.learner(DeviceChoice("cpu", written=False)) for _ in range(2))
    for number in range(2):
        rows = case.experience(one, number)
        assert taught(one, rows) == taught(other, rows, tables="cpu")
    assert_same(one, other, rtol=0, atol=0)


def test_minibatches_of_rows_from_memory_are_the_same_everywhere(request, monkeypatch):
    """Drawn on the host, by the generator that a CPU's are drawn by: a device's own would draw others."""
    case = Case("ppo", request)
    here, there = case.learner(DeviceChoice("cpu", written=False)), case.learner(DeviceChoice("meta"))
    asked, shuffler = [], OnPolicyLearner.shuffler

    def counted(self):
        asked.append(self.placement.device)
        return shuffler(self)

    monkeypatch.setattr(OnPolicyLearner, "shuffler", counted)
    rows = case.experience(here)
    for learner in (here, there):
        taught(learner, rows)
    assert asked == ["cpu", "meta"]


def test_a_step_of_an_enumerated_game_counts_for_its_states(monkeypatch):
    """Which is what passes that are written out compute: 468 of each player's in Leduc poker, however many rows there are."""
    monkeypatch.setattr(device, "gpu_count", lambda: 1)
    env = make_env("openspiel/leduc_poker", num_envs=1, tree="on").spec
    for batch in (750, 1_000_000):
        learner = PPO(batch=batch).learner(LearnerContext(env, (0,), 0, device=DeviceChoice("auto")))
        assert str(learner.placement).startswith("cpu (CPU kernels): 2.9e+06 multiplications a step are too few")


GRAPHS = ["ppo", "ppo, separate, vtrace", "a2c", "mmd", "dqn", "dqn, dueling", "sac", "ddpg, twin"]
LAUNCHES = ["ppo, gru", "ppo, by agent", "dqn, by agent", "vmpo", "happo", "r2d2", "mpo", "nfsp"]


@pytest.mark.parametrize("name", GRAPHS + LAUNCHES)
def test_auto_knows_whose_steps_are_graphs(name, request, monkeypatch):
    """They are worth a GPU much earlier than steps whose kernels are launched one by one."""
    monkeypatch.setattr(device, "gpu_count", lambda: 1)
    why = Case(name, request).learner(DeviceChoice("auto")).placement.why
    least = "4e+06" if name in GRAPHS else "5e+07"
    assert f"too few for a GPU (from {least})" in why


def test_weights_leave_a_device_together(request):
    """As they are by name, buffers among them, whatever their form."""
    case = Case("a2c, of many", request)
    weights = case.learner().weights()
    tensors = [torch.from_numpy(array) for array in weights.values()]
    packed = [tensor.to("meta") for tensor in tensors]
    assert [array.shape for array in floats_to_host(packed)] == [array.shape for array in weights.values()]
    kept = floats_to_host([*tensors, torch.arange(3), torch.tensor(0.1, dtype=torch.float64)])
    assert {array.dtype for array in kept} == {np.dtype(np.float32)}
    np.testing.assert_array_equal(kept[-1], np.float32(0.1))


def test_bf16_multiplies_so_and_keeps_parameters_in_float32(request):
    case, told = Case("a2c", request), {}
    for precision in ("float32", "bf16"):
        learner = case.learner(DeviceChoice("cpu", precision))
        told[precision] = taught(learner, case.experience(learner))
        assert {array.dtype for array in learner.weights().values()} == {np.dtype(np.float32)}
    assert told["bf16"]["loss"] != told["float32"]["loss"]
    assert told["bf16"]["loss"] == pytest.approx(told["float32"]["loss"], abs=0.02)
