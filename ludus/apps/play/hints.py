"""Hints: policies' evaluation of a person's decision, and what the meta-strategy would do there.

The meta-strategy mixes policies at the start of a game. What it plays at a decision is the mixture of its members' answers, each weighted
by its probability times how likely it would have made the decisions so far (Bayes's rule); the weights of before the game where that cannot
be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ludus.apps.episodes.debugger import Answers, Decisions, Step
from ludus.apps.episodes.played_episode import answers_of
from ludus.apps.episodes.schemas import FrameDecision, Hint
from ludus.apps.play.run_game import RunGame
from ludus.core.errors import ScenarioError
from ludus.core.types import PolicyRef
from ludus.policies.base import Policy, teams_for
from ludus.rollout.inference.groups import decode, next_memory

MOST_MEMBERS = 32
"""Of a mixture, those that are played most."""
_MIDDLE = 0.5  # the uniforms with which a policy is asked what it would remember


@dataclass(frozen=True, slots=True)
class _Member:
    ref: PolicyRef
    policy: Policy
    prob: float


class Advisor:
    """Gives hints to one player of a game, episode by episode."""

    def __init__(self, game: RunGame, player: int) -> None:
        """Raise ScenarioError for a run without policies for this player."""
        run, self._spec, self._player = game.run, game.spec, player
        which = run.population[player]
        if which not in run.best:
            raise ScenarioError(
                f"{game.name} has no policy for player {player} that could give hints. Play without them."
            )
        best = run.best[which]
        self._name = f"@{run.name(best)}"
        self._best = _Member(best, run.policy(best), 1.0)
        probs = run.solution.strategies[player]
        order = [int(k) for k in np.argsort(-probs, kind="stable") if probs[k] > 0][:MOST_MEMBERS]
        members = run.members[which]
        self._members = [_Member(members[k].ref, run.policy(members[k].ref), float(probs[k])) for k in order]
        self._left_out = int((probs > 0).sum()) - len(order)
        self.begin()

    def begin(self) -> None:
        """Another episode."""
        self._steps_read = 0  # steps that are accounted for
        self._weights: NDArray[np.float64] | None = np.log([m.prob for m in self._members])
        self._memory: dict[PolicyRef, dict[int, NDArray[np.float32]]] = {}

    def advise(self, steps: Sequence[Step], now: Step, decisions: Sequence[FrameDecision]) -> list[FrameDecision]:
        """Return the player's open decisions, with what the policies say of them. steps: of the episode so far; now: with the open
        decisions, as `decisions` has them."""
        for step in steps[self._steps_read :]:
            self._account(step)
            self._steps_read += 1
        answers = self._answers(self._best, now)
        meta, how = self._meta(now)
        out = []
        for row, one in enumerate(decisions):
            legal = [option.action for option in one.legal]
            out.append(
                replace(
                    one,
                    probs=None if answers.probs is None else answers.probs[row, legal].tolist(),
                    values=None if answers.action_values is None else answers.action_values[row, legal].tolist(),
                    value=None if answers.value is None else float(answers.value[row]),
                    hint=Hint(policy=self._name, meta=None if meta is None else meta[row, legal].tolist(), how=how),
                )
            )
        return out

    def _account(self, step: Step) -> None:
        """The members' weights and memory after a decision that was made. If a policy raises, they stay as they were."""
        if not len(step.due[self._player]):
            return
        gains = [self._gain(member, step) for member in self._members]
        memory = {m.ref: self._remembered(m, step) for m in (*self._members, self._best)}
        known = [gain for gain in gains if gain is not None]
        self._weights = None if self._weights is None or len(known) < len(gains) else self._weights + known
        self._memory = memory

    def _gain(self, member: _Member, step: Step) -> float | None:
        """Return log-probability of the decisions that were made; None where the policy cannot say it."""
        probs, rows = self._answers(member, step).probs, step.due[self._player]
        if probs is None:
            return None
        with np.errstate(divide="ignore"):
            return float(np.log(np.nan_to_num(probs[np.arange(len(rows)), rows.action])).sum())

    def _meta(self, now: Step) -> tuple[NDArray[np.float64] | None, str]:
        """Return [n, A] what the meta-strategy plays, and how that was found out."""
        if not self._members:
            return None, "The run has no meta-strategy."
        answers = [self._answers(member, now).probs for member in self._members]
        known = [probs for probs in answers if probs is not None]
        if len(known) < len(answers):
            return None, "Some policies of the mixture cannot say how likely they are to do what."
        prior = np.array([m.prob for m in self._members])
        weights, how = prior, "weighted as before the game"
        if self._steps_read and self._weights is not None and np.isfinite(self._weights.max()):
            weights = np.exp(self._weights - self._weights.max())
            how = "each weighted by how likely it is to have made your decisions so far"
        elif self._steps_read and self._weights is not None:
            how = "weighted as before the game, since none of them would have made all of your decisions"
        weights = weights / weights.sum()
        mixed: NDArray[np.float64] = np.einsum("k,kna->na", weights, np.nan_to_num(np.stack(known)))
        count = f"The mixture's {len(known)} policies" if len(known) > 1 else "The mixture's only policy"
        more = f" ({self._left_out} that are rarer left out)" if self._left_out else ""
        return mixed, f"{count}{more}, {how}." if len(known) > 1 else f"{count}."

    # ------------------------------------------------------------------------------------------ asking

    def _answers(self, member: _Member, step: Step) -> Answers:
        return answers_of(member.policy, self._recalled(member, step), self._spec, self._player, mode=member.ref.mode)

    def _recalled(self, member: _Member, step: Step) -> Step:
        """Return the step as this policy would stand in it, with what it would remember; without the central state, by which a critic would
        tell what the seat may not know."""
        shape = member.policy.memory_shape
        rows = step.due[self._player]
        memory = None if shape is None else self._recall(member, rows, shape)
        due = [*step.due]
        due[self._player] = replace(rows, memory=memory)
        return replace(step, due=tuple(due), state=None)

    def _recall(self, member: _Member, rows: Decisions, shape: tuple[int, ...]) -> NDArray[np.float32]:
        held = self._memory.get(member.ref, {})
        return np.stack([held.get(agent, np.zeros(shape, np.float32)) for agent in rows.agent.tolist()])

    def _remembered(self, member: _Member, step: Step) -> dict[int, NDArray[np.float32]]:
        """Return agent -> what this policy would remember after the step."""
        held, policy = self._memory.get(member.ref, {}), member.policy
        if policy.memory_shape is None:
            return held
        rows = self._recalled(member, step).due[self._player]
        observation, mask = rows.observation, rows.mask
        if self._spec.enumeration is not None:
            observation, mask = decode(self._spec.enumeration, observation, mask, takes_ids=policy.takes_ids)
        noise = np.full((len(rows), policy.noise_width), _MIDDLE, np.float32)
        act = policy.act(observation, mask, rows.memory, noise, mode=member.ref.mode, **teams_for(policy, rows.agent))
        return held | dict(zip(rows.agent.tolist(), next_memory(act), strict=True))
