"""ONNX files, torch modules and CleanRL's agents: they play what their networks answer."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from ludus.apps.export.formats import onnx_bytes, pt2_bytes
from ludus.apps.export.network import ExportedPolicy
from ludus.contrib.agents.agent_models.common import Refused
from ludus.contrib.agents.agent_models.outputs import Reader
from ludus.contrib.agents.protocol import hello
from ludus.core.errors import PolicyError
from ludus.evaluation.policies import SampledPolicy
from ludus.policies import actor_critic
from ludus.policies.base import Policy
from ludus.policies.registry import build_policy
from ludus.policies.specs import actor_critic_spec, body_config
from tests.agents.agent_games import begun, game, requests

BOX = spaces.Box(-1, 1, (4,), np.float32)
MOVES = spaces.Box(-2, 2, (2,), np.float32)
ROWS = np.random.default_rng(0).uniform(-1, 1, (200, 4)).astype(np.float32)
MASK = np.random.default_rng(1).random((200, 3)) < 0.7
MASK[~MASK.any(axis=1)] = True


class Net(nn.Module):
    """Scores of three actions; illegal ones get -1e9, if it is told which."""

    def __init__(self, size: int = 8) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, size), nn.Tanh(), nn.Linear(size, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Masked(Net):
    def forward(self, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        scores = self.layers(x)
        return scores.masked_fill(~mask, -1e9), scores.sum(dim=1)


def asked(of: Any = None, *, mask: Any = MASK, rows: Any = ROWS) -> Any:
    return requests(list(range(len(rows))), mask=mask, of=of)._replace(observation=rows)


def numbers(answers: Any) -> list[int]:
    return [int(one) for one in answers]


@pytest.mark.parametrize(
    ("output", "name", "value", "actions"),
    [
        ("", "logits", [[0.0, 9.0, 8.0]], [2]),
        ("", "probabilities", [[0.1, 0.8, 0.1]], [0]),
        ("", "q_values", [[1.0, 3.0, 2.0]], [2]),
        ("", "action", np.array([2]), [2]),
        ("action", "out", np.array([[2.0]]), [2]),
        ("values", "out", [[1.0, 3.0, -2.0]], [0]),
    ],
)
def test_outputs(output: str, name: str, value: Any, actions: list[int]) -> None:
    reader = Reader(hello(game())["game"], output=output, deterministic=True, masks=True)
    answers = reader.actions(0, [0], [5], np.array([[True, False, True]]), np.asarray(value), name)
    assert numbers(answers) == actions


def test_outputs_of_another_size_are_refused() -> None:
    reader = Reader(hello(game())["game"], output="", deterministic=True, masks=True)
    with pytest.raises(Refused, match="logits of 3 actions for 1 rows"):
        reader.actions(0, [0], [5], None, np.zeros((1, 4)), "logits")
    with pytest.raises(Refused, match="one of action, logits"):
        Reader(hello(game())["game"], output="logit", deterministic=True, masks=True)


def test_a_torch_class_with_its_weights(tmp_path: Path) -> None:
    for cls in (Net, Masked):
        net = cls(6)
        torch.save(net.state_dict(), tmp_path / "net.pt")
        text = f"torch:{__name__}:{cls.__name__}@{tmp_path}/net.pt,args='{{\"size\": 6}}'"
        with begun(f"{text},deterministic=true", tmp_path) as agent:
            played = numbers(agent.act(asked()))
        scores = net.layers(torch.from_numpy(ROWS)).detach().numpy()
        assert played == np.where(MASK, scores, -np.inf).argmax(axis=1).tolist()
    with pytest.raises(PolicyError, match=r"are not of .*Masked"), begun(text.replace("6}", "5}"), tmp_path):
        pass


def test_draws_depend_on_the_episodes_seed_alone(tmp_path: Path) -> None:
    torch.save(Net().state_dict(), tmp_path / "net.pt")
    text, played = f"torch:{__name__}:Net@{tmp_path}/net.pt", []
    for rows in (slice(0, 200), slice(100, 200)):
        with begun(text, tmp_path) as agent:
            wanted = asked()
            part = wanted._replace(
                slot=wanted.slot[rows],
                seed=wanted.seed[rows],
                body=wanted.body[rows],
                observation=wanted.observation[rows],
                mask=wanted.mask[rows],
            )
            played.append(numbers(agent.act(part)))
    assert played[0][100:] == played[1]
    assert len(set(played[0])) == 3
    assert MASK[np.arange(200), played[0]].all()


@pytest.mark.slow
def test_torchscript_and_onnx_files(tmp_path: Path) -> None:
    net = Net().eval()
    wanted = np.where(MASK, net(torch.from_numpy(ROWS)).detach().numpy(), -np.inf).argmax(axis=1).tolist()
    example, rows = torch.zeros(1, 4), torch.export.Dim("rows")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # exporters warn of themselves
        for name, shapes in (("free", {"x": {0: rows}}), ("one", None)):
            inputs = (torch.zeros(3, 4),) if shapes else (example,)
            torch.onnx.export(
                net, inputs, tmp_path / f"{name}.onnx", dynamic_shapes=shapes, verbose=False, external_data=False
            )
        torch.jit.trace(net, example).save(tmp_path / "net.pt")
    for text in (f"onnx:{tmp_path}/free.onnx", f"onnx:{tmp_path}/one.onnx", f"torch:{tmp_path}/net.pt"):
        with begun(f"{text},deterministic=true", tmp_path) as agent:
            assert numbers(agent.act(asked())) == wanted
    with (
        pytest.raises(PolicyError, match=r"observations of shape \(4,\)"),
        begun(f"onnx:{tmp_path}/free.onnx", tmp_path, game(spaces.Box(-1, 1, (5,), np.float32))),
    ):
        pass
    with pytest.raises(PolicyError, match="could not be loaded by ONNX Runtime"), begun(f"onnx:{__file__}", tmp_path):
        pass


def recurrent(seed: int) -> Policy:
    """A policy with a GRU, whose weights act on all inputs."""
    spec = actor_critic_spec(
        shape=(4,), action={"kind": "categorical", "actions": 3}, body=body_config(hidden=(8,)), core="gru", width=8
    )
    rng = np.random.default_rng(seed)
    arrays = actor_critic.arrays_of(actor_critic.make_network(spec, seed=seed))
    return build_policy(
        spec, {name: array + rng.normal(0, 0.5, array.shape).astype(np.float32) for name, array in arrays.items()}
    )


@pytest.mark.slow
def test_a_policy_that_goes_out_comes_in_again(tmp_path: Path) -> None:
    """With its memory, in both forms; of a mixture, each episode has one member."""
    policy, n = recurrent(3), len(ROWS)
    alone = ExportedPolicy([SampledPolicy("a", policy, mode="greedy")], name="a")
    memory = np.zeros((n, *policy.memory_shape), np.float32)  # type: ignore[misc]
    wanted = []
    for k in range(3):
        out = policy.act(ROWS * (k + 1) / 3, MASK, memory, np.zeros((n, policy.noise_width), np.float32), mode="greedy")
        memory = out.memory
        wanted.append(numbers(out.action))
    both = [SampledPolicy(str(k), recurrent(k), mode="explore", prob=prob) for k, prob in ((3, 0.6), (4, 0.4))]
    mixture = ExportedPolicy(both, name="both")
    played = []
    for name, write in (("onnx", onnx_bytes), ("pt2", pt2_bytes)):
        for what, exported in (("alone", alone), ("both", mixture)):
            (tmp_path / f"{what}.{name}").write_bytes(write(exported))
        scheme = "onnx" if name == "onnx" else "torch"
        with begun(f"{scheme}:{tmp_path}/alone.{name}", tmp_path) as agent:
            steps = [asked(rows=ROWS * np.float32((k + 1) / 3)) for k in range(3)]
            steps[1:] = [step._replace(seed=np.full(n, -1)) for step in steps[1:]]
            assert [numbers(agent.act(step)) for step in steps] == wanted
        with begun(f"{scheme}:{tmp_path}/both.{name}", tmp_path) as agent:
            played.append([numbers(agent.act(step)) for step in steps])
            members = np.array(list(agent._model._signed._member.values()))
        assert 0.25 < members.mean() < 0.55
    assert np.mean(np.array(played[0]) == np.array(played[1])) > 0.99  # draws, whose probabilities round differently


class CleanAgent(nn.Module):
    """As in CleanRL's ppo.py."""

    def __init__(self, envs: Any) -> None:
        super().__init__()
        size = int(np.prod(envs.single_observation_space.shape))
        self.actor = nn.Linear(size, envs.single_action_space.n)
        self.critic = nn.Linear(size, 1)

    def get_action_and_value(self, x: Tensor, action: Tensor | None = None) -> Any:
        probs = Categorical(logits=self.actor(x))
        action = probs.sample() if action is None else action
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


