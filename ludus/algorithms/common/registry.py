"""Algorithms by name, their assignment to players and roles, and which of them support an environment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space

from ludus.algorithms.common.base import Algorithm, ComputedOracle
from ludus.algorithms.common.config import check_learned_reward, check_processing
from ludus.algorithms.common.space_checks import UnsupportedSpace, players_of
from ludus.core.errors import ConfigError, ScenarioError, join_or, nearest
from ludus.core.parts import Registry, registered_name, require, resolve_name
from ludus.core.types import EnvSpec, PolicySpec
from ludus.metagame.population.base import seats_of

ALGORITHMS: Final = Registry(
    "algorithm",
    "ludus.algorithms",
    {
        "a2c": "ludus.algorithms.on_policy.config:A2C",
        "alphazero": "ludus.algorithms.alphazero.config:AlphaZero",
        "apex": "ludus.algorithms.dqn.config:ApeX",
        "apex_ddpg": "ludus.algorithms.ddpg.config:ApeXDDPG",
        "ddpg": "ludus.algorithms.ddpg.config:DDPG",
        "dqn": "ludus.algorithms.dqn.config:DQN",
        "exact": "ludus.algorithms.exact.oracle:ExactBestResponse",
        "impala": "ludus.algorithms.on_policy.config:IMPALA",
        "iqn": "ludus.algorithms.dqn.config:IQN",
        "mappo": "ludus.algorithms.ppo.config:MAPPO",
        "munchausen_dqn": "ludus.algorithms.dqn.config:MunchausenDQN",
        "mmd": "ludus.algorithms.mmd.config:MMD",
        "nfsp": "ludus.algorithms.nfsp.config:NFSP",
        "ppo": "ludus.algorithms.ppo.config:PPO",
        "qr_dqn": "ludus.algorithms.dqn.config:QRDQN",
        "r2d2": "ludus.algorithms.r2d2.config:R2D2",
        "rainbow": "ludus.algorithms.dqn.config:Rainbow",
        "reinforce": "ludus.algorithms.on_policy.config:Reinforce",
        "rnad": "ludus.algorithms.mmd.config:RNaD",
        "sac": "ludus.algorithms.sac.config:SAC",
        "sac_discrete": "ludus.algorithms.sac.config:SACDiscrete",
        "td3": "ludus.algorithms.ddpg.config:TD3",
    },
)
"""By name. What lies in `ludus.contrib`, and in other distributions, is added by entry points."""


COMPUTED = "no device: its answers are computed"
"""Where what a `ComputedOracle` answers comes from."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """An algorithm and what it trains: the policies of a population, or of one role of its schedule. policy: their
    spec. seats: the players of the population."""

    algorithm: Algorithm | ComputedOracle
    population: int
    role: str
    seats: tuple[int, ...]
    policy: PolicySpec

    @property
    def computed(self) -> bool:
        """Return whether it needs no episodes."""
        return isinstance(self.algorithm, ComputedOracle)

    @property
    def name(self) -> str:
        """Return the algorithm's name, as in a scenario."""
        return registered_name(self.algorithm, ALGORITHMS)


