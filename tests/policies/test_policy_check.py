"""The shipped policy check finds what is wrong with a policy."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import PolicyError
from ludus.core.types import PolicyOutput, PolicySpec
from ludus.envs.tree.game_tree import compile_tree
from ludus.policies.categorical import CategoricalPolicy
from ludus.testing.fakes import CountingPolicy, FixedPolicy
from ludus.testing.policy import check_policy

KUHN = compile_tree("kuhn_poker").enumeration


class Biased(CategoricalPolicy):
    """Right: a table of one weight, whatever the state is."""

    def __init__(self, spec, weights):
        self.spec, self.actions = spec, 2
        self.share = float(weights["share"])

    @classmethod
    def make(cls):
        return cls(PolicySpec(f"test_policy_check:{cls.__name__}"), {"share": np.array(0.25)})

    def probabilities(self, observation, mask, *, mode):
        share = float(self.share >= 0.5) if mode == "greedy" else self.share
        probs = np.tile([1 - share, share], (len(observation), 1)) * mask
        return probs / probs.sum(axis=1, keepdims=True), {}

    def weights(self):
        return {"share": np.array(self.share)}


class ForgetsItsWeights(Biased):
    def weights(self):
        return {"share": np.array(0.75)}


class NotPure(Biased):
    calls = 0

    def act(self, observation, mask, memory, noise, *, mode="explore"):
        NotPure.calls += 1
        return super().act(observation, mask, memory, (noise + 0.37 * NotPure.calls) % 1, mode=mode)


class TakesAnyMode(Biased):
    def act(self, observation, mask, memory, noise, *, mode="explore"):
        return super().act(observation, mask, memory, noise, mode=mode if mode in self.modes else "explore")


class TellsAnotherTable(Biased):
    def tabulate(self, enumeration, player, *, mode="explore"):
        return super().tabulate(enumeration, player, mode=mode)[:, ::-1].copy()


class Unnormalised(Biased):
    def tabulate(self, enumeration, player, *, mode="explore"):
        return super().tabulate(enumeration, player, mode=mode) * 0.9


class PositiveLogp(Biased):
    def act(self, observation, mask, memory, noise, *, mode="explore"):
        act = super().act(observation, mask, memory, noise, mode=mode)
        return act._replace(logp=-act.logp)


class DoubleLogp(Biased):
    def act(self, observation, mask, memory, noise, *, mode="explore"):
        act = super().act(observation, mask, memory, noise, mode=mode)
        return act._replace(logp=act.logp.astype(np.float64))


class WritesIntoTheNoise(Biased):
    def act(self, observation, mask, memory, noise, *, mode="explore"):
        act = super().act(observation, mask, memory, noise, mode=mode)
        noise[:1] = 0.125
        return act


class Remembers(Biased):
    def act(self, observation, mask, memory, noise, *, mode="explore"):
        act = super().act(observation, mask, memory, noise, mode=mode)
        return act._replace(memory=np.zeros((len(noise), 1), np.float32))


class LosesItsMemory(CountingPolicy):
    def act(self, observation, mask, memory, noise, *, mode="explore"):
        return PolicyOutput(np.zeros(len(noise), np.int32), np.zeros(len(noise), np.float32))


class OneMode(Biased):
    modes = ("explore",)


def test_a_right_one_passes():
    check_policy(Biased.make(), enumeration=KUHN, player=1)
    check_policy(Biased.make(), observation=np.zeros((3, 4), np.float32), mask=np.ones((3, 2), np.bool_))


@pytest.mark.parametrize(
    ("policy", "sentence"),
    [
        (ForgetsItsWeights, "plays otherwise than the policy itself"),
        (NotPure, "is not pure"),
        (TakesAnyMode, "accepted a mode that the policy does not publish"),
        (TellsAnotherTable, "act plays .*, tabulate says"),
        (Unnormalised, "rows do not sum to 1"),
        (PositiveLogp, "logp is positive somewhere"),
        (DoubleLogp, "logp is float64; expected float32"),
        (WritesIntoTheNoise, "act changed the noise it was given"),
        (Remembers, "memory_shape is None, yet act answers a memory"),
        (OneMode, "every policy publishes 'greedy'"),
    ],
)
def test_a_breach_is_found(policy, sentence):
    NotPure.calls = 0
    with pytest.raises(AssertionError, match=sentence):
        check_policy(policy.make(), enumeration=KUHN, player=0)


def test_breaches_of_the_fakes_are_found():
    with pytest.raises(AssertionError, match="chose an action that its mask forbids"):
        check_policy(FixedPolicy.of(1), observation=np.zeros((2, 1)), mask=np.array([[True, False]] * 2))
    with pytest.raises(AssertionError, match="memory_shape is set, yet act answers no memory"):
        check_policy(LosesItsMemory(), observation=np.zeros((2, 1)))
    with pytest.raises(AssertionError, match=r"object is no policy: it lacks `memory_shape`, `modes`, .*act\(\)"):
        check_policy(object(), observation=np.zeros((2, 1)))
    with pytest.raises(AssertionError, match="Give check_policy an enumeration"):
        check_policy(Biased.make())


def test_an_enumeration_of_another_game_is_a_policy_error():
    with pytest.raises(PolicyError, match="they must come from the same game"):
        Biased.make().tabulate(compile_tree("leduc_poker").enumeration, 0)
