"""Hints: what a policy, a mixture or a search would do at a person's decision, and what each move is worth.

A mixture draws a policy at the start of a game. What it plays at a decision is the mixture of its members' answers, each weighted by its
probability times how likely it would have made the decisions so far (Bayes's rule); the weights of before the game where that cannot be
known.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.apps.episodes.debugger import Answers, Decisions, Step
from ludus.apps.episodes.played_episode import answers_of
from ludus.apps.episodes.schemas import FrameDecision, Hint
from ludus.apps.play.run_game import RunGame, check_name
from ludus.apps.play.trees import MoveValues
from ludus.core.errors import ScenarioError
from ludus.core.types import EnvSpec
from ludus.evaluation.policies import META, SampledPolicy
from ludus.policies.base import teams_for
from ludus.policies.bots import BotPolicy, SupportsMoveStatistics
from ludus.rollout.inference.groups import decode, next_memory

MOST_MEMBERS = 32
"""Of a mixture, those that are played most."""
_MIDDLE = 0.5  # the uniforms with which a policy is asked what it would remember


class _Mixture:
    """Policies of one player, drawn at the start of an episode; one policy alone is the simplest."""

    def __init__(self, sampled: Sequence[SampledPolicy], spec: EnvSpec, player: int) -> None:
        played = sorted((one for one in sampled if one.prob > 0), key=lambda one: -one.prob)
        self.members = played[:MOST_MEMBERS]
        self._left_out = len(played) - len(self.members)
        self._spec, self._player = spec, player
        self.begin()

    def begin(self) -> None:
        """Another episode."""
        self._decided = False  # whether the player has decided anything
        self._weights: NDArray[np.float64] | None = np.log([m.prob for m in self.members])
        self._memory: dict[Hashable, dict[int, NDArray[np.float32]]] = {}

    def account(self, step: Step) -> None:
        """The members' weights and memory after a decision that was made. If a policy raises, they stay as they were."""
        gains = [self._gain(member, step) for member in self.members]
        memory = {_key(member): self._remembered(member, step) for member in self.members}
        known = [gain for gain in gains if gain is not None]
        self._weights = None if self._weights is None or len(known) < len(gains) else self._weights + known
        self._memory, self._decided = memory, True

    def answer(self, now: Step) -> tuple[Answers, str]:
        """Return what it says of open decisions, and how that was computed: of several members the probabilities alone."""
        answers = [self._answers(member, now) for member in self.members]
        if len(answers) == 1:
            return answers[0], ""
        probs = [one.probs for one in answers if one.probs is not None]
        if len(probs) < len(answers):
            return Answers(), "Some policies of the mixture cannot say how likely they are to do what."
        weights, how = np.array([m.prob for m in self.members]), "weighted as before the game"
        if self._decided and self._weights is not None and np.isfinite(self._weights.max()):
            weights = np.exp(self._weights - self._weights.max())
            how = "each weighted by how likely it is to have made your decisions so far"
        elif self._decided and self._weights is not None:
            how = "weighted as before the game, since none of them would have made all of your decisions"
        mixed: NDArray[np.float64] = np.einsum("k,kna->na", weights / weights.sum(), np.nan_to_num(np.stack(probs)))
        more = f" ({self._left_out} that are rarer left out)" if self._left_out else ""
        return Answers(mixed), f"The mixture's {len(probs)} policies{more}, {how}."

    def _gain(self, member: SampledPolicy, step: Step) -> float | None:
        """Return log-probability of the decisions that were made; None where the policy cannot say it."""
        probs, rows = self._answers(member, step).probs, step.due[self._player]
        if probs is None:
            return None
        with np.errstate(divide="ignore"):
            return float(np.log(np.nan_to_num(probs[np.arange(len(rows)), rows.action])).sum())

    def _answers(self, member: SampledPolicy, step: Step) -> Answers:
        return answers_of(member.policy, self._recalled(member, step), self._spec, self._player, mode=member.mode)

    def _recalled(self, member: SampledPolicy, step: Step) -> Step:
        """Return the step as this policy would stand in it, with what it would remember; without the central state, by which a critic would
        tell what the seat may not know."""
        shape = member.policy.memory_shape
        rows = step.due[self._player]
        memory = None if shape is None else self._recall(member, rows, shape)
        due = [*step.due]
        due[self._player] = replace(rows, memory=memory)
        return replace(step, due=tuple(due), state=None)

    def _recall(self, member: SampledPolicy, rows: Decisions, shape: tuple[int, ...]) -> NDArray[np.float32]:
        held = self._memory.get(_key(member), {})
        return np.stack([held.get(agent, np.zeros(shape, np.float32)) for agent in rows.agent.tolist()])

    def _remembered(self, member: SampledPolicy, step: Step) -> dict[int, NDArray[np.float32]]:
        """Return agent -> what this policy would remember after the step."""
        held, policy = self._memory.get(_key(member), {}), member.policy
        if policy.memory_shape is None:
            return held
        rows = self._recalled(member, step).due[self._player]
        observation, mask = rows.observation, rows.mask
        if self._spec.enumeration is not None:
            observation, mask = decode(self._spec.enumeration, observation, mask, takes_ids=policy.takes_ids)
        noise = np.full((len(rows), policy.noise_width), _MIDDLE, np.float32)
        act = policy.act(observation, mask, rows.memory, noise, mode=member.mode, **teams_for(policy, rows.agent))
        return held | dict(zip(rows.agent.tolist(), next_memory(act), strict=True))


