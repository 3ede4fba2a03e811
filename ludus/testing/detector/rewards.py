"""Rewards: of agents that are gone, and of agents of a team."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ludus.testing.detector.finding import Finding
from ludus.testing.detector.recording import Episode, Recording

GONE, TEAMS = "agents that are gone", "teams"
_MONEY = 1e-4
_EPISODES = 20  # from which on agents of a team can be compared


def rewards_after_the_end(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where a player of one agent is paid after that agent left."""
    alone = [p for p in range(recording.spec.num_players) if len(recording.spec.agents_of(p)) == 1]
    for episode in recording.episodes:
        if not episode.gone or episode.returns is None:
            continue
        sums = episode.paid()
        for p in alone:
            late = episode.returns[p] - sums.get((p, 0), 0.0)
            if (p, 0) in episode.gone and abs(late) > _MONEY * (1 + abs(episode.returns[p])):
                yield Finding(
                    GONE,
                    "warning",
                    f"{recording.name(p, 0)!r} left, and {late:g} was paid to it afterwards: its return has that, no decision does.",
                    "Pay an agent until the step in which it ends, or let it end with its team.",
                    {
                        **episode.place(),
                        "step": episode.gone[p, 0],
                        "return": episode.returns[p],
                        "decisions": sums.get((p, 0), 0.0),
                    },
                )
                return


def teams(recording: Recording) -> Iterator[Finding]:
    """Yield a finding where agents of one team are paid in another way than those of another, or some never."""
    spec = recording.spec
    several = [p for p in range(spec.num_players) if len(spec.agents_of(p)) > 1]
    whole = [one for one in recording.episodes if not one.gone]
    ways: dict[int, str] = {}
    for p in several:
        count = len(spec.agents_of(p))
        sums = np.array([[one.paid().get((p, a), 0.0) for a in range(count)] for one in whole]).reshape(-1, count)
        if len(sums) >= _EPISODES and np.abs(sums).max() > 0:
            equal = np.ptp(sums, axis=1).max() <= _MONEY * (1 + float(np.abs(sums).max()))
            ways[p] = "equally" if equal else "unequally"
            yield from _never(recording, whole, p, sums)
    if len(set(ways.values())) > 1:
        alike = len({len(spec.agents_of(p)) for p in ways}) == 1
        p, q = (next(player for player, way in ways.items() if way == word) for word in ("equally", "unequally"))
        yield Finding(
            TEAMS,
            "warning" if alike else "note",
            f"agents of player {p} are always paid equally, those of player {q} are not.",
            "Pay all teams in one way: each agent the team's reward, or each its part.",
            {"episodes": len(whole), "teams": {str(player): way for player, way in ways.items()}},
        )


def _never(
    recording: Recording, whole: list[Episode], p: int, sums: np.ndarray[tuple[int, ...], np.dtype[np.float64]]
) -> Iterator[Finding]:
    paid = np.abs(sums).max(axis=0) > 0
    if paid.any() and not paid.all():
        a = int(np.flatnonzero(~paid)[0])
        yield Finding(
            TEAMS,
            "note",
            f"{recording.name(p, a)!r} of player {p} was paid nothing in {len(sums)} episodes, others of its team were.",
            "If the team shares its reward, pay it to each agent.",
            {"episodes": len(whole), "sums": np.abs(sums).sum(axis=0).tolist()},
        )
