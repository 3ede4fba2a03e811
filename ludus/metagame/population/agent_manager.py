"""The agent manager: populations of frozen policies, their lineage, and the results of their matches.

It lives in the driver, and is the only place that knows all of these. It tells a recorder (the run's database) each new fact once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from ludus.core.arrays import read_only, same_weights
from ludus.core.errors import DataError, nearest
from ludus.core.types import (
    EvaluationResult,
    Match,
    Mixture,
    PolicyRef,
    PolicySpec,
    State,
    TaskResult,
    TrainingResult,
    Weights,
)
from ludus.metagame.population.base import Lineage, MatchArchive, PolicyRecord, Recorder, View, WeightsStore
from ludus.metagame.population.match_log import pack_record, unpack_record
from ludus.metagame.population.payoff_table import PayoffTable
from ludus.metagame.population.ratings.bradley_terry import Elo
from ludus.metagame.population.ratings.win_counts import PairwiseCounter, count_pairs


class AgentManager:
    """Members are frozen: their arrays are read-only copies, and adding other weights under a known name is an error."""

    def __init__(
        self,
        *,
        utility_range: Sequence[tuple[float, float]],
        population: Sequence[int],
        zero_sum: bool,
        recorder: Recorder | None = None,
        store: WeightsStore | None = None,
        archive: MatchArchive | None = None,
    ) -> None:
        """population: [P] index of each player's population. store: keeps weights durably; without one, `state_dict` holds them. archive:
        keeps matches; without one, `state_dict` holds them, and memory does."""
        self.table = PayoffTable(utility_range=utility_range, population=population, zero_sum=zero_sum, archive=archive)
        self._archive = archive
        self._tally: PairwiseCounter | None = None  # what it counts are two players' matches
        self._recorder, self._store = recorder, store
        self._members: list[list[PolicyRecord]] = [[] for _ in self.table.population_sizes]
        self._records: dict[PolicyRef, PolicyRecord] = {}
        self._by_task: dict[tuple[int, str], PolicyRef] = {}  # that made it
        self._weights: dict[PolicyRef, Weights] = {}

    # ------------------------------------------------------------------------------------------ populations

    @property
    def populations(self) -> tuple[tuple[PolicyRef, ...], ...]:
        """Return the members of each population, oldest first."""
        return tuple(tuple(record.ref for record in members) for members in self._members)

    def add(
        self,
        population: int,
        policy: str,
        spec: PolicySpec,
        weights: Weights,
        *,
        mode: str = "explore",
        lineage: Lineage | None = None,
    ) -> PolicyRef:
        """Freeze a policy as the newest member of a population, to be played in `mode`; in the store before the recorder hears of it.

        Adding the same policy again does nothing. Raises DataError if the name is taken by different weights or another spec.
        """
        if not 0 <= population < len(self._members):
            raise DataError(f"there is no population {population}; populations are 0 to {len(self._members) - 1}.")
        ref = PolicyRef(population, policy, mode=mode)
        known = self._records.get(_plain(ref))
        if known is not None:
            if known.ref != ref or known.spec != spec or not same_weights(self._weights[ref], weights):
                raise DataError(
                    f"population {population} has a policy {policy!r} already, with other weights; give the new one its own name."
                )
            return ref
        snapshot = read_only(weights)
        if self._store is not None:
            self._store.put(ref, spec, snapshot)
        record = PolicyRecord(ref, self.table.add_policy(population), spec, lineage or Lineage())
        self._keep(record, snapshot)
        if self._recorder is not None:
            self._recorder.policy_added(record)
        return ref

    def _keep(self, record: PolicyRecord, weights: Weights) -> None:
        self._members[record.ref.population].append(record)
        if record.lineage.task:
            self._by_task[record.ref.population, record.lineage.task] = record.ref
        self._records[_plain(record.ref)] = record
        self._weights[record.ref] = weights

    def record_of(self, ref: PolicyRef) -> PolicyRecord:
        """Return where a member stands, its spec and its lineage. Any mode, and version None (a member has one version), are understood."""
        record = self._records.get(_plain(ref))
        if record is None:
            known = [r.policy for r in self._records if r.population == ref.population]
            raise DataError(
                f"no policy {ref.policy!r} (version {ref.version}) in population {ref.population}{nearest(ref.policy, known)}"
            )
        return record

    def weights_of(self, ref: PolicyRef) -> tuple[PolicySpec, Weights]:
        """Return what rebuilds a member: its spec, and its weights as read-only arrays."""
        record = self.record_of(ref)
        return record.spec, self._weights[record.ref]

    # ------------------------------------------------------------------------------------------ results

    def value(self, players: Mixture, seat: int, payoffs: NDArray[np.float64]) -> float:
        """Look up what a seat earns.

        Args:
            players: Members, with the probabilities that each seat is drawn with.
            seat: Whose return it is.
            payoffs: float64[P, n_0, …], mean returns of the members' profiles.

        Returns:
            The expected return; NaN where the payoff of a profile that may be drawn is, or a policy is no member in the mode it plays in.
        """
        mean = payoffs[seat]
        axes = list(range(mean.ndim))  # of `mean`, that are left
        for factor in players.factors:
            support = np.flatnonzero(factor.probs)
            entries = [factor.entries[k] for k in support]
            records = [[self._records.get(_plain(ref)) for ref in entry] for entry in entries]
            places = [
                [record.index for record, ref in zip(row, entry, strict=True) if record and record.ref == ref]
                for row, entry in zip(records, entries, strict=True)
            ]
            if any(len(row) < len(factor.seats) for row in places):
                return np.nan
            mean = np.moveaxis(mean, [axes.index(s) for s in factor.seats], range(len(factor.seats)))
            mean = np.tensordot(np.asarray(factor.probs)[support], mean[tuple(np.array(places).T)], 1)
            axes = [axis for axis in axes if axis not in factor.seats]
        return float(mean)

    def on_result(self, result: TaskResult) -> None:
        """Take what a task answered: a new member, matches, or exact payoffs. A result given twice counts once.

        Raises DataError, with nothing of the result kept, if any of it is refused.
        """
        if isinstance(result, TrainingResult):
            self._add_trained(result)
        elif isinstance(result, EvaluationResult):
            if result.matches and result.payoffs is not None:
                self.table.check(result.matches, result.payoffs)
            self.record_matches(result.matches)
            if result.payoffs is not None:
                self.record_exact(result.payoffs)

    def _add_trained(self, result: TrainingResult) -> None:
        task, start = result.task, result.task.start
        parent = start if isinstance(start, PolicyRef) else None
        if task.continues is not None:  # the snapshot that the task before has left
            parent = self._by_task.get((task.population, task.continues), parent)
        rule = "policy" if parent is not None else (start if isinstance(start, str) else "random")
        lineage = Lineage(task.id, task.generation, parent, rule)
        ref = result.ref
        self.add(ref.population, ref.policy, result.spec, result.weights, mode=ref.mode, lineage=lineage)

    def record_matches(self, matches: Iterable[Match]) -> tuple[Match, ...]:
        """Append to the match log; those that were new. Raises DataError (see `PayoffTable.record`), also for seats that name others than
        the members at these places, with nothing recorded."""
        batch = tuple(matches)
        for match in batch:
            self._check_seats(match)
        new = self.table.record(batch)
        if new and self._recorder is not None:
            self._recorder.matches_recorded(new)
        return new

    def _check_seats(self, match: Match) -> None:
        named = zip(match.seats, match.profile, strict=False)  # the table refuses unequal lengths, and what is no ref
        for seat, index in ((seat, index) for seat, index in named if isinstance(seat, PolicyRef)):
            try:
                at = self.record_of(seat).index
            except DataError as error:
                raise DataError(f"match {match.id!r}: {error}") from error
            if at != index:
                raise DataError(
                    f"match {match.id!r} has profile {match.profile}, and in a seat of policy {index} of population {seat.population} "
                    f"there is {seat.policy!r}, which is policy {at}; name in each seat the member that played."
                )

    def record_exact(self, values: NDArray[np.float64], *, start: Sequence[int] | None = None) -> None:
        """Set a block of exact payoffs float64[P, k_0, …] from the profile `start` on (default: the whole table)."""
        profiles, mean = self.table.record_exact(values, start=start)
        if len(profiles) and self._recorder is not None:
            self._recorder.payoffs_recorded(profiles, mean)

    def view(self) -> View:
        """Return what schedulers see now; later changes do not show in it."""
        initial = tuple(sum(not record.lineage.task for record in members) for members in self._members)
        return View(self.populations, self.table.view(), initial)

    def elo(self) -> tuple[dict[str, float], ...]:
        """Return per population, policy -> maximum-likelihood Elo from the episodes won, drawn and lost in matches; empty where none were
        played (payoffs may be exact), and for other than two players."""
        if self.table.num_players != 2:
            return ()
        sizes = self.table.population_sizes
        results = self._counted().results(sizes)
        if not len(results.first):
            return ()
        rated = Elo(intervals="none").fit(count_pairs(results, sum(sizes)), sizes=sizes)
        return tuple(
            {record.ref.policy: float(rated.of(p)[record.index]) for record in members}
            for p, members in enumerate(self._members)
        )

    def _counted(self) -> PairwiseCounter:
        """Return the win counts of all matches, which are two players'."""
        self._tally = self._tally or PairwiseCounter(self.table.population)
        self._tally.add(self.table.log_after(self._tally.num_read))
        return self._tally

    # ------------------------------------------------------------------------------------------ state

    def release_log(self) -> None:
        """Give up the log in memory, once the archive has all of it durably; what is counted of it stays."""
        if self._archive is not None:
            if self.table.num_players == 2:
                self._counted()
            self.table.release()

    def state_dict(self) -> State:
        """Return members, results and exact payoffs; weights only if there is no store to read them back from."""
        state: dict[str, object] = {
            "members": [[pack_record(record) for record in members] for members in self._members],
            "table": self.table.state_dict(),
        }
        if self._archive is not None and self.table.num_players == 2:
            self._counted().pool()
            state["tally"] = self._counted().state_dict()
        if self._store is None:
            state["weights"] = [[dict(self._weights[record.ref]) for record in members] for members in self._members]
        return state

    def load_state_dict(self, state: State) -> None:
        """Replace everything; the recorder is told nothing. Raises RunError if the store has lost weights."""
        members = [[unpack_record(i, packed) for i, packed in enumerate(records)] for records in state["members"]]
        if len(members) != len(self._members):
            raise DataError(f"the state has {len(members)} populations, expected {len(self._members)}.")
        self._members, self._records, self._weights, self._by_task = [[] for _ in members], {}, {}, {}
        self.table.load_state_dict(state["table"])
        self._tally = None
        if "tally" in state:
            self._tally = PairwiseCounter(self.table.population)
            self._tally.load_state_dict(state["tally"])
        for records in members:
            for record in records:
                if self._store is not None:
                    weights = self._store.get(record.ref)
                else:
                    weights = state["weights"][record.ref.population][record.index]
                self._keep(record, read_only(weights))


def _plain(ref: PolicyRef) -> PolicyRef:
    """Return the key of a member: whatever mode, and the version None too (a member has one version)."""
    return PolicyRef(ref.population, ref.policy, ref.version or 0)