@dataclass(frozen=True, slots=True)
class Algorithms:
    """Assignment of algorithms to players and roles. Raises ConfigError for an unknown name, and for players of one
    population with different algorithms.

    Attributes:
        default: Algorithm of those that are not named.
        named: Algorithms by player ("1") or by role ("main_exploiter"); a role takes precedence.
        population: [P], index of each player's population.
        roles: Roles of the schedule, if it has some.
    """

    default: Any
    named: Mapping[str, Any]
    population: tuple[int, ...]
    roles: tuple[str, ...] = ()
    _by_role: dict[tuple[int, str], Any] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        players = [str(player) for player in range(len(self.population))]
        for name in self.named:
            if name not in (known := [*players, *self.roles]):
                what = "player or role" if self.roles else "player"
                raise ConfigError(f"algorithms: {name!r} is no {what} of this run{nearest(name, known)}")
        for population, seats in enumerate(seats_of(self.population)):
            algorithms = [self.named.get(str(seat), self.default) for seat in seats]
            if any(algorithm != algorithms[0] for algorithm in algorithms):
                raise ConfigError(
                    f"algorithms: players {', '.join(map(str, seats))} share one population, whose policies play for each of them, so that "
                    "they have one algorithm. Give share=never, or the same to each."
                )
            for role in self.roles or ("",):
                self._by_role[population, role] = self.named.get(role, algorithms[0])

    def of(self, population: int, role: str = "") -> Any:
        """Return the algorithm that trains the policies of a population, in a role of the schedule if it has roles."""
        return self._by_role[population, role]

    def label(self, population: int, role: str = "") -> str:
        """Return which algorithm it is and what it trains, in words: "ppo"; of several populations "ppo of player 1",
        of roles "ppo as main"."""
        seats, name = seats_of(self.population), registered_name(self.of(population, role), ALGORITHMS)
        numbers = " and ".join(map(str, seats[population]))
        whose = f" of player{'s' * (len(seats[population]) > 1)} {numbers}" if len(seats) > 1 else ""
        return f"{name}{whose}{f' as {role}' if role else ''}"

    def assigned(self, env: EnvSpec) -> tuple[Assignment, ...]:
        """Return each of them with what it trains. Raise ConfigError for a part that is no algorithm, ScenarioError for
        one that does not support its players, or not with one policy."""
        return tuple(self._assigned(env))

    def _assigned(self, env: EnvSpec) -> Iterator[Assignment]:
        seats = seats_of(self.population)
        for (population, role), algorithm in self._by_role.items():
            require(algorithm, "algorithm", (Algorithm, ComputedOracle), ALGORITHMS)
            check_fits(algorithm, env, seats[population])
            yield Assignment(algorithm, population, role, seats[population], algorithm.policy(env, seats[population]))

    def __str__(self) -> str:
        """Return the classes' names: "PPO", "PPO, for 1 DQN"."""
        others = [f"for {name} {type(algorithm).__name__}" for name, algorithm in self.named.items()]
        return ", ".join([type(self.default).__name__, *others])


def check_fits(algorithm: Algorithm | ComputedOracle, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
    """Raise ScenarioError if the algorithm does not support the environment for these players (default: all), naming
    those that do."""
    if isinstance(algorithm, Algorithm):
        check_processing(algorithm, env, seats or tuple(range(env.num_players)))
    try:
        algorithm.check(env, seats)
        if isinstance(algorithm, Algorithm):
            check_learned_reward(algorithm, env, seats or tuple(range(env.num_players)))
    except UnsupportedSpace as error:
        raise ScenarioError(f"{error} {serving(env, seats)}") from None


def serving(env: EnvSpec, seats: tuple[int, ...] = ()) -> str:
    """Return a message with the registered algorithms that support the actions of all agents of the players `seats`, by
    default of all."""
    players = players_of(env, seats)
    wanted = {_kind(agent.action) for player in players for agent in env.agents_of(player)}
    teams = any(len(env.agents_of(player)) > 1 for player in players)
    names = []
    for name in sorted(ALGORITHMS):
        algorithm: Any = resolve_name("algorithm", name, ALGORITHMS)
        needs_tree = getattr(algorithm, "needs_tree", False)
        wants_team = getattr(algorithm, "for_teams", False)  # it would learn without, but says more than there is
        serves = wanted <= set(algorithm.about.actions)
        if serves and not (needs_tree and env.enumeration is None) and not (wants_team and not teams):
            names.append(name)
    return (
        f"Use {join_or(names)} there."
        if names
        else "No registered algorithm serves these actions; wrap the environment."
    )


def _kind(action: Space[Any]) -> str:
    """Return the kind of an action space as in `AlgorithmInfo.actions`."""
    if isinstance(action, Discrete):
        return "discrete"
    if isinstance(action, MultiDiscrete | MultiBinary):
        return "multi_discrete"
    return "box" if isinstance(action, Box) and action.dtype.kind == "f" else "other"
