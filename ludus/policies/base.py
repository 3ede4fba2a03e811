"""Protocols of policies, which play one player, and checks of their specs and weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ludus.core.errors import PolicyError
from ludus.core.types import Array, Enumeration, PolicyOutput, PolicySpec, Weights


@runtime_checkable
class Policy(Protocol):
    """Plays flat batches of decisions of one player, whatever environment or seat each row came from.

    Rows come sorted by (environment, agent index). `act` is pure: the same arguments give the same result.

    Attributes:
        spec: Kind and configuration.
        modes: Published modes, "explore" and "greedy" at least.
        noise_width: Uniforms per row that `act` needs.
        memory_shape: Shape of a slot's recurrent memory (float32), zeros at episode starts; None: no memory.
        takes_ids: Whether observations are int32 ids of an enumeration; False: decoded tensors.
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
    ) -> PolicyOutput:
        """Return the actions of n decisions.

        Args:
            observation: [n, …].
            mask: bool[n, A], legal actions; None: all are legal.
            memory: float32[n, *memory_shape], or None.
            noise: float32[n, noise_width], uniforms in [0, 1). For an algorithm with `place`, the first of them is the
                position of the row's environment among all, in [0, 1].
            mode: One of `modes`.
        """
        ...

    def tabulate(self, enumeration: Enumeration, player: int, *, mode: str = "explore") -> NDArray[np.float64] | None:
        """Return action probabilities float64[I_p, A] at all information states of `player`; None: this policy cannot
        (it has memory, say).

        They are zero where illegal, rows sum to 1, and they must agree with `act`.

        Args:
            enumeration: The enumerated game.
            player: Player whose states are tabulated.
            mode: One of `modes`.
        """
        ...

    def weights(self) -> Weights:
        """Return the arrays from which `build_policy(spec, weights)` makes an equal policy."""
        ...


