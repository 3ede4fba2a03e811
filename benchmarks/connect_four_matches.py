"""How often a policy wins connect four against Monte Carlo tree search: the matches of `benchmarks.connect_four_mcts`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import ludus
from ludus.core.types import PolicySpec
from ludus.metagame.population.ratings.bradley_terry import Z95
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy, parse_bot
from ludus.policies.file import digest_of
from ludus.policies.registry import build_policy
from ludus.storage.database import FILE
from ludus.storage.stored_run import StoredRun
from ludus.tournament.entrants import Entrant, EntrantPlayer, EntrantSeat, TournamentField, sha256
from ludus.tournament.run import Options, run_tournament

_SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Record:
    """Games by how they ended for the policy."""

    won: int
    drawn: int
    lost: int

    @property
    def games(self) -> int:
        return self.won + self.drawn + self.lost

    @property
    def wins(self) -> tuple[float, float, float]:
        """Share of the games won, and its 95% interval."""
        return wilson(self.won, self.games)

    @property
    def score(self) -> float:
        """Mean points, a draw being half of one."""
        return (self.won + self.drawn / 2) / self.games

    def __add__(self, other: Record) -> Record:
        return Record(self.won + other.won, self.drawn + other.drawn, self.lost + other.lost)


def wilson(hits: int, n: int) -> tuple[float, float, float]:
    """(share, low, high): the 95% score interval of a share (Wilson 1927, Journal of the American Statistical Association 22)."""
    share, z2 = hits / n, Z95 * Z95
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = Z95 / (1 + z2 / n) * ((share * (1 - share) + z2 / (4 * n)) / n) ** 0.5
    return share, max(middle - half, 0.0), min(middle + half, 1.0)


def play(
    stored: StoredRun, *, place: int, simulations: int, games: int, folder: Path, seed: int, own: int = 0
) -> tuple[Record, Record]:
    """The records as first and as second player, `games` each, of the populations' members at `place`, who take their likeliest actions,
    or, of AlphaZero, search with `own` simulations, against tree search. Results stay in `folder`: what was played is not played again."""
    settings = stored.env.played
    made = settings.make(num_envs=1)
    made.close()
    field = TournamentField(settings, made.spec, (_members(stored, place, own), _search(simulations)))
    report = run_tournament(
        field,
        folder / f"{place}-{simulations}{f'-{own}' if own else ''}",
        Options(episodes=games, seed=seed, deadline=600, num_envs=settings.num_envs),
    )
    records = {
        [ref.policy for ref in order.seats].index(_SNAPSHOT): order
        for result in report.results
        for order in result.matches
    }
    first, second = (Record(*records[seat].wins[seat]) for seat in range(2))
    return first, second


def member(stored: StoredRun, population: int, place: int, own: int) -> Policy:
    """One that searches with `own` simulations, if it is asked to."""
    policy = stored.policy(stored.members[population][place].ref)
    if not own:
        return policy
    return build_policy(PolicySpec(policy.spec.kind, {**policy.spec.config, "play": own}), policy.weights())


def _members(stored: StoredRun, place: int, own: int) -> Entrant:
    seats, digests, mode = [], [], "search" if own else "greedy"
    for population in stored.population:
        policy = member(stored, population, place, own)
        seats.append(EntrantSeat((EntrantPlayer(_SNAPSHOT, policy, mode),), (1.0,)))
        digests.append(digest_of(policy))
    how = f"{own} simulations" if own else "greedy"
    return Entrant(_SNAPSHOT, tuple(seats), sha256("".join([*digests, mode]).encode()), f"member {place}, {how}")


def _search(simulations: int) -> Entrant:
    name = f"mcts,simulations={simulations}"
    spec = parse_bot(name)
    seat = EntrantSeat((EntrantPlayer(name, BotPolicy.of(spec)),), (1.0,))
    identity = json.dumps(spec.identity(), sort_keys=True)
    return Entrant(name, (seat, seat), sha256(identity.encode()), identity)


def train(preset: str, folder: Path, changes: list[str]) -> None:
    """Trains a preset with these changes, or goes on; a run that is over is left as it is."""
    if (folder / FILE).is_file():
        ludus.resume(folder)
        return
    ludus.run(ludus.load_scenario(preset, changes), run_dir=folder, report=False)
