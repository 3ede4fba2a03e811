"""Settings of MuZero."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ludus.algorithms.alphazero.config import SearchOptions
from ludus.algorithms.common.base import AlgorithmInfo, Collect
from ludus.algorithms.common.schedule import Schedule, Scheduled
from ludus.algorithms.common.space_checks import byte_scale, discrete, one_space, players_of, reward_scale
from ludus.core.errors import ScenarioError
from ludus.core.types import ActionRequests, EnvSpec, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.envs.rules import describe_return_sum
from ludus.policies.specs import muzero_spec
from ludus.replay.base import ItemUnit


class MuZero(SearchOptions):
    """Tree search in what a network imagines, and the network, which learns it from what was played (Schrittwieser et al. 2020); with
    selection=gumbel as Danihelka et al. (2022). One player, or two who move in turn and win what the other loses. See the README beside
    this file."""

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="off-policy", recurrent=False, masks=True, paper="Schrittwieser et al. 2020"
    )
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.muzero.learner:MuZeroLearner"

    learns_both_sides: ClassVar[bool] = True  # of games of two players: a schedule must record both

    simulations: int = Field(default=25, ge=1)  # of a move in training
    play_simulations: int = Field(default=50, ge=1)  # of a move in mode "search"
    dirichlet: float = Field(default=0.25, gt=0)
    temperature: Scheduled = Schedule(start=1.0, end=0.25)  # moves are drawn ∝ visits^(1 / temperature); 0: the best

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (128,)  # of each of the five perceptrons
    latent: int = Field(default=64, ge=1)  # numbers of an imagined state
    support: int = Field(
        default=20, ge=1
    )  # rewards and values are h⁻¹ of -support … support, or shares of what is most

    rollout: int = Field(default=256, ge=1)  # collected between two rounds of updates, in rollout_unit
    rollout_unit: Literal["episodes", "decisions"] = "decisions"
    batch: int = Field(default=128, ge=1)
    updates_per_decision: float = Field(default=0.1, gt=0)
    unroll: int = Field(default=5, ge=1)  # moves that are imagined from each replayed decision
    n_step: int = Field(default=10, ge=1)  # of value targets, of one player; of two, the game's outcome
    gamma: float = Field(default=0.99, ge=0, le=1)
    value_coefficient: float = Field(default=0.25, ge=0)
    scale_rewards: bool = False  # `support` takes them as they are
    max_gradient_norm: float = Field(default=10.0, ge=0)  # 0: not clipped
    learning_rate: Scheduled = Schedule(start=2e-3, end=2e-4)

    @model_validator(mode="after")
    def _check_steps(self) -> Self:
        if self.rollout_unit == "decisions" and self.n_step > self.rollout:
            raise ValueError(
                f"n_step {self.n_step} is more than the {self.rollout} decisions of a rollout, where targets end; raise rollout to many "
                "times n_step, for each environment"
            )
        return self

    @property
    def item(self) -> ItemUnit:
        return "segment"

    def check(self, env: EnvSpec, seats: tuple[int, ...] = ()) -> None:
        """Raises ScenarioError for more than two players, and for two that it does not play both, or who do not win what the other loses.
        No spec says whether they move in turn: see `check_start`."""
        self.policy(env, tuple(players_of(env, seats)))

    def check_start(self, env: VectorEnv) -> None:
        """Raises ScenarioError if two players do not move in turn in some games that are played at random; it resets the environment."""
        if env.spec.num_players == 2 and (why := _out_of_turn(env)):
            raise ScenarioError(
                f"MuZero imagines two players who move one at a time and in turn; in {env.spec.id} {why}. Use an algorithm that needs no "
                "turns, such as ppo."
            )

    def collect(self) -> Collect:
        return self.collected(self.rollout_unit)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Raises ScenarioError if it cannot play there."""
        inputs, actions = discrete(env, seats, algorithm="MuZero")
        observation, _ = one_space(env, seats, algorithm="MuZero")
        self._check_players(env, seats)
        if byte_scale(env, observation) != 1.0:
            raise ScenarioError(
                f"MuZero sees numbers by perceptrons; observations of {env.id} are images, {observation}."
            )
        most = self._most(env)
        return muzero_spec(
            inputs=inputs,
            actions=actions,
            hidden=list(self.hidden),
            latent=self.latent,
            support=self.support,
            discount=self.gamma if env.num_players == 1 else -self.gamma,
            search={**self.search, "rescale": True, "bounds": None if most is None else [-most, most]},
            play=self.play_simulations,
            noise={"concentration": self.dirichlet, "share": self.noise},
            most=most,
        )

    def _most(self, env: EnvSpec) -> float | None:
        """What a game of two can come to, as it is learned, so that neither its values nor its searches need a scale of their own.
        (Schrittwieser et al. 2020, pseudocode, known bounds.) That is of whole games: where rewards come on the way, and no spec says
        whether they do, up to twice as much can come yet to who has lost the most so far, and values beyond this are taken for it. None
        where it is not known, and for one player, whose return so far says what can come yet."""
        most = max(abs(bound) for bound in env.utility_range[0])
        if env.num_players != 2 or not 0.0 < most < math.inf:
            return None
        return most * reward_scale(env, (0, 1), enabled=self.scale_rewards)

    def _check_players(self, env: EnvSpec, seats: tuple[int, ...]) -> None:
        one_each = all(len(env.agents_of(player)) == 1 for player in range(env.num_players))
        if not one_each or (env.num_players > 1 and env.constant_sum != 0.0):
            raise ScenarioError(
                f"MuZero imagines one player, or two who win what the other loses, one agent each; {env.id} has {env.num_players} players, "
                f"{len(env.agents)} agents, and {describe_return_sum(env)}."
            )
        if len(seats) < env.num_players:
            raise ScenarioError(
                f"MuZero's search plays both sides with one network; here it would learn the moves of player {', '.join(map(str, seats))} "
                f"of {env.id} alone. Give share=always, or one algorithm to all players."
            )
        if env.num_players == 2 and self.rollout_unit != "episodes":
            raise ScenarioError("MuZero learns games of two players from whole ones. Set rollout_unit=episodes.")
        if env.num_players == 2 and not math.isclose(self.gamma, 1.0):
            raise ScenarioError(
                f"MuZero counts the outcome of games of two players, undiscounted; gamma is {self.gamma:g}. Set gamma=1."
            )