class Teams(NamedTuple):
    """Teams of n rows, for policies that decide for a team jointly. Rows of one group, the agents of one team that act
    at one moment, are adjacent.

    Attributes:
        group: int32[n], ascending.
        place: int32[n], index of the row's agent in its team, ascending within a group; missing agents do not act now.
    """

    group: NDArray[np.int32]
    place: NDArray[np.int32]

    @staticmethod
    def of(slot: NDArray[np.int32], agents: int) -> Teams:
        """Return the teams of slots, environment × agents + place, int32[n] ascending."""
        return Teams(slot // np.int32(agents), slot % np.int32(agents))

    @staticmethod
    def whole(rows: int, agents: int) -> Teams:
        """Return consecutive teams in which every agent acts. Raise PolicyError for a number of rows that is no
        multiple of `agents`."""
        if rows % agents:
            raise PolicyError(
                f"a policy that plays teams of {agents} agents was given {rows} observations; give those of whole teams, agent after agent."
            )
        return Teams.of(np.arange(rows, dtype=np.int32), agents)

    @staticmethod
    def joined(parts: Sequence[Teams]) -> Teams:
        """Return the concatenation; groups of different parts are different ones."""
        sizes = [int(part.group[-1]) + 1 if len(part.group) else 0 for part in parts]
        before = np.cumsum([0, *sizes[:-1]], dtype=np.int32)
        groups = [part.group + first for part, first in zip(parts, before, strict=True)]
        return Teams(np.concatenate(groups), np.concatenate([part.place for part in parts]))

    def take(self, rows: NDArray[np.int64]) -> Teams:
        """Return the teams of some rows, of whole groups."""
        return Teams(self.group[rows], self.place[rows])


@runtime_checkable
class JointPolicy(Policy, Protocol):
    """A `Policy` that decides jointly for several agents of a team; it receives rows of whole groups: all agents that
    act at one moment. Agents act in the order of their places, and may depend on the actions of those before them, and
    on the observations of all of them.

    The caller of a policy with a `team_size` passes `teams`.

    Attributes:
        team_size: Agents of a team, at most.
    """

    team_size: int  # agents of a team, at the most

    def act(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        memory: Array | None,
        noise: NDArray[np.float32],
        *,
        mode: str = "explore",
        teams: Teams | None = None,
    ) -> PolicyOutput:
        """Return the actions; see `Policy.act`. logp: of each agent's action, given those of the agents before it.
        Raise PolicyError without `teams`."""
        ...

    def chances(
        self,
        observation: Array,
        mask: NDArray[np.bool_] | None,
        action: Array,
        teams: Teams,
        *,
        mode: str = "explore",
    ) -> NDArray[np.float64] | None:
        """Return action probabilities float64[n, A] of each row, given the actions of the agents before it, `action`
        [n, …]; None where actions are vectors, or an agent before another has not acted yet (-1)."""
        ...


def team_size_of(policy: Policy) -> int:
    """Return `JointPolicy.team_size`; 0 of a policy that decides row by row."""
    return int(getattr(policy, "team_size", 0))


def teams_for(policy: Policy, place: NDArray[np.int32]) -> dict[str, Teams]:
    """Return the keyword `teams` for the rows of the agents `place` int32[n] of one team, if the policy is a
    `JointPolicy`; else {}."""
    return {"teams": Teams(np.zeros(len(place), np.int32), place)} if team_size_of(policy) else {}


class Values(NamedTuple):
    """Values of n decisions, in the units that the learner scaled rewards to.

    Attributes:
        state: float32[n], by a critic, or of the best legal action; None: unknown.
        actions: float32[n, A], of all actions; None: unknown.
    """

    state: NDArray[np.float32] | None = None
    actions: NDArray[np.float32] | None = None


@runtime_checkable
class SupportsValues(Protocol):
    """A `Policy` that can evaluate decisions, for inspection. Playing does not use it."""

    def values(
        self, observation: Array, mask: NDArray[np.bool_] | None, memory: Array | None, state: Array | None
    ) -> Values:
        """Return the values of decisions.

        Args:
            observation: [n, …], as `Policy.act` takes it; for a `JointPolicy` also `teams`.
            mask: bool[n, A], or None.
            memory: float32[n, *memory_shape], or None.
            state: float32[n, S], input of a central critic; None: there is none.
        """
        ...


# --------------------------------------------------------------------------------------------------------------------
# Checks of specs and weights; every failure is a PolicyError that names the policy's kind and the entry.


def integer(spec: PolicySpec, key: str, *, least: int = 1) -> int:
    """Return the whole number `spec.config[key]`, at least `least`."""
    value = entry(spec, key)
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise PolicyError(
            f"policy spec {spec.kind!r}: {key} is {value!r}; expected a whole number of at least {least}."
        )
    return value


def integers(spec: PolicySpec, key: str) -> tuple[int, ...]:
    """Return the list `spec.config[key]` of whole numbers of at least 1, such as the widths of layers; possibly empty."""
    value = entry(spec, key)
    if not isinstance(value, (list, tuple)) or not all(isinstance(n, int) and n >= 1 for n in value):
        raise PolicyError(f"policy spec {spec.kind!r}: {key} is {value!r}; expected a list of whole numbers.")
    return tuple(value)


def choice(spec: PolicySpec, key: str, options: tuple[Any, ...]) -> Any:
    """Return `spec.config[key]`, one of `options`; the first of them if the spec has none."""
    value = spec.config.get(key, options[0])
    if value not in options:
        raise PolicyError(
            f"policy spec {spec.kind!r}: {key} is {value!r}; expected one of {', '.join(map(repr, options))}."
        )
    return value


def entry(spec: PolicySpec, key: str) -> Any:
    """Return `spec.config[key]`. Raise PolicyError if it is missing."""
    if key not in spec.config:
        raise PolicyError(f"policy spec {spec.kind!r} lacks {key!r}; it has {sorted(spec.config) or 'nothing'}.")
    return spec.config[key]


def validate_weights(
    spec: PolicySpec, weights: Weights, shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, NDArray[np.float32]]:
    """Return float32 copies of `weights`, which must have exactly these names and shapes, and finite numbers only.
    Raise PolicyError."""
    if set(weights) != set(shapes):
        missing, extra = sorted(set(shapes) - set(weights)), sorted(set(weights) - set(shapes))
        raise PolicyError(
            f"weights do not fit the policy spec {spec.kind!r}: missing {missing or 'nothing'}, not expected {extra or 'nothing'}."
        )
    return {name: finite(spec, name, weights[name], shape, np.float32) for name, shape in shapes.items()}


def reject_extra_weights(spec: PolicySpec, weights: Weights, parts: Collection[str], *own: str) -> None:
    """Raise PolicyError for weights of other parts than these, or others of its `own`."""
    extra = sorted(name for name in weights if name not in own and name.partition("/")[0] not in parts)
    if extra:
        raise PolicyError(f"weights do not fit the policy spec {spec.kind!r}: not expected {extra}.")


def one_spec(policies: Sequence[Policy]) -> None:
    """Raise PolicyError unless all policies have the same configuration."""
    if any(dict(policy.spec.config) != dict(policies[0].spec.config) for policy in policies):
        raise PolicyError("only policies of one spec can be stacked; group them by spec first.")


def finite(spec: PolicySpec, name: str, array: Array, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Return a copy as `dtype`, if it has this shape and its numbers are finite in that dtype. Raise PolicyError."""
    array = np.asarray(array)
    if array.shape != shape:
        raise PolicyError(
            f"weights of a {spec.kind!r} policy: {name!r} has shape {array.shape}; its spec asks for {shape}."
        )
    with np.errstate(over="ignore"):
        copy: Array | None = np.array(array, dtype) if array.dtype.kind in "fiu" else None
    if copy is None or not np.isfinite(copy).all():
        raise PolicyError(
            f"weights of a {spec.kind!r} policy: {name!r} holds something that is not a finite number of {np.dtype(dtype)}."
        )
    return copy


def check_mode(policy: Policy, mode: str) -> None:
    """Raise PolicyError for a mode that the policy does not publish."""
    if mode not in policy.modes:
        raise PolicyError(
            f"policy of kind {policy.spec.kind!r} has no mode {mode!r}; it has {', '.join(policy.modes)}."
        )
