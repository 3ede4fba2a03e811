"""Which matches are played before a meta-game is solved: all that are missing, or those that matter until enough is known.

scheduler ── game, needed ──► PayoffTasks (MatchSelection) ──► EvaluationTask ──► results ──► and again, until nothing is missing
scheduler ◄── payoffs without holes ── PayoffTasks.completed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ludus.core import seeding
from ludus.core.types import EvaluationTask, State
from ludus.metagame.population.payoffs import Payoffs, Places
from ludus.metagame.solvers.base import MetaSolver
from ludus.metagame.solvers.match_selection import AdaptiveEvaluation, Goal, PolicyProfile, impute_missing, mirrored
from ludus.schedulers.planning import one_task_per_group


@runtime_checkable
class MatchSelection(Protocol):
    """State: how far the evaluation of one meta-game is. With the same state and payoffs it wants the same."""

    def begin(self) -> None:
        """Begin with a new meta-game."""
        ...

    def next_profiles(
        self, payoffs: Payoffs, *, game: Places | None, needed: Iterable[PolicyProfile] = ()
    ) -> tuple[PolicyProfile, ...]:
        """Return what to play now, given the results of all that was asked for before; empty: enough is known. A profile that is listed k
        times is to play k portions of episodes. game: the policies whose meta-game is solved; None: none is. needed: cells that are read
        one by one."""
        ...

    def completed(self, payoffs: Payoffs) -> Payoffs:
        """Return what the meta-solver is given."""
        ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


class AllMissing:
    """Each missing cell once, one portion each."""

    def __init__(self) -> None:
        self._asked = False

    def begin(self) -> None:
        """See `MatchSelection`."""
        self._asked = False

    def next_profiles(
        self, payoffs: Payoffs, *, game: Places | None, needed: Iterable[PolicyProfile] = ()
    ) -> tuple[PolicyProfile, ...]:
        """Return all missing profiles, in the order of the table."""
        if self._asked:
            return ()
        holes = ~payoffs.exact & (payoffs.count == 0) & wanted(payoffs, game, needed)
        self._asked = bool(holes.any())
        return tuple(map(tuple, np.argwhere(holes).tolist()))

    def completed(self, payoffs: Payoffs) -> Payoffs:
        """Return the payoffs as they are: solvers refuse missing entries."""
        return payoffs

    def state_dict(self) -> State:
        return {"asked": self._asked}

    def load_state_dict(self, state: State) -> None:
        self._asked = bool(state["asked"])


class AdaptiveSelection:
    """Portions of episodes go where the goal (by default the meta-strategy) depends on them, as `AdaptiveEvaluation` says; cells that were
    never played are guessed (`impute_missing`). Needed cells get `episodes` first."""

    def __init__(
        self,
        *,
        solver: MetaSolver,
        budget: int,
        portion: int,
        episodes: int,
        seed: int,
        goal: Goal | None = None,
        start: int | None = 10,
        tolerance: float = 0.0,
        confidence: float = 0.95,
        batch: int = 1000,
    ) -> None:
        """solver: whose solutions steer. The rest: see `AdaptiveEvaluation`, which has a seed of its own for each meta-game. Raises
        ConfigError for what makes no sense."""
        self._make = partial(
            AdaptiveEvaluation,
            solver=solver,
            budget=budget,
            goal=goal,
            portion=portion,
            start=start,
            tolerance=tolerance,
            confidence=confidence,
            batch=batch,
        )
        self._portion, self._episodes, self._seed = portion, episodes, seed
        self._number = 0  # of the meta-game
        self._asked = False  # for the needed cells
        self._evaluation = self._made()

    def _made(self) -> AdaptiveEvaluation:
        return self._make(seed=seeding.key(self._seed, "payoffs", self._number))

    def begin(self) -> None:
        """See `MatchSelection`."""
        self._number, self._asked = self._number + 1, False
        self._evaluation = self._made()

    def next_profiles(
        self, payoffs: Payoffs, *, game: Places | None, needed: Iterable[PolicyProfile] = ()
    ) -> tuple[PolicyProfile, ...]:
        """Return the next profiles; none where all that counts is exact."""
        if not self._asked and (lacking := self._lacking(payoffs, needed)):
            self._asked = True
            return lacking
        if game is None:
            return ()
        part = payoffs.part(game)
        if part.exact.all():
            return ()
        places = [list(game[which]) for which in payoffs.population]
        return tuple(
            tuple(places[p][i] for p, i in enumerate(profile)) for profile in self._evaluation.next_profiles(part)
        )

    def _lacking(self, payoffs: Payoffs, needed: Iterable[PolicyProfile]) -> tuple[PolicyProfile, ...]:
        """Return portions up to `episodes`, in every order of the seats."""
        orders = {order for profile in needed for order in mirrored(profile, payoffs.population)}
        short = {p: self._episodes - int(payoffs.count[p]) for p in sorted(orders) if not payoffs.exact[p]}
        return tuple(Counter({p: -(-most // self._portion) for p, most in short.items()}).elements())

    def completed(self, payoffs: Payoffs) -> Payoffs:
        """Return the payoffs with estimates of missing entries."""
        return impute_missing(payoffs)

    def state_dict(self) -> State:
        return {"number": self._number, "asked": self._asked, "evaluation": self._evaluation.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._number, self._asked = int(state["number"]), bool(state["asked"])
        self._evaluation = self._made()
        self._evaluation.load_state_dict(state["evaluation"])


def wanted(payoffs: Payoffs, game: Places | None, needed: Iterable[PolicyProfile]) -> NDArray[np.bool_]:
    """Return bool[n_0, …]: the cells of a game, and the needed ones."""
    out = np.zeros(payoffs.sizes, dtype=np.bool_)
    if game is not None:
        out[np.ix_(*(game[which] for which in payoffs.population))] = True
    if cells := list(needed):
        out[tuple(np.array(cells).T)] = True
    return out


class PayoffTasks:
    """Has the meta-games of a scheduler evaluated, one after the other: what a selection wants, as tasks. State: how far the present one
    is."""

    def __init__(self, selection: MatchSelection | None) -> None:
        """None: every hole."""
        self._selection, self._steps = selection or AllMissing(), 0

    def begin(self) -> None:
        """Begin with a new meta-game."""
        self._steps = 0
        self._selection.begin()

    def missing(
        self,
        name: str,
        generation: int,
        payoffs: Payoffs,
        *,
        game: Places | None,
        needed: Iterable[PolicyProfile] = (),
    ) -> Sequence[Sequence[EvaluationTask]]:
        """Return the next task, as a group; empty: enough is known. name: of the meta-game. game, needed: as `MatchSelection.next_profiles`
        takes them."""
        profiles = self._selection.next_profiles(payoffs, game=game, needed=needed)
        if not profiles:
            return []
        self._steps += 1
        number = "" if self._steps == 1 else f"-{self._steps}"
        return one_task_per_group([EvaluationTask(f"payoffs-{name}{number}", generation, profiles)])

    def completed(self, payoffs: Payoffs) -> Payoffs:
        """Return what the meta-solver is given."""
        return self._selection.completed(payoffs)

    def state_dict(self) -> State:
        return {"steps": self._steps, "selection": self._selection.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of a scheduler's state. Its selection is None where it was another rule's, since the run goes on with another one."""
        self._steps = int(state["steps"])
        if state["selection"] is not None:
            self._selection.load_state_dict(state["selection"])
