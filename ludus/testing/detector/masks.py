"""Masks: whether what they rule out is refused, punished or without effect when it is played all the same.

A copy of a state plays a masked-out action past the check of actions; other copies play the legal ones. It is right if the environment
raises, if the episode ends with nothing more than the worst legal action earns, or if it continues as before, or as after a legal action.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ludus.core.types import Timestep
from ludus.envs.spaces import Choices
from ludus.testing.detector.actions import describe
from ludus.testing.detector.finding import Finding
from ludus.testing.detector.session import Session, State
from ludus.testing.ledger import Row, legal_actions

MASKED = "masked actions"
_DEPTHS = (0, 1, 2, 4, 7, 12)
_EACH = 6  # masked-out actions of one agent in one state
_KINDS = ("PythonVectorEnv", "SingleAgentVectorEnv", "JaxVectorEnv")


def masks(session: Session) -> Iterator[Finding]:
    """Yield a finding where masked-out actions work: they lead where no legal action leads, and are not punished.

    Args:
        session: Of a vector of Python objects or of JAX, without wrappers; others refuse such actions before the game has them.
    """
    if session.spec.determinism == "none" or session.spec.enumeration is not None or not _checks_by_last(session.env):
        return
    tried, working = 0, []
    for state in session.states(episodes=3, depths=_DEPTHS):
        for p, agents in enumerate(state.due):
            if agents and Choices.of(session.spec.agents_of(p)[0].action) is not None:
                verdicts = list(_try_masked(session, state, p))
                tried += len(verdicts)
                working += [evidence for works, evidence in verdicts if works]
    if working:
        yield Finding(
            MASKED,
            "warning",
            f"{len(working)} of {tried} masked-out actions work when they are played: they lead where no legal action leads, and are not "
            "punished.",
            "See whether the mask is of this agent and of this state, and whether it rules out too much.",
            working[0],
        )


def _checks_by_last(env: Any) -> bool:
    """Whether a vector checks actions by the masks of its last timestep."""
    return any(kind.__name__ in _KINDS for kind in type(env).__mro__) and hasattr(env, "_last")


def _try_masked(session: Session, state: State, player: int) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield, of masked-out actions of a player's first due agent, whether each works, and where it was played."""
    timestep = session.enter(state)
    if timestep is None or timestep.due[player].mask is None:
        return
    choices = Choices.of(session.spec.agents_of(player)[0].action)
    assert choices is not None
    if len(choices.counts) > 1:
        return  # what is ruled out of one number may depend on how the environment reads the others
    legal = legal_actions(session.spec, timestep.due[player], choices)[0][0]
    ruled_out = np.setdiff1d(np.arange(int(choices.counts[0])), legal)
    if not len(ruled_out):
        return
    before = session.rows(timestep)[0]
    outcomes, worst = _legal_outcomes(session, state, player, legal)
    for action in ruled_out[:: max(1, len(ruled_out) // _EACH)][:_EACH].tolist():
        if not session.left():
            return
        works = _works(session, state, player, action, before, outcomes, worst)
        if works is not None:
            agent = session.spec.agents_of(player)[state.due[player][0]].name
            yield (
                works,
                {
                    "seed": session.reset_seed(state.seed),
                    "step": len(state.path),
                    "agent": agent,
                    "action": describe(action),
                    "legal": list(legal),
                },
            )


def _legal_outcomes(session: Session, state: State, player: int, legal: list[int]) -> tuple[list[list[Row]], float]:
    """Return what each legal action leads to, and the least that one earns at once."""
    outcomes: list[list[Row]] = []
    worst = np.inf
    for begin in range(0, len(legal), session.num_envs):
        timestep = session.enter(state)
        if timestep is None or not session.left():
            break
        part = (legal[begin : begin + session.num_envs] * session.num_envs)[: session.num_envs]
        timestep = session.env.step(session.actions_with(timestep, player, 0, part, session.actor(state)))
        outcomes += session.rows(timestep)
        worst = min(worst, *(_earned(session, timestep, player, e) for e in range(session.num_envs)))
    return outcomes, float(worst)


def _works(
    session: Session, state: State, player: int, action: int, before: list[Row], outcomes: list[list[Row]], worst: float
) -> bool | None:
    """Return whether a masked-out action works; None: that cannot be told."""
    timestep = session.enter(state)
    if timestep is None:
        return None
    env: Any = session.env
    legal = session.alternatives(timestep, player, 0)[0]
    values = [action] + [legal] * (session.num_envs - 1)
    actions = session.actions_with(timestep, player, 0, values, session.actor(state))
    env._last = env._last._replace(
        due=tuple(due._replace(mask=None) for due in env._last.due)
    )  # which it checks actions by
    try:
        timestep = env.step(actions)
    except Exception:  # noqa: BLE001  it is refused, in whatever way
        session.renew()
        return False
    row = session.rows(timestep)[0]
    if row in outcomes or _shown(row) == _shown(before):
        return False
    over = 0 in timestep.finished.environment
    return (
        not (over and _earned(session, timestep, player, 0) <= worst + 1e-6)
        and not _earned(session, timestep, player, 0) < worst - 1e-6
    )


def _shown(rows: list[Row]) -> list[tuple[object, ...]]:
    """Return who is due and what it sees, without rewards and masks."""
    return [row[:4] for row in rows if row[0] == "due"]


def _earned(session: Session, timestep: Timestep, player: int, environment: int) -> float:
    """Return what a player's agents were paid with a timestep."""
    agents = len(session.spec.agents_of(player))
    rows = (timestep.due[player], timestep.ended[player])
    return float(sum(one.reward[one.slot // agents == environment].sum() for one in rows))
