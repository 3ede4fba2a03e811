"""Settings of MuZero."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from ludus.algorithms.alphazero.config import SearchOptions
from ludus.algorithms.common.base import AlgorithmInfo, CollectConfig
from ludus.algorithms.common.config import Schedule, Scheduled
from ludus.algorithms.common.space_checks import byte_scale, discrete, one_space, players_of, reward_scale
from ludus.core.errors import ScenarioError
from ludus.core.types import ActionRequests, EnvSpec, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.envs.rules import describe_return_sum
from ludus.policies.specs import muzero_spec
from ludus.replay.base import ItemUnit


class MuZero(SearchOptions):
    """Tree search in a learned model (Schrittwieser et al. 2020); with selection=gumbel as Danihelka et al. (2022). One
    player, or two who move in turn in a zero-sum game. See the README beside this file. See `SearchOptions` for the
    inherited options.

    Attributes:
        dirichlet: Concentration of the noise at roots; 0.25 in the paper for games with few actions.
        temperature: Moves are sampled ∝ visits^(1 / temperature); 0: the best one.
        hidden: Widths of the hidden layers of each of the five perceptrons.
        latent: Size of a latent state.
        support: Rewards and values are distributions over h⁻¹ of -support … support, or over shares of the largest
            possible value.
        rollout_unit: Unit of `rollout`; two players need "episodes".
        unroll: Moves that the model is unrolled from each replayed decision; 5 in the paper.
        n_step: Own decisions that value targets sum, for one player; for two, targets are the game's outcome.
        gamma: Discount; 1 for two players.
        value_coefficient: Weight of the value loss; 0.25 as in the paper's reanalyse setting.
        scale_rewards: Whether rewards are divided by the largest utility; `support` covers them as they are.
    """

    about: ClassVar[AlgorithmInfo] = AlgorithmInfo(
        actions=("discrete",), data="off-policy", recurrent=False, masks=True, paper="Schrittwieser et al. 2020"
    )
    learner_class: ClassVar[str] = "ludus.contrib.algorithms.muzero.learner:MuZeroLearner"

    learns_both_sides: ClassVar[bool] = True  # of games of two players: a schedule must record both

    simulations: int = Field(default=25, ge=1)
    play_simulations: int = Field(default=50, ge=1)
    dirichlet: float = Field(default=0.25, gt=0)
    temperature: Scheduled = Schedule(start=1.0, end=0.25)

    hidden: tuple[Annotated[int, Field(ge=1)], ...] = (128,)
    latent: int = Field(default=64, ge=1)
    support: int = Field(default=20, ge=1)

    rollout: int = Field(default=256, ge=1)
    rollout_unit: Literal["episodes", "decisions"] = "decisions"
    batch: int = Field(default=128, ge=1)
    updates_per_decision: float = Field(default=0.1, gt=0)
    unroll: int = Field(default=5, ge=1)
    n_step: int = Field(default=10, ge=1)
    gamma: float = Field(default=0.99, ge=0, le=1)
    value_coefficient: float = Field(default=0.25, ge=0)
    scale_rewards: bool = False
    max_gradient_norm: float = Field(default=10.0, ge=0)
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
        """Raise ScenarioError for more than two players, and for two that it does not both play or whose game is not
        zero-sum. `check_start` checks that they move in turn, which no spec shows."""
        self.policy(env, tuple(players_of(env, seats)))

    def check_start(self, env: VectorEnv) -> None:
        """Raise ScenarioError if two players do not move in turn in a few random games; resets the environment."""
        if env.spec.num_players == 2 and (why := _out_of_turn(env)):
            raise ScenarioError(
                f"MuZero imagines two players who move one at a time and in turn; in {env.spec.id} {why}. Use an algorithm that needs no "
                "turns, such as ppo."
            )

    def collect(self) -> CollectConfig:
        return self.collected(self.rollout_unit)

    def policy(self, env: EnvSpec, seats: tuple[int, ...]) -> PolicySpec:
        """Return the spec of the searching policy. Raise ScenarioError if it cannot play there."""
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
        """Return the largest value of a game of two, in the units that are learned, so that neither values nor searches
        need a scale of their own. (Schrittwieser et al. 2020, pseudocode, known bounds.)

        That bounds whole games: where rewards come during a game, up to twice as much may still come to the player that
        has lost most so far, and larger values are clipped to it. None where it is unknown, and for one player.
        """
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
    """Return how players violate turns, in a few random games; "": they seem not to."""
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
    """Return uniformly random legal actions int32[n]."""
    score = rng.random((len(due.slot), discrete(env, (player,), algorithm="MuZero")[1]))
    mask = due.mask if env.enumeration is None else env.enumeration.mask[due.observation]
    if mask is not None:
        score[~mask] = -1.0
    best: NDArray[np.int32] = score.argmax(1).astype(np.int32)
    return best
