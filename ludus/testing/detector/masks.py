"""Masks: whether what they rule out is refused, punished or without effect when it is played all the same.

A copy of a state plays a masked-out action past the check of actions; other copies play the legal ones. It is right if the environment
raises, if the episode ends with nothing more than the worst legal action earns, or if it continues as before, or as after a legal action.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ludus.core.types import Array, Timestep
from ludus.envs.spaces import Choices
from ludus.testing.detector.actions import describe
from ludus.testing.detector.finding import Finding
from ludus.testing.detector.session import Session, State
from ludus.testing.ledger import Actor, Row, legal_actions

MASKED = "masked actions"
_DEPTHS = (0, 1, 2, 4, 7, 12)
_EACH = 6  # masked-out actions of one agent in one state
_LATER = 3  # steps after which an action that did nothing has left no trace
_KINDS = ("PythonVectorEnv", "SingleAgentVectorEnv", "JaxVectorEnv")


def masks(session: Session) -> Iterator[Finding]:
    """Yield a finding where masked-out actions work: they lead where no legal action leads, and are not punished.

    Args:
        session: Of a vector of Python objects or of JAX; others refuse such actions before the game has them.
    """
    if session.spec.determinism == "none" or session.spec.enumeration is not None or _checking_vector(session) is None:
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
            "note" if session.python is None else "warning",  # compiled environments cannot refuse an action
            f"{len(working)} of {tried} masked-out actions work when they are played: they lead where no legal action leads, and are not "
            "punished.",
            "See whether the mask is of this agent and of this state, and whether it rules out too much.",
            working[0],
        )


def _checking_vector(session: Session) -> Any:
    """Return the vector, below wrappers that leave actions as they are, which checks actions by the masks of its last timestep; None where
    there is none."""
    env: Any = session.env
    while not any(kind.__name__ in _KINDS for kind in type(env).__mro__):
        if not hasattr(env, "env"):
            return None
        env = env.env
    spaces = [[agent.action for agent in spec.agents] for spec in (env.spec, session.spec)]
    return env if hasattr(env, "_last") and spaces[0] == spaces[1] else None


def _try_masked(session: Session, state: State, player: int) -> Iterator[tuple[bool, dict[str, Any]]]:
    """Yield, of masked-out actions of a player's first due agent, whether each works, and where it was played."""
    timestep = session.enter(state)
    if timestep is None or timestep.due[player].mask is None:
        return
    values = session.alternatives(timestep, player, 0)
    ruled_out = _ruled_out(session, timestep, player, values[0])
    if not ruled_out:
        return
    before = session.rows(timestep)[0]
    outcomes, worst = _legal_outcomes(session, state, player, values)
    if len(outcomes) < len(values):
        return
    for action in ruled_out[:: max(1, len(ruled_out) // _EACH)][:_EACH]:
        if not session.left():
            return
        works = _works(session, state, player, (action, values[0]), before, outcomes, worst)
        works = works and not _settles(session, state, player, action, values)
        if works is not None:
            agent = session.spec.agents_of(player)[state.due[player][0]].name
            place = {"seed": session.reset_seed(state.seed), "step": len(state.path), "agent": agent}
            yield works, {**place, "action": describe(action), "legal": [describe(value) for value in values]}


def _ruled_out(session: Session, timestep: Timestep, player: int, base: Any) -> list[Any]:
    """Return the actions that the mask of a player's first due agent rules out: where they are several numbers, a legal one with one number
    replaced."""
    choices = Choices.of(session.spec.agents_of(player)[0].action)
    assert choices is not None
    legal = legal_actions(session.spec, timestep.due[player], choices)[0]
    actions: list[Any] = []
    for k, n in enumerate(choices.counts.tolist()):
        for value in np.setdiff1d(np.arange(n), legal[k]).tolist():
            action = np.array(base)
            action.reshape(-1)[k] = value
            actions.append(action if action.shape else value)
    return actions


def _legal_outcomes(session: Session, state: State, player: int, legal: list[Any]) -> tuple[list[list[Row]], float]:
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
    session: Session,
    state: State,
    player: int,
    pair: tuple[Any, Any],
    before: list[Row],
    outcomes: list[list[Row]],
    worst: float,
) -> bool | None:
    """Return whether a masked-out action works; None: that cannot be told. pair: this action, and a legal one for the other copies."""
    timestep = session.enter(state)
    if timestep is None:
        return None
    values = [pair[0]] + [pair[1]] * (session.num_envs - 1)
    actions = _past_the_check(session, timestep, player, values, session.actor(state))
    try:
        timestep = session.env.step(actions)
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


def _settles(session: Session, state: State, player: int, action: Any, values: list[Any]) -> bool:
    """Return whether, some equal steps later, all is as after a legal action: observations may have the last action in them."""
    others = session.num_envs - 1
    for begin in range(0, len(values), others):
        timestep = session.enter(state)
        if timestep is None or not session.left():
            return True
        actor = session.actor(state)
        part = [action, *(values[begin : begin + others] * others)[:others]]
        timestep = session.env.step(_past_the_check(session, timestep, player, part, actor))
        for _ in range(_LATER):
            if len(timestep.finished.environment):
                break
            timestep = session.env.step(actor.actions(timestep))
        rows = session.rows(timestep)
        if not len(timestep.finished.environment) and rows[0] in rows[1:]:
            return True
    return False


def _past_the_check(
    session: Session, timestep: Timestep, player: int, values: list[Any], actor: Actor
) -> tuple[Array, ...]:
    """Return actions, one of which may be masked out, after the vector has forgotten the masks by which it checks them."""
    env = _checking_vector(session)
    actions = session.actions_with(timestep, player, 0, values, actor)
    unmasked = tuple(due._replace(mask=None) for due in env._last.due)
    env._last = env._last._replace(due=unmasked)
    return actions


def _shown(rows: list[Row]) -> list[tuple[object, ...]]:
    """Return who is due and what it sees, without rewards and masks."""
    return [row[:4] for row in rows if row[0] == "due"]


def _earned(session: Session, timestep: Timestep, player: int, environment: int) -> float:
    """Return what a player's agents were paid with a timestep."""
    agents = len(session.spec.agents_of(player))
    rows = (timestep.due[player], timestep.ended[player])
    return float(sum(one.reward[one.slot // agents == environment].sum() for one in rows))