class CleanBoxes(nn.Module):
    """As in CleanRL's ppo_continuous_action.py."""

    def __init__(self, envs: Any) -> None:
        super().__init__()
        size = int(np.prod(envs.single_action_space.shape))
        self.actor_mean, self.actor_logstd = nn.Linear(4, size), nn.Parameter(torch.zeros(1, size))

    def get_action_and_value(self, x: Tensor) -> Any:
        mean = self.actor_mean(x)
        probs = Normal(mean, self.actor_logstd.expand_as(mean).exp())
        action = probs.sample()
        return action, probs.log_prob(action).sum(1), probs.entropy().sum(1), None


class CleanQ(nn.Module):
    """As in CleanRL's dqn.py."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.network = nn.Linear(4, env.single_action_space.n)

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)


def test_agents_of_cleanrl(tmp_path: Path) -> None:
    envs = type("Envs", (), {"single_observation_space": BOX, "single_action_space": spaces.Discrete(3)})
    for cls, layer in ((CleanAgent, "actor"), (CleanQ, "network")):
        net = cls(envs)
        torch.save(net.state_dict(), tmp_path / "a.cleanrl_model")
        scores = getattr(net, layer)(torch.from_numpy(ROWS)).detach().numpy()
        text = f"cleanrl:{tmp_path}/a.cleanrl_model,agent={__name__}:{cls.__name__}"
        with begun(f"{text},deterministic=true", tmp_path) as agent:
            assert numbers(agent.act(asked())) == np.where(MASK, scores, -np.inf).argmax(axis=1).tolist()
        played = []
        for _ in range(2):
            torch.manual_seed(len(played))  # which must not matter
            with begun(text, tmp_path) as agent:
                played.append(numbers(agent.act(asked())))
        assert played[0] == played[1]
        assert MASK[np.arange(200), played[0]].all()
    with pytest.raises(PolicyError, match="agent=module:Class is missing"), begun(text.partition(",")[0], tmp_path):
        pass


def test_agents_of_cleanrl_with_boxes(tmp_path: Path) -> None:
    of = game(BOX, MOVES)
    net = CleanBoxes(type("Envs", (), {"single_action_space": MOVES}))
    torch.save(net.state_dict(), tmp_path / "a.cleanrl_model")
    mean = net.actor_mean(torch.from_numpy(ROWS)).detach().numpy()
    text = f"cleanrl:{tmp_path}/a.cleanrl_model,agent={__name__}:CleanBoxes,illegal=random"
    with begun(f"{text},deterministic=true", tmp_path, of) as agent:
        np.testing.assert_allclose(np.array(agent.act(asked(of, mask=None))), mean, rtol=1e-5, atol=1e-6)
    with begun(text, tmp_path, of) as agent:
        drawn = np.array(agent.act(asked(of, mask=None)))
    inside = np.abs(mean) < 0.1
    assert 0.5 < (drawn - mean)[inside].std() < 1.2


def test_files_are_in_the_identity(tmp_path: Path) -> None:
    from ludus.policies.bots import parse_bot

    torch.save(Net().state_dict(), tmp_path / "net.pt")
    spec = parse_bot(f"torch:{__name__}:Net@{tmp_path}/net.pt")
    before = json.dumps(spec.identity(), sort_keys=True)
    torch.save(Net().state_dict(), tmp_path / "net.pt")
    assert json.dumps(spec.identity(), sort_keys=True) != before
