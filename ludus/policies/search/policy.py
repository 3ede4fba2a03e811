"""Networks that may search: AlphaZero's policies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights
from ludus.envs.rules import Rules, build_rules
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.base import Values, check_mode, entry
from ludus.policies.categorical import answers, draw
from ludus.policies.search.search import Expanded, Model, RootNoise, SearchAnswer, SearchSettings, search
from ludus.policies.specs import SEARCH_POLICY, SEARCH_VALUE, part_of, spec_of

_TOGETHER = 1024  # positions of a table that are searched at a time

Evaluate = Callable[[NDArray[np.float32]], tuple[NDArray[np.float32], NDArray[np.float32]]]
"""float32[n, inputs] -> (logits float32[n, A], value float32[n] of who moves, from -1 to 1)."""


class KnownModel:
    """A game's rules, and a network that evaluates its positions: a `Model` of searches."""

    def __init__(self, rules: Rules, evaluate: Evaluate) -> None:
        self.rules, self._evaluate = rules, evaluate

    def roots(self, observation: Array, mask: NDArray[np.bool_] | None) -> Expanded:
        """Return the roots of observations [n, …]. Raise PolicyError where the rules and the environment disagree about
        legal actions."""
        rules = self.rules
        positions = rules.positions(observation)
        legal = rules.legal(positions)
        if mask is not None and not np.array_equal(mask, legal):
            row = int((mask != legal).any(1).argmax())
            raise PolicyError(
                f"a search's rules allow the actions {np.flatnonzero(legal[row]).tolist()} where the environment allows "
                f"{np.flatnonzero(mask[row]).tolist()}: the rules are of another game."
            )
        logits, value = self._evaluate(observation.reshape(len(observation), rules.inputs).astype(np.float32))
        n = len(positions)
        return Expanded(positions, np.zeros(n), np.ones(n), logits, legal, value)

    def expand(self, states: Array, action: NDArray[np.int32]) -> Expanded:
        """Implement `Model.expand`. Finished games are not evaluated: their outcome is exact."""
        rules, moved = self.rules, self.rules.step(states, action)
        n, live = len(action), np.flatnonzero(moved.discount)
        logits, value = np.zeros((n, rules.actions), np.float32), np.zeros(n, np.float32)
        legal = np.zeros((n, rules.actions), np.bool_)
        if len(live):
            positions = moved.positions if len(live) == n else moved.positions[live]
            logits[live], value[live] = self._evaluate(rules.observe(positions))
            legal[live] = rules.legal(positions)
        return Expanded(moved.positions, moved.reward, moved.discount, logits, legal, value)


