"""Exported policies compute what policies compute: kinds and heads by formats, mixtures, memory, refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ludus.apps.export import ONNX, PYTHON
from ludus.apps.export.check import compare, random_decisions
from ludus.apps.export.export import export_policy, opened
from ludus.apps.export.kaggle import KAGGLE_GAMES
from ludus.apps.export.network import ExportedPolicy
from ludus.apps.export.numpy_source import HELPERS, numpy_function
from ludus.core.errors import ConfigError, PolicyError
from ludus.core.types import PolicySpec, Weights
from ludus.envs.config import Environment
from ludus.evaluation.policies import SampledPolicy
from ludus.policies import action_values, actor_critic, registry, specs
from ludus.policies.base import Policy
from ludus.policies.file import save_policy
from ludus.policies.specs import QHeadSpec, action_values_spec, actor_critic_spec, body_config

CHOICE = {"kind": "categorical", "actions": 5}
SEVERAL = {"kind": "multi_categorical", "choices": [2, 3]}
BOX = {"shape": [2], "low": [-1.0, 0.0], "high": [1.0, 4.0]}
OPEN = {"kind": "gaussian", "shape": [2], "low": [None, -2.0], "high": [None, 2.0]}
SMALL = body_config(hidden=(16, 8))


def actor(shape: tuple[int, ...] = (6,), action: Any = CHOICE, body: Any = SMALL, **options: Any) -> PolicySpec:
    return actor_critic_spec(shape=shape, action=action, body=body, **options)


def values(
    shape: tuple[int, ...] = (6,), body: Any = SMALL, head: QHeadSpec | None = None, **options: Any
) -> PolicySpec:
    return action_values_spec(shape=shape, actions=5, body=body, head=head, **options)


KINDS: dict[str, PolicySpec] = {
    "perceptron": actor(),
    "normalised": actor(normalise=("observations", "returns")),
    "scaled": actor(scale=1 / 255),
    "GRU": actor(core="gru", width=12),
    "LSTM, critic apart": actor(core="lstm", width=12, value="separate"),
    "several numbers": actor(action=SEVERAL),
    "Gaussian": actor(action=OPEN),
    "squashed": actor(action={"kind": "tanh", "warm_up": True, **BOX}),
    "point": actor(action={"kind": "point", **BOX}, value="none"),
    "agents": actor(agents=3),
    "nature": actor((4, 36, 36), body=body_config("nature"), scale=1 / 255),
    "impala": actor((3, 16, 16), body=body_config("impala")),
    "values": values(),
    "dueling": values(head=QHeadSpec(dueling=True)),
    "c51": values(head=QHeadSpec(distribution="c51", atoms=7, low=-1.0, high=1.0)),
    "quantiles, dueling": values(head=QHeadSpec(distribution="quantile", atoms=5, dueling=True)),
    "implicit": values(head=QHeadSpec(distribution="implicit", atoms=4)),
    "values of agents, GRU": values(agents=3, core="gru", width=8),
    "individual": values(individual=3, core="lstm", width=8),
    "NFSP": specs.nfsp_spec(values(), actor(value="none")),
    "averaged": specs.averaged_spec(actor()),
    "actor and values": specs.actor_values_spec(actor(action={"kind": "point", **BOX}, value="none"), hidden=(8,)),
    "choice": specs.choice_spec(
        actor(action={"kind": "categorical", "actions": 2}), [(actor(), "explore"), (values(), "greedy")]
    ),
    "conditioned": specs.conditioned_spec(actor((8,))),
}
NOT_CLEAR = ("Gaussian", "squashed", "point", "actor and values", "choice")
"""Boxes, and a mixture of members that explore, have no best action."""


def weights_of(spec: PolicySpec, rng: np.random.Generator) -> Weights:
    """Return random weights of a spec, which act on all inputs."""
    config = spec.config
    if spec.kind in ("nfsp", "averaged"):
        return specs.joined({part: weights_of(specs.spec_of(spec, part), rng) for part in config})
    if spec.kind == "choice":
        parts = {"chooser": config["chooser"], **{str(k): one for k, one in enumerate(config["members"])}}
        made = {name: weights_of(PolicySpec(one["kind"], one["config"]), rng) for name, one in parts.items()}
        return specs.joined(made)
    if spec.kind == "conditioned":
        inner = weights_of(specs.spec_of(spec, "network"), rng)
        return {"condition": rng.random((3, 2)).astype(np.float32), **specs.joined({"network": inner})}
    if spec.kind == "actor_values":
        policy = specs.spec_of(spec, "actor")
        critics = {
            "members.0.0.weight": (8, 8),
            "members.0.0.bias": (8,),
            "members.0.2.weight": (1, 8),
            "members.0.2.bias": (1,),
        }
        own = {name: rng.normal(size=shape).astype(np.float32) for name, shape in critics.items()}
        return specs.joined({"actor": weights_of(policy, rng), "critics": own})
    if spec.kind == "action_values":
        network: Any = action_values.make_network(spec, seed=int(rng.integers(2**31)))
        return {**varied(actor_critic.arrays_of(network), rng), "epsilon": np.array([0.3], np.float32)}
    agents = actor_critic.agents_in(spec)
    network = actor_critic.make_network(spec, seed=3) if agents == 1 else actor_critic.TeamNetwork(spec, seed=3)
    return varied(actor_critic.arrays_of(network), rng)


def varied(arrays: dict[str, Any], rng: np.random.Generator) -> Weights:
    """Return weights whose outputs differ: heads are small where they begin; statistics stay positive."""
    out = {}
    for name, array in arrays.items():
        number = name.rpartition(".")[2]
        inputs = int(np.prod(array.shape[1:])) if array.ndim > 1 else 1
        # Scores of trained size: of large ones single precision has too few digits to compare by.
        noise = rng.normal(0, 0.3 * min(1.0, (4.0 if array.ndim < 3 else 0.5) / np.sqrt(inputs)), array.shape).astype(
            np.float32
        )
        if number == "warm_up":
            out[name] = array
        elif number in ("var", "noise"):
            out[name] = np.abs(array + noise).astype(np.float32)
        else:
            out[name] = ((0.5 if array.ndim > 2 else 1.0) * array + noise).astype(np.float32)
    return out


def built(name: str) -> Policy:
    return registry.build_policy(KINDS[name], weights_of(KINDS[name], np.random.default_rng(7)))


def modes_of(policy: Policy) -> list[str]:
    return [mode for mode in ("explore", "greedy") if mode in policy.modes]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "perceptron" else pytest.mark.slow) for name in KINDS]
)
def test_python_source_plays_as_the_policy_does(name: str) -> None:
    check(name, PYTHON)


class Operation(torch.nn.Module):
    """A function of one input as a module; `table` is a buffer."""

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("table", torch.randn(4, 3, generator=torch.Generator().manual_seed(1)))

    def forward(self, x: Any) -> Any:
        return (self.function(x, self.table),)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda x, table: table.index_select(0, (x[:, 0] > 0).long()),
        lambda x, table: torch.nn.functional.embedding((x > 0).long(), table),
        lambda x, table: x.unflatten(1, (2, 3)).unbind(1)[1].cumsum(1),
        lambda x, table: (1 - x).sin().floor() + x.sign() * (x.abs() + 1).rsqrt() + (x.abs() + 1).reciprocal(),
        lambda x, table: x.abs().log1p() + x.clamp(max=1).expm1() + x**2,
        lambda x, table: torch.nn.functional.leaky_relu(x, 0.2) + torch.nn.functional.elu(x) + torch.nn.functional.hardtanh(x),
        lambda x, table: torch.nn.functional.layer_norm(x, (6,)) + torch.nn.functional.log_softmax(x, 1),
        lambda x, table: torch.nn.functional.layer_norm(x[:, :3], (3,), table[0], table[1]),
        lambda x, table: torch.nn.functional.silu(x) + torch.nn.functional.softplus(x),
    ],
)  # fmt: skip
def test_operations_of_custom_bodies_have_numpy_source(function: Callable[[Any, Any], Any]) -> None:
    module, x = Operation(function), torch.randn(5, 6, generator=torch.Generator().manual_seed(2))
    program = torch.export.export(module, (x[:3],), dynamic_shapes={"x": {0: torch.export.Dim("rows", min=1)}})
    source, arrays = numpy_function(program, ["x"])
    there: dict[str, Any] = {}
    exec(f"import operator\nimport numpy as np\n{HELPERS}\n{source}", there)
    (out,) = there["forward"]([array.numpy() for array in arrays], x.numpy())
    np.testing.assert_allclose(out, module(x)[0].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("to", [ONNX, "pt2"])
@pytest.mark.parametrize("name", KINDS)
def test_graphs_play_as_the_policy_does(name: str, to: str) -> None:
    check(name, to)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normalised", "GRU", "squashed"])
def test_onnx_files_play_as_the_policy_does(name: str) -> None:
    check(name, ONNX)


def check(name: str, to: str) -> None:
    policy = built(name)
    for mode in modes_of(policy):
        sampled = [SampledPolicy(name, policy, mode=mode)]
        exported = ExportedPolicy(sampled, name=name)
        _, run = opened(to, exported, "made by a test")
        rows = list(random_decisions(sampled, exported.signature, count=300, seed=1))
        agreement = compare(exported.signature, run, rows)
        assert agreement.is_equal
        assert agreement.decisions >= 300
        assert name in NOT_CLEAR or mode == "explore" or agreement.clear > 0


def test_a_wrong_file_is_noticed() -> None:
    policy = built("perceptron")
    sampled = [SampledPolicy("a", policy, mode="explore")]
    exported = ExportedPolicy(sampled, name="a")
    _, run = opened(PYTHON, exported, "made by a test")
    rows = list(random_decisions(sampled, exported.signature, count=300, seed=1))
    off = compare(exported.signature, lambda x: run({**x, "observation": x["observation"] * np.float32(1.01)}), rows)
    assert not off.is_equal


@pytest.mark.slow
@pytest.mark.parametrize("to", [PYTHON, ONNX, "pt2"])
def test_a_mixture_plays_each_of_its_policies(to: str) -> None:
    parts = [("perceptron", "explore", 0.5), ("GRU", "greedy", 0.3), ("dueling", "explore", 0.2)]
    sampled = [SampledPolicy(name, built(name), mode=mode, prob=prob) for name, mode, prob in parts]
    exported = ExportedPolicy(sampled, name="three")
    assert exported.signature.inputs == ("observation", "mask", "memory", "member")
    _, run = opened(to, exported, "made by a test")
    agreement = compare(exported.signature, run, list(random_decisions(sampled, exported.signature, count=600, seed=1)))
    assert agreement.is_equal
    assert agreement.clear > 0


def test_a_python_file_needs_numpy_alone(tmp_path: Path) -> None:
    sampled = [SampledPolicy(name, built(name), mode="explore", prob=0.5) for name in ("perceptron", "GRU")]
    source, _ = opened(PYTHON, ExportedPolicy(sampled, name="two"), "A test made it.")
    (tmp_path / "agent.py").write_bytes(source)
    program = """
