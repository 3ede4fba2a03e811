"""An actor with the critics that it learns from, so that acting also gives the values of its actions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ludus.backend.mlp import Layout, Perceptron, flatten
from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights
from ludus.policies.actor_critic_policy import ActorCriticPolicy
from ludus.policies.base import check_mode, entry, integer, validate_weights
from ludus.policies.heads import Bounds
from ludus.policies.specs import joined, part_of, spec_of


class ActorValuesPolicy:
    """Kind `actor_values`; config as `actor_values_spec` makes it. Plays as its actor, an `actor_critic` policy of a
    box, does.

    In "explore" the extras "taken" and "best" are the values of the action that was played, Q(s, a), the mean of the
    critics, and of the actor's own, Q(s, μ(s)), their minimum. Weights: "actor/…" and "critics/…", as the learner has
    them.
    """

    modes: ClassVar[tuple[str, ...]] = ("explore", "greedy")
    extras: ClassVar[tuple[str, ...]] = ("taken", "best")
    memory_shape: tuple[int, ...] | None = None
    takes_ids: bool = False

    def __init__(self, spec: PolicySpec, weights: Weights) -> None:
        self.spec, actor = spec, spec_of(spec, "actor")
        self._actor = ActorCriticPolicy(actor, part_of(weights, "actor"))
        self._box, self.noise_width = Bounds.of(actor.config["action"]), self._actor.noise_width
        self._inputs = math.prod(actor.config["shape"])
        layouts = critic_layouts(spec, inputs=self._inputs + self._box.size)
        shapes = {name: shape for layout in layouts for name, shape in layout.shapes().items()}
        self._weights = validate_weights(spec, part_of(weights, "critics"), shapes)
        self._critics = [Perceptron(layout, flatten(self._weights, [*layout.shapes()])) for layout in layouts]
        known = {*joined({"actor": self._actor.weights(), "critics": self._weights})}
        if extra := sorted(set(weights) - known):
            raise PolicyError(f"weights do not fit the policy spec {spec.kind!r}: not expected {extra}.")

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> PolicyOutput:
        check_mode(self, mode)
        evaluation = self._actor.evaluate(observation)
        act = self._actor.answer(evaluation, mask, noise, mode=mode)
        if mode != "explore":
            return act
        own = self._actor.answer(evaluation, mask, noise, mode="greedy")
        q_action, best = (self._worth(observation, action) for action in (act.action, own.action))
        return act._replace(extras={"taken": q_action.mean(axis=0, dtype=np.float32), "best": best.min(axis=0)})

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Return None: boxes have no tables."""
        check_mode(self, mode)
        return None

    def weights(self) -> Weights:
        own = {name: array.copy() for name, array in self._weights.items()}
        return joined({"actor": self._actor.weights(), "critics": own})

    def _worth(self, observation: Array, action: Array) -> NDArray[np.float32]:
        """Return the critics' values, float32[critics, n]."""
        flat = np.asarray(observation, np.float32).reshape(len(observation), self._inputs)
        pairs = np.concatenate([flat, self._box.to_unit(action)], axis=1)
        return np.stack([critic.outputs(pairs)[:, 0] for critic in self._critics])


def critic_layouts(spec: PolicySpec, *, inputs: int) -> list[Layout]:
    """Return the layouts of the critics, whose layers are named as those of a learner. inputs: of an observation and an
    action. Raise PolicyError."""
    config: Mapping[str, Any] = entry(spec, "critics")
    critics = PolicySpec(spec.kind, dict(config))
    hidden, count = [int(n) for n in entry(critics, "hidden")], integer(critics, "count")
    widths = (inputs, *hidden, 1)
    names = tuple(((str(2 * k), width),) for k, width in enumerate(widths[1:]))
    layout = Layout(widths, str(entry(critics, "activation")), names)
    return [layout.under(f"members.{k}") for k in range(count)]
