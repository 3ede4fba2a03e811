"""Two runs against each other: their policies meet, and the value of that game says whose population is the better one."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ludus.errors import ConfigError, ScenarioError
from ludus.evaluation.measures import Performance, population_performance
from ludus.evaluation.stored import StoredRun
from ludus.evaluation.tournament.entrants import read_field, run_at
from ludus.evaluation.tournament.exact import computable, exact_tournament
from ludus.evaluation.tournament.field import Field
from ludus.evaluation.tournament.results import Result, payoffs_of
from ludus.evaluation.tournament.run import Options, Tell, run_tournament
from ludus.population.ratings.bradley_terry import Z95


@dataclass(frozen=True, slots=True, eq=False)
class Against:
    """What the first run's population earns against the second's, if both mix as well as they can.

    value: relative population performance; above 0 the first is better. half_width: of its 95% interval, 0 if `exact`. names: of all
    policies of the first and of the second. seats: the same for each pair of seats whose policies differ, with the first run's mixture
    and the second's over `names`. deals: of each meeting, played in every order of seats that both can take; 0 if computed.
    """

    runs: tuple[Path, Path]
    env: str
    value: float
    half_width: float
    exact: bool
    deals: int
    names: tuple[tuple[str, ...], tuple[str, ...]]
    seats: tuple[Performance, ...]


def evaluate_against(
    run_dir: Path | str, other_dir: Path | str, *, deals: int = 100, seed: int = 0, tell: Tell | None = None
) -> Against:
    """Relative population performance of two runs of one game: zero-sum, two players. Computed where the game has a tree and no policy has
    memory, else played, `deals` of each meeting between a policy of one and a policy of the other. Nothing is written.

    The interval of played payoffs is of first order: noise in a cell moves the value by what both mixtures play it (the envelope theorem).
    It leaves out that the best of many noisy cells are chosen. tell: as of a tournament. Raises ConfigError for one run given twice, and
    for other games; RunError for an unreadable run; ScenarioError for a game that is not zero-sum for two.
    """
    folders = Path(run_dir), Path(other_dir)
    if folders[0].resolve() == folders[1].resolve():
        raise ConfigError(f"{str(run_dir)!r} was given twice; a run is as good as itself. Give another run.")
    camps = [_entrants(folder) for folder in folders]
    field = read_field([*camps[0], *camps[1]], env=None, find_run=run_at)
    if field.spec.num_players != 2 or not field.spec.zero_sum:
        raise ScenarioError(
            f"relative population performance is of two-player zero-sum games; {field.spec.id} has {field.spec.num_players} players"
            f"{'' if field.spec.zero_sum else ' and is general-sum'}. Hold a tournament between the runs instead."
        )
    exact = computable(field)
    camp = {name: k for k, names in enumerate(camps) for name in names}
    results = _results(field, camp, Options(episodes=deals, seed=seed), tell, exact=exact)
    found = _seats(field, camps, results)
    variance = sum(p.variance for p in found) / len(found) ** 2
    return Against(
        runs=folders,
        env=field.spec.id,
        value=float(np.mean([p.value for p in found])),
        half_width=Z95 * float(np.sqrt(variance)),
        exact=exact,
        deals=0 if exact else deals,
        names=(tuple(camps[0].values()), tuple(camps[1].values())),
        seats=tuple(found),
    )


def _entrants(folder: Path) -> dict[str, str]:
    """Each policy's name, by the text that names it as an entrant."""
    stored = StoredRun(folder)
    return {f"{folder}:{ref.population}/{ref.policy}": ref.policy for ref in stored.records}


def _results(
    field: Field, camp: dict[str, int], options: Options, tell: Tell | None, *, exact: bool
) -> Sequence[Result]:
    if exact:
        return exact_tournament(field, camps=camp).results
    with tempfile.TemporaryDirectory() as folder:
        return run_tournament(field, Path(folder) / "against", options, tell, camps=camp).results


def _seats(field: Field, camps: Sequence[dict[str, str]], results: Sequence[Result]) -> list[Performance]:
    """With the first run in each seat, once if the same policies play both; means are over the seats in which two can meet."""
    place = {entrant.name: k for k, entrant in enumerate(field.entrants)}
    payoffs = payoffs_of(results, place, field.spec)
    able = [
        [[k for k, e in enumerate(field.entrants) if e.name in camp and e.seats[seat] is not None] for seat in (0, 1)]
        for camp in camps
    ]
    games = dict.fromkeys((tuple(able[0][seat]), tuple(able[1][1 - seat])) for seat in (0, 1))
    return [population_performance(payoffs, first, second) for first, second in games]
