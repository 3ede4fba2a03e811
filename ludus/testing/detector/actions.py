"""Actions: whether all legal ones are accepted, and whether any makes a difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ludus.core.errors import EnvError
from ludus.testing.detector.finding import Finding
from ludus.testing.detector.session import Session, State
from ludus.testing.ledger import Row

LEGAL, EFFECTS = "legal actions", "effects of actions"
_DEPTHS = (0, 1, 2, 3, 5, 8, 13, 21)
_AFTER = 60  # steps after an action in which its effect may show
_STATES = 6  # in which an agent's actions had no effect, at least, for a warning


def describe(value: Any) -> Any:
    """Return an action as evidence has it."""
    return value.tolist() if hasattr(value, "tolist") else value


def legal(session: Session) -> Iterator[Finding]:
    """Yield a finding where a legal action raises: in some states every one is played."""
    if session.spec.determinism == "none":
        return
    for state in session.states(episodes=2, depths=(0, 3, 9)):
        for p, agents in enumerate(state.due):
            for row in range(min(len(agents), 2)):
                finding = _all_accepted(session, state, p, row)
                if finding is not None:
                    session.renew()
                    yield finding
                    return


def _all_accepted(session: Session, state: State, player: int, row: int) -> Finding | None:
    begin, values = 0, [None]
    while begin < len(values) and session.left():
        timestep = session.enter(state)
        if timestep is None:
            return None
        values = session.alternatives(timestep, player, row)
        part = (values[begin : begin + session.num_envs] * session.num_envs)[: session.num_envs]
        actions = session.actions_with(timestep, player, row, part, session.actor(state))
        try:
            session.env.step(actions)
        except Exception as error:  # noqa: BLE001  whatever an environment raises at a legal action is the finding
            return Finding(
                LEGAL,
                "error",
                f"one of its legal actions raised: {' '.join(str(error).split())}",
                "Let the environment take every action that its mask, or its space, allows; or mask it.",
                {
                    "seed": session.reset_seed(state.seed),
                    "step": len(state.path),
                    "agent": session.spec.agents_of(player)[state.due[player][row]].name,
                    "actions": [describe(value) for value in part],
                },
            )
        begin += session.num_envs
    return None


def effects(session: Session) -> Iterator[Finding]:
    """Yield a finding where what an agent plays makes no difference: in copies of a state it plays different actions, and all that is
    observed, paid and ended afterwards is equal."""
    if session.spec.determinism == "none":
        return
    tried: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], State] = {}
    effective: set[tuple[int, int]] = set()
    for state in session.states(episodes=3, depths=_DEPTHS):
        for p, agents in enumerate(state.due):
            for row, agent in enumerate(agents):
                if (p, agent) in effective or not session.left():
                    continue
                answer = _differs(session, state, p, row)
                if answer:
                    effective.add((p, agent))
                elif answer is not None:
                    tried[p, agent] = tried.get((p, agent), 0) + 1
                    last[p, agent] = state
    without = {key: n for key, n in tried.items() if key not in effective and n >= _STATES}
    if not without:
        return
    every = not effective
    (p, agent), n = next(iter(without.items()))
    yield Finding(
        EFFECTS,
        "error" if every else "warning",
        f"what {session.spec.agents_of(p)[agent].name!r} plays makes no difference: in {n} states its actions led to equal observations, "
        f"masks, rewards and ends in the next {_AFTER} steps.",
        "See whether the environment reads the action that `step` is called with.",
        {
            "seed": session.reset_seed(last[p, agent].seed),
            "step": len(last[p, agent].path),
            "agents": len(without),
            "states": n,
        },
    )


def _differs(session: Session, state: State, player: int, row: int) -> bool | None:
    """Return whether copies part after different actions of one agent; None: that cannot be told."""
    timestep = session.enter(state)
    if timestep is None:
        return None
    values = session.alternatives(timestep, player, row)
    if len(values) < 2:
        return None
    spread = [values[k * (len(values) - 1) // (session.num_envs - 1)] for k in range(session.num_envs)]
    actor = session.actor(state)
    try:
        timestep = session.env.step(session.actions_with(timestep, player, row, spread, actor))
        for _ in range(_AFTER):
            if apart(session.rows(timestep)):
                return True
            if len(timestep.finished.environment) or not session.left():
                return False if len(timestep.finished.environment) else None
            timestep = session.env.step(actor.actions(timestep))
    except EnvError:
        session.renew()
        return None
    return False


def apart(rows: Sequence[list[Row]]) -> bool:
    """Return whether copies differ in what a timestep says about them."""
    return any(row != rows[0] for row in rows)