def _key(member: SampledPolicy) -> Hashable:
    return member.name, member.mode


@dataclass(frozen=True, slots=True)
class _Advice:
    """probs, values: float[n, A] of n open decisions; value: float[n]. how, about: `Hint.how`, `Hint.values`."""

    probs: NDArray[np.float64] | None
    values: NDArray[np.floating[Any]] | None = None
    value: NDArray[np.floating[Any]] | None = None
    how: str = ""
    about: str = ""


class Advisor:
    """Gives hints to one player of a game, episode by episode."""

    def __init__(self, game: RunGame, player: int, who: str = "") -> None:
        """who: whose hints, a name as seats take it; default: `RunGame.default_hints`. Raises ScenarioError for a run without policies for
        this player, and for a bot that cannot say what it thinks; ConfigError for other names."""
        self._spec, self._player = game.spec, player
        self.who = who or game.default_hints(player)
        check_name(self.who)
        sampled = game.named.seats(self.who)[player]
        if not sampled:
            raise ScenarioError(
                f"{self.who!r} cannot play as player {player}, and gives no hints there. Choose another."
            )
        self._policies = _Mixture(sampled, game.spec, player)
        bot = sampled[0].policy
        self._search: Any = bot.bot.make() if isinstance(bot, BotPolicy) else None
        if self._search is not None and not isinstance(self._search, SupportsMoveStatistics):
            raise ScenarioError(f"{self.who!r} cannot say what it thinks of moves, and gives no hints. Choose another.")
        mixed = () if self.who == f"@{META}" or game.run.lacking else game.named.seats(f"@{META}")[player]
        self._meta = _Mixture(mixed, game.spec, player) if mixed else None
        self._values = MoveValues(game, player, self.who)
        self._discount = game.discount
        self.begin()

    def begin(self) -> None:
        """Another episode."""
        self._steps_read = 0  # steps that are accounted for
        for mixture in self._mixtures:
            mixture.begin()

    @property
    def _mixtures(self) -> list[_Mixture]:
        both = [None if self._search is not None else self._policies, self._meta]
        return [mixture for mixture in both if mixture is not None]

    def advise(
        self, steps: Sequence[Step], now: Step, decisions: Sequence[FrameDecision], state: Any = None
    ) -> list[FrameDecision]:
        """Return the player's open decisions, with what is thought of them.

        Args:
            steps: The episode's, so far.
            now: With the open decisions, as `decisions` has them.
            decisions: Of the player.
            state: The `pyspiel.State` that a search begins in, where the game has one.
        """
        for step in steps[self._steps_read :]:
            if len(step.due[self._player]):
                for mixture in self._mixtures:
                    mixture.account(step)
            self._steps_read += 1
        advice = self._advice(now, state)
        meta, how = (Answers(), "") if self._meta is None else self._meta.answer(now)
        out = []
        for row, one in enumerate(decisions):
            legal = [option.action for option in one.legal]
            out.append(
                replace(
                    one,
                    probs=_picked(advice.probs, row, legal),
                    values=_picked(advice.values, row, legal),
                    value=None if advice.value is None else float(advice.value[row]),
                    hint=Hint(
                        policy=self.who,
                        meta=_picked(meta.probs, row, legal),
                        how=" ".join(filter(None, (advice.how, how))),
                        values=advice.about,
                    ),
                )
            )
        return out

    def _advice(self, now: Step, state: Any) -> _Advice:
        if isinstance(self._search, SupportsMoveStatistics):
            return self._searched(self._search, now, state)
        answers, how = self._policies.answer(now)
        computed = self._values.at(now.due[self._player].observation)
        if computed is not None:
            about = "Values are expected returns, computed in the game's tree: you play as the hints say, the others play the mixture."
            return _Advice(answers.probs, computed[0], computed[1], how, about)
        discounted = "" if self._discount in (None, 1.0) else f", discounted by {self._discount:g} at each decision"
        about = f"Values are estimates of a network: expected returns{discounted}."
        values, value = answers.action_values, answers.value
        return _Advice(answers.probs, values, value, how, "" if values is None and value is None else about)

    def _searched(self, search: SupportsMoveStatistics, now: Step, state: Any) -> _Advice:
        if state is None or len(now.due[self._player]) != 1:
            raise ScenarioError(f"{self.who!r} searches in games of OpenSpiel, one decision at a time. Choose another.")
        search.restart(self._player, self._steps_read)
        probs, values = np.zeros((1, self._width)), np.full((1, self._width), np.nan)
        for action, (share, value) in search.move_statistics(state.clone()).items():
            probs[0, action], values[0, action] = share, value
        about = "Probabilities are shares of the search's simulations; values are mean returns of them."
        return _Advice(probs, values, None, "", about)

    @property
    def _width(self) -> int:
        space: Any = self._spec.agents_of(self._player)[0].action
        return int(space.n)


def _picked(table: NDArray[np.floating[Any]] | None, row: int, legal: Sequence[int]) -> list[float | None] | None:
    """Return a row's numbers of these actions, None of what is not known."""
    return None if table is None else [float(x) if np.isfinite(x) else None for x in table[row, legal]]