import json, sys
import agent
policy = agent.Policy(seed=1)
plays = []
for episode in range(40):
    policy.reset()
    plays.append([policy.act([0.1 * k] * 6, [1, 0, 1, 0, 0]) for k in range(5)])
print(json.dumps([plays, sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "ludus", "scipy", "numpy"})]))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    plays, modules = json.loads(done.stdout)
    assert modules == ["numpy"]
    assert {action for play in plays for action in play} == {0, 2}


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (PolicySpec("bot", {}), "code"),
        (PolicySpec("muzero", {}), "searches"),
        (PolicySpec("team_transformer", {}), "one after another"),
    ],
)
def test_what_is_no_network_is_refused_with_the_reason(spec: PolicySpec, why: str) -> None:
    class Stand:
        def __init__(self) -> None:
            self.spec = spec

    policy: Any = Stand()
    with pytest.raises(PolicyError, match=why):
        ExportedPolicy([SampledPolicy("x", policy)], name="x")


def test_noise_in_weights_is_refused_where_it_explores() -> None:
    spec = values(head=QHeadSpec(noisy=True))
    policy = registry.build_policy(spec, weights_of(spec, np.random.default_rng(1)))
    ExportedPolicy([SampledPolicy("noisy", policy, mode="greedy")], name="noisy")
    with pytest.raises(PolicyError, match="mode greedy"):
        ExportedPolicy([SampledPolicy("noisy", policy, mode="explore")], name="noisy")


