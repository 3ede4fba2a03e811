"""What happened on the pitch between two steps, from views alone: the engine's sides, whose actions are not known, count in the same way.

Events are named from the side whose views are followed: OWN and THEIR. Followed from the other side, the same match gives the same events
with the sides swapped.

    has the ball --kick--> flight --a mate receives, or kicks it on--> pass, completed
         |                   |----an opponent receives--> pass, intercepted; a shot is saved by a keeper
         |                   `----out of play, or a free kick--> pass that failed
         |--a slow loss, an opponent receives--> tackle
         `--straight to an opponent--> tackle
"""

from __future__ import annotations

from dataclasses import dataclass
from math import hypot, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.contrib.football.view import GOAL_HALF, METRES, NOBODY, OWN, THEIR, Mode, SideView

__all__ = ["Events", "Follower", "Kick", "PlayerRef", "ball_was_placed"]

KICK_SPEED = 1.0
"""Metres a step (0.1 s) from which a ball that its owner lets go of counts as kicked; passes have about 1.6, a ball that is lost 0.4."""
TOUCH_GAIN = 0.3
TOUCH_REACH = 2.0
"""A ball without an owner that gets faster by this many metres a step, to the speed of a kick, was kicked first time by the nearest body,
if one is as near (metres): the engine gives such balls no owner. Bounces and blocks slow a ball down."""
PARRY_LOSS = 0.5
PARRY_REACH = 4.0
"""A shot that loses so much speed in a step (metres a step) with the keeper as near (metres; a shot flies three a step) is parried."""
SHOT_SPEED = 1.8
SHOT_RANGE = 40.0
SHOT_WIDTH = 8.0
"""A kick is a shot if it is at least this fast, from at most this far (metres) from the goal's centre, along a line that crosses the goal
line at most this far (metres) from it: shots are about 2.9 metres a step, and miss by little."""
BAR = 2.44
"""Metres: the height of the goal."""
DEFLECTED = 20
"""Steps after a shot within which a goal is the shooter's, even if others touched the ball since."""
PUT_DOWN = 5.0
"""Metres a step: no ball flies so fast, so one that is in the middle then was put there: for a kick-off, at half-time."""
_GRAVITY = 0.0981  # metres a step, each step
_X, _Y = METRES.tolist()


class PlayerRef(NamedTuple):
    """A footballer: OWN or THEIR, and the index there; body -1: not known."""

    side: int
    body: int


NO_BODY = PlayerRef(NOBODY, -1)


class Kick(NamedTuple):
    """The ball leaves a body's feet.

    Attributes:
        by: Who kicks.
        shot: Whether it is a shot.
        on_target: A shot whose line without drag ends between the posts and under the bar.
        stopped: A shot that a keeper has parried.
    """

    by: PlayerRef
    shot: bool
    on_target: bool
    stopped: bool = False


@dataclass(slots=True)
class Events:
    """The events of one step; sides are OWN or THEIR, NOBODY where it did not happen.

    Attributes:
        goal: The side that is given the goal.
        own_goal: Whether the other side put it there.
        shot: A kick at the goal.
        on_target: The side of a shot that is recognised as on target now: when it is kicked, or when it goes in.
        saved: The side whose keeper stopped a shot.
        passed: The side whose pass came to its end, completed or not.
        completed: Passer and receiver.
        intercepted: Who took the opponents' pass.
        tackled: Who took the ball from the opponents without a pass between.
        lost: Who had the ball when the opponents took it by either.
        carried: Who had the ball before and has it now; metres: how far it moved meanwhile.
        out: The side that put the ball out of play.
        restart: The mode that was called.
        foul: The side that gave a free kick away; off_side likewise.
    """

    goal: int = NOBODY
    own_goal: bool = False
    shot: PlayerRef = NO_BODY
    on_target: int = NOBODY
    saved: int = NOBODY
    passed: int = NOBODY
    completed: tuple[PlayerRef, PlayerRef] | None = None
    intercepted: PlayerRef = NO_BODY
    tackled: PlayerRef = NO_BODY
    lost: PlayerRef = NO_BODY
    carried: PlayerRef = NO_BODY
    metres: float = 0.0
    out: int = NOBODY
    restart: int = Mode.NORMAL
    foul: int = NOBODY
    off_side: int = NOBODY