_TRIED, _MOVES = 8, 256  # environments in which a few games are tried, and moves in all of them


def _out_of_turn(env: VectorEnv) -> str:
    """What players do who do not move in turn, in a few games at random; "": they seem to."""
    rng, place = np.random.default_rng(0), np.arange(env.num_envs)
    tried, mover = min(_TRIED, env.num_envs), np.full(env.num_envs, -1)
    step = env.reset(place.astype(np.uint64), episodes=np.where(place < tried, _MOVES, 0))
    for _ in range(_MOVES // tried):
        mover[step.finished.environment] = -1
        if np.intersect1d(step.due[0].slot, step.due[1].slot).size:
            return "both move at once"
        for player, due in enumerate(step.due):
            if (mover[due.slot] == player).any():
                return f"player {player} may move twice without the other"
            mover[due.slot] = player
        step = env.step(tuple(_at_random(env.spec, player, due, rng) for player, due in enumerate(step.due)))
    return ""


def _at_random(env: EnvSpec, player: int, due: ActionRequests, rng: np.random.Generator) -> NDArray[np.int32]:
    """int32[n]: any of the legal actions."""
    score = rng.random((len(due.slot), discrete(env, (player,), algorithm="MuZero")[1]))
    mask = due.mask if env.enumeration is None else env.enumeration.mask[due.observation]
    if mask is not None:
        score[~mask] = -1.0
    best: NDArray[np.int32] = score.argmax(1).astype(np.int32)
    return best
