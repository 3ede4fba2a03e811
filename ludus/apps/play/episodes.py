"""Episodes of a profile: seeds 0, 1, …, each of which is always the same game between policies that do not change, with how it ended.

An episode is kept as its seed, and played again to be looked at: so every profile has episodes, and none takes room in a run.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from ludus.apps.play.run_game import RunGame, check_name

MOST_SECONDS = 8.0
"""After which no further episode of a request is begun."""
MOST_PROFILES = 256
MOST_EPISODES = 500
"""Of a profile that are remembered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeLine:
    """An episode in a list. seats: [P] who played: of a mixture the policy that was drawn. returns: [P]. over: as `Frame.over`."""

    seed: int
    seats: Sequence[str]
    returns: Sequence[float]
    steps: int
    over: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeList:
    """Episodes of a profile, by seed. repeats: whether a seed is the same game again; else it is another one each time."""

    zero_sum: bool
    repeats: bool
    episodes: Sequence[EpisodeLine]


def play_episodes(game: RunGame, who: Sequence[str], seeds: Sequence[int]) -> list[EpisodeLine]:
    """Play episodes of these players, in order, one at least; fewer than `seeds` where they take long. who: [P] names, or one for all.
    Raises as `RunGame.episode`."""
    for name in who:
        check_name(name)
    lines, begin = list[EpisodeLine](), time.monotonic()
    with game.episode(who, seed=seeds[0]) as played:
        for seed in seeds:
            if lines:
                if time.monotonic() - begin > MOST_SECONDS:
                    break
                played.restart(seed)
            while not played.over:
                played.reach(len(played.episode.steps))
            steps = played.episode.steps
            lines.append(
                EpisodeLine(
                    seed=seed,
                    seats=list(played.episode.policy),
                    returns=steps[-1].returns.tolist() if steps else [0.0] * game.spec.num_players,
                    steps=len(steps),
                    over=played.cut or (steps[-1].over if steps else ""),
                )
            )
    return lines


class EpisodeCache:
    """How episodes ended, of the profiles that were asked for last."""

    def __init__(self) -> None:
        self._profiles: OrderedDict[Hashable, dict[int, EpisodeLine]] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, key: Hashable, seeds: Sequence[int], play: Callable[[Sequence[int]], Sequence[EpisodeLine]]
    ) -> list[EpisodeLine]:
        """Return episodes of these seeds, as far as they are known or `play` plays them. key: of the profile."""
        with self._lock:
            lines = self._profiles.setdefault(key, {})
            self._profiles.move_to_end(key)
            while len(self._profiles) > MOST_PROFILES:
                self._profiles.popitem(last=False)
        missing = [seed for seed in seeds if seed not in lines]
        if missing:
            lines |= {line.seed: line for line in play(missing)}
            while len(lines) > MOST_EPISODES:
                lines.pop(next(iter(lines)), None)
        return [lines[seed] for seed in seeds if seed in lines]