def test_a_mixture_of_unlike_policies_is_refused() -> None:
    sampled = [SampledPolicy("a", built("perceptron")), SampledPolicy("b", built("several numbers"))]
    with pytest.raises(PolicyError, match="RUN@PLAYER/POLICY"):
        ExportedPolicy(sampled, name="both")


@pytest.mark.parametrize("game", ["openspiel/connect_four", "pettingzoo/connect_four_v3"])
def test_observations_of_connectx_are_those_of_the_environment(game: str) -> None:
    """A game of ConnectX is described as kaggle-environments does it, from the moves."""
    names: dict[str, Any] = {"np": np}
    exec(f"def encode(observation, configuration):{KAGGLE_GAMES[game].encode}", names)
    env = Environment(id=game, tree="off").make(num_envs=1)
    rng, board = np.random.default_rng(3), np.zeros((6, 7), int)
    timestep = env.reset(np.array([5], np.uint64))
    for move in range(30):
        player = move % 2
        due = timestep.due[player]
        if not len(due.slot) or len(timestep.finished.environment):
            break
        told = {"board": board.reshape(-1).tolist(), "mark": player + 1}
        observation, mask = names["encode"](told, {"rows": 6, "columns": 7})
        np.testing.assert_array_equal(np.ravel(observation), np.ravel(due.observation[0]))
        assert due.mask is not None
        np.testing.assert_array_equal(mask, due.mask[0])
        action = int(rng.choice(np.flatnonzero(mask)))
        board[np.flatnonzero(board[:, action] == 0)[-1], action] = player + 1
        timestep = env.step(tuple(np.full(len(one.slot), action, np.int32) for one in timestep.due))
    assert move > 6
    env.close()


def test_the_command_writes_a_file_that_was_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    from ludus.cli.main import main

    monkeypatch.chdir(tmp_path)
    policy = built("perceptron")
    save_policy(tmp_path / "one.safetensors", policy.spec, policy.weights())
    assert main(["export", "one.safetensors", "--to", "python"]) == 0
    assert "random observations" in capsys.readouterr().out
    assert (tmp_path / "one.py").is_file()
    assert main(["export", "one.safetensors", "--to", "python"]) == 2
    assert "--overwrite" in capsys.readouterr().err
    assert main(["export", "one.safetensors", "--to", "tflite"]) == 2
    assert "onnx" in capsys.readouterr().err


def test_a_place_that_is_not_there_is_said_before_anything_is_computed(tmp_path: Path) -> None:
    save_policy(
        tmp_path / "p.safetensors", KINDS["perceptron"], weights_of(KINDS["perceptron"], np.random.default_rng(1))
    )
    with pytest.raises(ConfigError, match="there is no folder"):
        export_policy(str(tmp_path / "p.safetensors"), to=PYTHON, path=tmp_path / "none" / "x.py")