class Follower:
    """Follows one match from one side's views: `begin` with the first, then `see` each step once."""

    def __init__(self) -> None:
        self._last = NO_BODY  # who had the ball last
        self._flight: Kick | None = None  # the kick that is not received yet
        self._shot: Kick | None = None  # the last shot
        self._since_shot = 0
        self._stopped = NOBODY  # whose pass was on its way when the referee stopped the game

    def begin(self, view: SideView) -> None:
        """Begin a match."""
        self._forget()
        self._last = _owner(view)

    def see(self, before: SideView, after: SideView) -> Events:
        """Return the events between two steps."""
        events = Events()
        self._since_shot += 1
        if after.score != before.score:
            self._goal(events, before, after)
        elif after.mode != Mode.NORMAL:
            if before.mode != after.mode:
                self._on_stoppage(events, after)
        elif before.mode != Mode.NORMAL:
            self._on_restart(events, before, after)
        elif ball_was_placed(before, after):
            self.begin(after)
        else:
            self._on_open_play(events, before, after)
        return events

    def _forget(self) -> None:
        self._last, self._flight, self._shot = NO_BODY, None, None

    def _goal(self, events: Events, before: SideView, after: SideView) -> None:
        side = OWN if after.score[0] > before.score[0] else THEIR
        shot = self._shot
        by_shooter = shot is not None and shot.by.side == side and self._since_shot <= DEFLECTED
        events.goal = side
        events.own_goal = not by_shooter and self._last.side == 1 - side
        if by_shooter and shot is not None and not shot.on_target:
            events.on_target = side
        elif not by_shooter and not events.own_goal:  # from nowhere that counts as a shot: it was one all the same
            events.shot, events.on_target = PlayerRef(side, self._last.body), side
        elif events.own_goal and self._flight is not None and not self._flight.shot:
            events.passed = self._flight.by.side
        self._forget()

    def _on_stoppage(self, events: Events, after: SideView) -> None:
        """Note that the referee stops the game."""
        events.restart = after.mode
        if self._flight is not None and not self._flight.shot:
            events.passed = self._flight.by.side
        self._stopped = events.passed
        if after.mode == Mode.GOAL_KICK:
            events.out = OWN if after.ball[0] > 0 else THEIR
        elif after.mode == Mode.CORNER:
            events.out = THEIR if after.ball[0] > 0 else OWN
        elif after.mode == Mode.THROW_IN:
            events.out = 1 - after.ball_side if after.ball_side != NOBODY else self._last.side
        self._flight = None

    def _on_restart(self, events: Events, before: SideView, after: SideView) -> None:
        """Note a restart, as a kick of any speed."""
        taker = _owner(before) if before.ball_side != NOBODY else _nearest(before)
        if before.mode in (Mode.FREE_KICK, Mode.PENALTY) and taker.side != NOBODY:
            offender = 1 - taker.side
            if before.mode == Mode.FREE_KICK and self._stopped == offender:
                events.off_side = offender
            else:
                events.foul = offender
        self._last = taker
        if taker.side != NOBODY and _owner(after) != taker:
            self._kick(events, taker, after)
            self._arrive(events, _owner(after), after)

    def _on_open_play(self, events: Events, before: SideView, after: SideView) -> None:
        had, has = _owner(before), _owner(after)
        if had.side == NOBODY:
            if has.side != NOBODY:
                self._arrive(events, has, after)
            elif (toucher := _toucher(before, after)) != NO_BODY:
                self._arrive(events, toucher, after)
                self._kick(events, toucher, after)
            elif self._flight is not None and self._flight.shot:
                self._check_parry(events, self._flight, before, after)
            return
        self._last = had
        if had == has:
            events.carried, events.metres = had, _distance(before.ball, after.ball)
        elif has.side == NOBODY:
            self._flight = None
            if _speed(after) >= KICK_SPEED:
                self._kick(events, had, after)
        else:  # straight from one to another
            self._flight = Kick(had, shot=False, on_target=False) if had.side == has.side else None
            self._arrive(events, has, after)

    def _kick(self, events: Events, by: PlayerRef, after: SideView) -> None:
        kick = _kick(by, after)
        self._flight = kick
        if kick.shot:
            events.shot = by
            events.on_target = by.side if kick.on_target else NOBODY
            self._shot, self._since_shot = kick, 0

    def _check_parry(self, events: Events, shot: Kick, before: SideView, after: SideView) -> None:
        """Note a save where a shot loses speed at a keeper whom the engine does not give the ball."""
        if shot.stopped or _speed(after) > _speed(before) - PARRY_LOSS:
            return
        near = _nearest(before, reach=PARRY_REACH)
        if near.side == 1 - shot.by.side and _is_keeper(after, near):
            events.saved = near.side
            self._flight = shot._replace(stopped=True)

    def _arrive(self, events: Events, has: PlayerRef, after: SideView) -> None:
        """Note who receives the ball, or touches it, and what kick that ends."""
        flight, last = self._flight, self._last
        if has.side == NOBODY:
            return
        self._flight, self._last = None, has
        if flight is None:
            if last.side == 1 - has.side:
                events.tackled, events.lost = has, last
        elif flight.shot:
            if has.side != flight.by.side and _is_keeper(after, has) and not flight.stopped:
                events.saved = has.side
        elif has.side != flight.by.side:
            events.passed, events.intercepted, events.lost = flight.by.side, has, flight.by
        elif has.body != flight.by.body:
            events.passed, events.completed = has.side, (flight.by, has)


