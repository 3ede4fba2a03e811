"""Statistics of played matches beside a recount afterwards, from who had the ball when: another way to the same numbers."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

from ludus.contrib.football.match_statistics import NAMES, MatchStatistics
from ludus.contrib.football.view import LEFT, METRES, OWN, RIGHT, Action, SideView, side_view

pytest.importorskip("gfootball_engine", reason="gfootball is not installed: make football")

from ludus.contrib.football.match import TURNED, Engine
from ludus.contrib.football.scenarios import controls, engine_config, formation

Raw = dict[str, Any]


class Spell(NamedTuple):
    """Somebody has the ball, from a step to another; or kicks it first time after that step."""

    who: tuple[int, int]
    first: int
    last: int
    touch: bool = False


def chase(view: SideView, rng: np.random.Generator) -> list[int]:
    """With the ball: to the goal, and a kick now and then; without: to the ball, sliding at who has it."""
    actions = []
    for body in view.controlled.tolist():
        way = (view.ball[:2] - view.own_position[body]) * METRES
        near = bool(np.hypot(*way) < 2)
        if view.ball_side == OWN and view.ball_body == body:
            way = (np.array([1.0, 0.0]) - view.own_position[body]) * METRES
            if rng.random() < 0.1:
                actions.append(int(rng.choice([Action.SHORT_PASS, Action.LONG_PASS, Action.SHOT])))
                continue
        elif near and rng.random() < 0.3:
            actions.append(int(Action.SLIDING))
            continue
        eighth = round(float(np.arctan2(way[1], way[0])) / (np.pi / 4)) % 8
        actions.append((5, 6, 7, 8, 1, 2, 3, 4)[eighth])
    return actions


def played(steps: int, seed: int) -> list[Raw]:
    made = formation("5_vs_5")
    control = controls("football/5_vs_5", made, sides="both", agents=None, keepers=False)
    engine, rng = Engine(), np.random.default_rng(seed)
    engine.reset(engine_config(made, control, seed=seed, reverse=False), control.agents)
    raws = [engine.raw]
    for _ in range(steps):
        left, right = (chase(side_view(raws[-1], side=side), rng) for side in (LEFT, RIGHT))
        engine.step([left, [TURNED[action] for action in right]])
        raws.append(engine.raw)
    engine.close()
    return raws


def counted(raws: list[Raw], side: int) -> np.ndarray[Any, Any]:
    views = [side_view(raw, side=side) for raw in raws]
    statistics = MatchStatistics()
    statistics.begin(views[0])
    for before, after in pairwise(views):
        statistics.see(before, after)
    return statistics.totals()


def spells(raws: list[Raw], first: int, end: int) -> list[Spell]:
    found: list[Spell] = []
    for t in range(first, end):
        who = (raws[t]["ball_owned_team"], raws[t]["ball_owned_player"])
        if who[0] >= 0:
            if found and found[-1].who == who and found[-1].last == t - 1:
                found[-1] = found[-1]._replace(last=t)
            else:
                found.append(Spell(who, t, t))
        elif t + 1 < end and raws[t + 1]["ball_owned_team"] < 0 and speed(raws[t + 1]) >= max(1, speed(raws[t]) + 0.3):
            away, body = min((dist(raws[t], side, body), (side, body)) for side in (LEFT, RIGHT) for body in range(5))
            if away <= 2:
                found.append(Spell(body, t, t, touch=True))
    return found


def speed(raw: Raw) -> float:
    return float(np.hypot(*(raw["ball_direction"][:2] * METRES)))


def dist(raw: Raw, side: int, body: int) -> float:
    at = raw[f"{('left', 'right')[side]}_team"][body]
    return float(np.hypot(*((at - raw["ball"][:2]) * METRES)))


def phases(raws: list[Raw]) -> list[tuple[int, int]]:
    """Steps of the game from one interruption to the next."""
    cuts = [0]
    for t, (before, after) in enumerate(pairwise(raws), start=1):
        if before["score"] != after["score"] or before["game_mode"] or after["game_mode"]:
            cuts.append(t)
    return [(a, b) for a, b in pairwise([*cuts, len(raws)]) if raws[a]["game_mode"] == 0]


def is_shot(raw: Raw, side: int) -> bool:
    turn = 1 if side == LEFT else -1
    x, y = (raw["ball"][:2] * METRES * turn).tolist()
    dx, dy = (raw["ball_direction"][:2] * METRES * turn).tolist()
    if dx <= 0 or np.hypot(dx, dy) < 1.8 or np.hypot(54.4 - x, y) > 40 or x >= 54.4:
        return False
    return abs(y + dy / dx * (54.4 - x)) <= 8


def recounted(raws: list[Raw]) -> dict[str, list[float]]:
    """Of phases that nobody's restart began: kicks of restarts, which have no owner, are left out."""
    counts: dict[str, list[float]] = {name: [0.0, 0.0] for name in ("shots", "completed", "interceptions", "tackles")}
    for first, end in phases(raws):
        for spell, then in pairwise([*spells(raws, first, end), None]):
            assert spell is not None
            (side, body), loose = spell.who, spell.last + 1
            if loose >= end:
                continue
            kick = speed(raws[loose]) >= 1
            straight = then is not None and then.first == loose and not then.touch
            if not straight and kick and is_shot(raws[loose], side):
                counts["shots"][side] += 1
            elif then is None or then.who == (side, body):
                continue
            elif then.who[0] == side:
                counts["completed"][side] += straight or kick
            else:
                counts["interceptions" if kick and not straight else "tackles"][then.who[0]] += 1
    return counts


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
def test_a_match_is_counted_alike(seed: int) -> None:
    raws = played(1500, seed)
    left, right = counted(raws, LEFT), counted(raws, RIGHT)
    np.testing.assert_array_equal(left, right)
    found = dict(zip(NAMES, left.T.tolist(), strict=True))
    wanted = recounted(raws)
    assert found["goals"] == raws[-1]["score"]
    restarts = sum(before["game_mode"] and not after["game_mode"] for before, after in pairwise(raws))
    for ours, theirs in (("passes_completed", "completed"), ("interceptions", "interceptions"), ("tackles", "tackles")):
        missing = np.subtract(found[ours], wanted[theirs])
        assert (missing >= 0).all()
        assert missing.sum() <= restarts, ours
    assert sum(wanted["completed"]) > 5
    assert sum(wanted["tackles"]) > 5
    assert found["shots"] == wanted["shots"]
    for side in (LEFT, RIGHT):
        assert found["passes_completed"][side] <= found["passes"][side]
        assert found["shots_on_target"][side] <= found["shots"][side]
        assert found["interceptions"][side] <= found["passes"][1 - side] - found["passes_completed"][1 - side]
    assert sum(found["possession"]) == pytest.approx(1)