class Searches(ABC):
    """Base of policies that may search.

    Modes: "explore" and "greedy" are the network alone, which samples an action or takes the likeliest. "search"
    searches with `play` simulations, without noise, and takes the best. "self_play" is for training: noise at the root,
    and moves sampled from the visits, by a temperature. Both have the extras "search_policy" float32[n, A], and
    "search_value" float32[n].

    Of the spec's config this reads `search`, `play`, and of `noise` concentration and share.
    """

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy", "search", "self_play")
    extras: ClassVar[tuple[str, ...]] = (SEARCH_POLICY, SEARCH_VALUE)
    noise_width = 3
    memory_shape: tuple[int, ...] | None = None
    takes_ids = False

    spec: PolicySpec
    model: Model

    def __init__(self, spec: PolicySpec) -> None:
        self.spec = spec
        self.settings = SearchSettings.of(entry(spec, "search"))
        self._playing = replace(self.settings, simulations=int(entry(spec, "play")))
        self._noise: Mapping[str, Any] = entry(spec, "noise")

    @abstractmethod
    def roots(self, observation: Array, mask: NDArray[np.bool_] | None) -> Expanded:
        """Return where searches begin, of observations [n, …]."""

    @abstractmethod
    def alone(
        self, observation: Array, mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, mode: str
    ) -> PolicyOutput:
        """Return the network's actions without a search, in mode "explore" or "greedy"."""

    @abstractmethod
    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Implement `Policy.tabulate`."""

    @abstractmethod
    def weights(self) -> Weights:
        """Implement `Policy.weights`."""

    @abstractmethod
    def temperature(self, observation: Array) -> NDArray[np.float64]:
        """Return the temperature of moves in self-play, float64[n]; 0: the best is played."""

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        """Implement `Policy.act`. Raise PolicyError as the network does, and for observations that show no position of
        the rules."""
        check_mode(self, mode)
        if mode in ("explore", "greedy"):
            act = self.alone(observation, mask, noise[:, :1], mode=mode)
            return PolicyOutput(act.action, act.logp)
        playing = mode == "search"
        result = self.search(observation, mask, None if playing else np.ascontiguousarray(noise[:, 1:]))
        action, logp = answers(len(noise))
        action[:], logp[:] = result.best, 0.0
        if not playing and self.settings.selection == "puct":
            temperature = self.temperature(observation)
            rows = np.flatnonzero(temperature)
            if len(rows):
                shares = result.policy[rows]
                shares = (shares / shares.max(1, keepdims=True)) ** (
                    1.0 / temperature[rows, None]
                )  # or all may become 0
                action[rows], logp[rows] = draw(shares / shares.sum(1, keepdims=True), noise[rows, :1])
        extras = {
            SEARCH_POLICY: result.policy.astype(np.float32),
            SEARCH_VALUE: result.value.astype(np.float32),
        }
        return PolicyOutput(action, logp, None, extras)

    def search(
        self, observation: Array, mask: NDArray[np.bool_] | None, noise: NDArray[np.float32] | None
    ) -> SearchAnswer:
        """Search from observations [n, …]. noise: uniforms float32[n, 2], for training; None: for play."""
        root = self.roots(observation, mask)
        if noise is None:
            return search(self.model, root, self._playing)
        added = RootNoise(noise, self._noise["concentration"], self._noise["share"])
        return search(self.model, root, self.settings, added)

    def searched(self, enumeration: Enumeration, player: int, *, mode: str) -> NDArray[np.float64] | None:
        """Return the table of mode "search": equal observations are searched once. None in "self_play"."""
        if mode != "search":
            return None
        ids = enumeration.ids(player)
        observation, mask = enumeration.observation[ids], enumeration.mask[ids]
        if not len(mask):  # the player never decides
            return np.zeros(mask.shape)
        rows = np.concatenate([observation.reshape(len(mask), -1), mask], axis=1, dtype=observation.dtype)
        whole = np.ascontiguousarray(rows).view(np.dtype((np.void, rows.itemsize * rows.shape[1])))[:, 0]
        _, first, which = np.unique(whole, return_index=True, return_inverse=True)
        best = [
            self.search(observation[part], mask[part], None).best
            for part in np.array_split(first, max(1, -(-len(first) // _TOGETHER)))
        ]
        out = np.zeros(mask.shape)
        out[np.arange(len(mask)), np.concatenate(best)[which]] = 1.0
        return out


class SearchingPolicy(Searches):
    """Kind `searching`: a network that evaluates the positions of a game whose rules are known. Config: `network`,
    {kind, config} of an actor-critic with a shared value; `rules`, `search`, `play`, and `noise`: concentration, share,
    temperature, and the number of first moves that are sampled by it."""

    model: KnownModel

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        super().__init__(spec)
        own = spec_of(spec, "network")
        self.network = ActorCriticPolicy(own, part_of(weights, "network"))
        if len(weights) != len(self.network.weights()) or self.network.memory_shape or not self.network.actions:
            raise PolicyError(
                "a 'searching' policy has the weights of one network, named network/…, which remembers nothing and plays one of a number "
                f"of actions; given {', '.join(sorted(weights))}."
            )
        self.actions = self.network.actions
        self.model = KnownModel(build_rules(entry(spec, "rules")), self._evaluate)

    def roots(self, observation: Array, mask: NDArray[np.bool_] | None) -> Expanded:
        return self.model.roots(observation, mask)

    def alone(
        self, observation: Array, mask: NDArray[np.bool_] | None, noise: NDArray[np.float32], *, mode: str
    ) -> PolicyOutput:
        return self.network.act(observation, mask, None, noise, mode=mode)

    def temperature(self, observation: Array) -> NDArray[np.float64]:
        """Implement `Searches.temperature`: positive early in a game."""
        rules = self.model.rules
        early = rules.moves(rules.positions(observation)) < self._noise["moves"]
        return np.where(early, float(self._noise["temperature"]), 0.0)

    def _evaluate(self, x: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        answer = self.network.evaluate(x)
        if answer.value is None:
            raise PolicyError("the network of a 'searching' policy needs a shared value in addition to its logits.")
        return answer.out[:, : self.actions], np.clip(answer.value, -1.0, 1.0)

    def values(
        self, observation: Array, mask: NDArray[np.bool_] | None, memory: Array | None, state: Array | None
    ) -> Values:
        """Implement `SupportsValues.values`: the network's own."""
        return self.network.values(observation, mask, memory, state)

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Implement `Policy.tabulate`; None in self-play, where its search has noise."""
        check_mode(self, mode)
        if mode not in ("explore", "greedy"):
            return self.searched(enumeration, player, mode=mode)
        return self.network.tabulate(enumeration, player, mode=mode)

    def weights(self) -> Weights:
        return {f"network/{name}": array for name, array in self.network.weights().items()}
