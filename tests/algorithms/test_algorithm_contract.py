"""Every algorithm against the shipped contract check; and the check against algorithms that break it."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

from ludus.algorithms.common.base import CollectConfig, LearnerContext
from ludus.algorithms.common.losses import entropy, log_prob, policy_gradient, value_loss
from ludus.algorithms.common.returns import bootstrap_values, gae
from ludus.algorithms.dqn.config import DQN
from ludus.algorithms.ppo.config import PPO
from ludus.contrib.algorithms.tabular_q.config import TabularQ
from ludus.core.errors import PolicyError, TrainingError
from ludus.core.seeding import generator
from ludus.policies.actor_critic import initial_weights
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.specs import mlp_spec
from ludus.replay.base import TableSpec
from ludus.testing.algorithm import check_algorithm

SMALL = {"batch": 40, "hidden": (8,)}


CASES = {
    "ppo": ("enumerated", PPO(epochs=3, **SMALL)),
    "ppo-minibatches-separate-clipped": (
        "tensors",
        PPO(epochs=2, minibatches=3, value_network="separate", clip_value=0.2, activation="relu", **SMALL),
    ),
    "ppo-kl-decisions-lag": (
        "enumerated",
        PPO(epochs=3, target_kl=1e-4, batch_unit="decisions", max_lag=1, **SMALL),
    ),
    "dqn": ("tensors", DQN(rollout=40, min_size=50, hidden=(8,), batch=32, target_period=3)),
    "dqn-polyak-dueling-3-step": (
        "enumerated",
        DQN(rollout=40, min_size=50, hidden=(8,), batch=32, polyak=0.1, dueling=True, double=False, n_step=3),
    ),
    "dqn-prioritised": ("tensors", DQN(rollout=40, min_size=50, hidden=(8,), batch=32, priority_exponent=0.6)),
    "tabular-q-visits": ("enumerated", TabularQ(batch=40, step="visits", learning_rate=0.5)),
    "tabular-q-constant": ("enumerated", TabularQ(batch=40, step="constant", learning_rate=0.5)),
}


@pytest.mark.parametrize("name", CASES)
def test_shipped_algorithms_satisfy_algorithm_contract(name, request):
    """One enumerated game and one with tensors for each."""
    kind, algorithm = CASES[name]
    check_algorithm(algorithm, request.getfixturevalue(kind), seats=(1,), rounds=2)


def test_seats_of_several_players(enumerated):
    check_algorithm(PPO(epochs=2, **SMALL), enumerated, seats=(0, 1), rounds=2)
    check_algorithm(TabularQ(batch=40), enumerated, seats=(0, 1), rounds=2)


# ------------------------------------------------------------------ an algorithm of a user's own: A2C with torch's autograd


class A2CLearner:
    def __init__(self, context, start):
        env = context.env
        self.spec = mlp_spec(inputs=4, actions=env.agents[0].action.n, hidden=(8,))
        fresh = initial_weights(self.spec, generator(context.seed, "a2c"))
        weights = ActorCriticPolicy(self.spec, start if start is not None else fresh).weights()
        self.parameters = {k: torch.tensor(v, requires_grad=True) for k, v in weights.items()}
        self.waiting = False

    def forward(self, x):
        p = self.parameters
        hidden = torch.tanh(torch.as_tensor(x) @ p["actor.body.1.weight"].T + p["actor.body.1.bias"])
        value = hidden @ p["value.weight"].T + p["value.bias"]
        return hidden @ p["head.weight"].T + p["head.bias"], value[:, 0]

    def items(self, t):
        with torch.no_grad():
            value, after = (self.forward(x)[1].numpy() for x in (t.observation, t.bootstrap_observation))
        advantage, target = gae(t.start, t.reward, value, bootstrap_values(t.tail, after), 0.99, 0.95)
        self.waiting = True
        columns = {"x": t.observation, "mask": t.mask, "action": t.action, "advantage": advantage, "target": target}
        return [("rows", columns)]

    def batches(self):
        return [("rows", 0)] if self.waiting else []

    def update(self, batch):
        c = {k: torch.from_numpy(v) for k, v in batch.columns.items()}
        logits, value = self.forward(c["x"])
        gain = policy_gradient(log_prob(logits, c["action"], c["mask"]), c["advantage"])
        loss = (gain + value_loss(value, c["target"]) - 0.01 * entropy(logits, c["mask"])).mean()
        if not torch.isfinite(loss):
            raise TrainingError("A2C: the loss is not finite")
        gradients = torch.autograd.grad(loss, list(self.parameters.values()))
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters.values(), gradients, strict=True):
                parameter -= 0.01 * gradient
        self.waiting = False
        return {"loss": loss.item()}

    def weights(self):
        return {k: v.detach().numpy().copy() for k, v in self.parameters.items()}

    def state_dict(self):
        return {"weights": self.weights()}

    def load_state_dict(self, state):
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(torch.from_numpy(state["weights"][name]))


@dataclass(frozen=True)
class A2C:
    item: str = "decision"
    learner_class: type = A2CLearner
    specs: tuple[TableSpec, ...] = field(default=(TableSpec("rows"),))

    def check(self, env, seats=()):
        return None

    def collect(self):
        return CollectConfig("episodes", 30)

    def tables(self):
        return self.specs

    def policy(self, env, seats):
        return mlp_spec(inputs=4, actions=env.agents[0].action.n, hidden=(8,))

    def learner(self, context, start=None):
        return self.learner_class(context, start)


def test_an_algorithm_of_a_user_passes(tensors):
    check_algorithm(A2C(), tensors)


class KeepsItsWeights(A2CLearner):
    def weights(self):
        return {k: v.detach().numpy() for k, v in self.parameters.items()}


class Forgets(A2CLearner):
    def load_state_dict(self, state):
        pass


class Unseeded(A2CLearner):
    def __init__(self, context, start):
        super().__init__(context, start)
        with torch.no_grad():
            self.parameters["actor.body.1.weight"] += float(np.random.default_rng().random())


class LearnsFromNaN(A2CLearner):
    def update(self, batch):
        try:
            return super().update(batch)
        except TrainingError:
            return {"loss": 0.0}


class ChangesTheRollout(A2CLearner):
    def items(self, t):
        t.reward[:] = 0.0
        return super().items(t)


class NeverLearns(A2CLearner):
    def update(self, batch):
        self.waiting = False
        return {}


class TakesAnything(A2CLearner):
    def __init__(self, context, start):
        try:
            super().__init__(context, start)
        except PolicyError:
            super().__init__(context, None)


class WrongTable(A2CLearner):
    def items(self, t):
        return [("other", super().items(t)[0][1])]


class AsksAtOnce(A2CLearner):
    def __init__(self, context, start):
        super().__init__(context, start)
        self.waiting = True


class KeepsObjects(A2CLearner):
    def state_dict(self):
        return {"weights": self.weights(), "object": self}


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (KeepsItsWeights, "must answer copies|changed no weight"),
        (Forgets, "not those that were saved"),
        (Unseeded, "random stream is not keyed"),
        (LearnsFromNaN, "rewards that are NaN"),
        (ChangesTheRollout, "items changed the reward"),
        (NeverLearns, "changed no weight"),
        (TakesAnything, "must raise PolicyError"),
        (WrongTable, "does not declare"),
        (AsksAtOnce, "seen nothing asks for batches"),
        (KeepsObjects, "a checkpoint holds"),
    ],
)
def test_the_check_finds_what_is_wrong(learner, message, tensors):
    with pytest.raises(AssertionError, match=message):
        check_algorithm(A2C(learner_class=learner), tensors)


def test_the_check_finds_wrong_declarations(tensors):
    with pytest.raises(AssertionError, match="two tables of one name"):
        check_algorithm(A2C(specs=(TableSpec("rows"), TableSpec("rows"))), tensors)
    with pytest.raises(AssertionError, match="item is 'row'"):
        check_algorithm(A2C(item="row"), tensors)


@pytest.mark.parametrize("algorithm", [PPO(**SMALL), DQN(hidden=(8,))], ids=["ppo", "dqn"])
def test_fresh_weights_depend_on_the_seed_only(algorithm, enumerated):
    first, again, other = (algorithm.learner(LearnerContext(enumerated, (0,), seed)).weights() for seed in (1, 1, 2))
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert any(not np.array_equal(first[k], other[k]) for k in first)