_MIDDLE = np.zeros(3)


def ball_was_placed(before: SideView, after: SideView) -> bool:
    """Whether the ball did not come where it is by itself: after a goal, which the score may show a step earlier, or for a restart."""
    if after.mode != Mode.NORMAL or after.score != before.score:
        return True
    return _distance(_MIDDLE, after.ball) < 1.0 and _distance(before.ball, after.ball) > PUT_DOWN


def _owner(view: SideView) -> PlayerRef:
    return PlayerRef(view.ball_side, view.ball_body)


def _distance(start: NDArray[np.float64], end: NDArray[np.float64]) -> float:
    dx, dy, _ = (end - start).tolist()
    return hypot(dx * _X, dy * _Y)


def _is_keeper(view: SideView, who: PlayerRef) -> bool:
    return bool((view.own_role if who.side == OWN else view.their_role)[who.body] == 0)


def _speed(view: SideView) -> float:
    """Return the ball's speed over the ground in metres per step."""
    vx, vy, _ = view.ball_velocity.tolist()
    return hypot(vx * _X, vy * _Y)


def _toucher(before: SideView, after: SideView) -> PlayerRef:
    """Return who kicked the ball first time between two steps in which it had no owner."""
    speed = _speed(after)
    if speed < KICK_SPEED or speed < _speed(before) + TOUCH_GAIN:
        return NO_BODY
    return _nearest(before, reach=TOUCH_REACH)


def _nearest(view: SideView, *, reach: float = np.inf) -> PlayerRef:
    """Return the body on the pitch that is nearest to the ball, if it is within reach (metres)."""
    candidates = []
    for side, at, active in (
        (OWN, view.own_position, view.own_active),
        (THEIR, view.their_position, view.their_active),
    ):
        gap = (at - view.ball[:2]) * METRES
        squares = np.where(active, (gap**2).sum(axis=1), np.inf)
        body = int(squares.argmin())
        candidates.append((float(squares[body]), PlayerRef(side, body)))
    (own, own_body), (their, their_body) = candidates
    if own == their or min(own, their) > reach**2:
        return NO_BODY
    return own_body if own < their else their_body


def _kick(by: PlayerRef, after: SideView) -> Kick:
    """Return what kind of kick set the ball off."""
    turn = 1.0 if by.side == OWN else -1.0
    x, y, z = after.ball.tolist()
    vx, vy, vz = after.ball_velocity.tolist()
    x, y, vx, vy = (value * turn for value in (x * _X, y * _Y, vx * _X, vy * _Y))
    gap = _X - x
    if vx <= 0 or gap <= 0 or hypot(vx, vy) < SHOT_SPEED or hypot(gap, y) > SHOT_RANGE:
        return Kick(by, shot=False, on_target=False)
    steps = gap / vx
    wide = abs(y + vy * steps)
    if wide > SHOT_WIDTH:
        return Kick(by, shot=False, on_target=False)
    return Kick(by, shot=True, on_target=wide <= GOAL_HALF * _Y and _height(z, vz, steps) <= BAR)


def _height(z: float, vz: float, steps: float) -> float:
    """Return the height in metres after `steps` steps without drag; 0 once the ball has come down."""
    down = (vz + sqrt(max(vz * vz + 2 * _GRAVITY * max(z, 0.0), 0.0))) / _GRAVITY
    return 0.0 if steps >= down else z + vz * steps - _GRAVITY / 2 * steps * steps
