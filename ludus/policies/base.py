"""What plays one player."""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core.types import Act, Array, Enumeration, PolicySpec, Weights


@runtime_checkable
class Policy(Protocol):
    """Plays flat batches of decisions of one player, whatever environment or seat each row came from.

    Rows come sorted by (environment, agent index). `act` is pure: the same arguments give the same answer.
    """

    spec: PolicySpec
    modes: ClassVar[tuple[str, ...]]  # published modes; "explore" and "greedy" at least
    noise_width: int  # uniforms per row that `act` wants
    memory_shape: tuple[int, ...] | None  # per-slot recurrent memory (float32), zeros at episode starts; None: none
    takes_ids: bool  # True: observations are int32 ids of an enumeration; False: decoded tensors

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
    ) -> Act:
        """observation [n, …], mask bool[n, A], memory float32[n, *memory_shape], noise float32[n, noise_width] in [0, 1)."""
        ...

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Action probabilities float64[I_p, A] on all information states of `player` (zero where illegal, rows summing to 1);
        None: this policy cannot (it has memory, say). Must agree with `act`."""
        ...

    def weights(self) -> Weights:
        """Arrays that `build_policy(spec, weights)` makes an equal policy from."""
        ...


class Values(NamedTuple):
    """What n decisions are worth, in the units that the learner scaled rewards to. state: float32[n], by a critic, or of the best legal
    action; None: nothing says it. actions: float32[n, A] of all actions; None without."""

    state: NDArray[np.float32] | None = None
    actions: NDArray[np.float32] | None = None


@runtime_checkable
class HasValues(Protocol):
    """A `Policy` that can say what decisions are worth. It is asked by people who look at it, not by those who play."""

    def values(
        self, observation: Array, mask: NDArray[np.bool_] | None, memory: Array | None, state: Array | None
    ) -> Values:
        """Rows as `Policy.act` takes them. state: float32[n, S], what a central critic sees; None if there is none."""
        ...
