"""Online double oracle, ODO (Dinh, McAleer, Tian, Perez-Nieves, Slumbers, Mguni, Wang, Bou Ammar and Yang 2022, "Online double oracle"),
for two-player zero-sum games.

Each player plays a no-regret rule over its effective strategy set, a few of its members, round after round; nothing is solved.

    evaluate the members that play, and the new responses
    is the response better against what was met in its player's window than all that play?   it plays, and a new window begins
    `rounds` rounds of multiplicative weights in the payoff table
    announce the mean strategies                     ── EvaluationTask(solution) ──► exploitability on the whole game, where there is a tree
    one response per population to what its player has met in its window on average ── TrainingTask ──► a new frozen member

A window is what was played since the player's set has last grown. With payoffs in [0, 1], after T rounds against whatever opponent, and
with k windows, a player's regret against the strategies that it had is at most

    sqrt(2 k T ln k) + k sqrt(ln(k) / 8)

(in each window that of multiplicative weights whose rate falls, Cesa-Bianchi and Lugosi 2006, theorem 2.3; Cauchy-Schwarz over windows, as
in the paper, where windows know how long they will be and the constant is smaller by 2). Against all strategies, where responses are best
ones, each window adds `rounds` at most. NashConv of both players' means is at most the sum of their regrets, by T.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ludus.core.ties import TIE, best_index
from ludus.core.types import MetaSolution, State, Task
from ludus.metagame.population.base import Payoffs, Places, View
from ludus.schedulers.anytime import weight_for_new_policies
from ludus.schedulers.config import ScheduleContext
from ludus.schedulers.planning import MatchSelection, PayoffTasks, announcement, one_task_per_group, require_two_players
from ludus.schedulers.psro import ResponseOptions, ResponseScheduler
from ludus.schedulers.responses import opponents

Array = NDArray[np.float64]

# --------------------------------------------------------------------------------------------------------------------
# The no-regret rule of one player.


@dataclass(slots=True)
class OnlinePlayer:
    """One player of the rule, which meets whatever opponent. effective: its strategies. prior: float64[k], what it plays at the start of a
    window. gains: float64[k], what each of them would have earned in the window so far. met: float64[m], the sum of the opponent's
    strategies in it, rounds: how many they were. played: float64[n], the sum of its own strategies in the window, and past in those before.
    """

    effective: list[int]
    prior: Array
    gains: Array
    met: Array
    rounds: int = 0
    played: Array = field(default_factory=lambda: np.zeros(0))
    past: Array = field(default_factory=lambda: np.zeros(0))

    @staticmethod
    def of(strategies: int, opponents: int) -> OnlinePlayer:
        """Return the player before the first round, with all of its strategies."""
        uniform = np.full(strategies, 1.0 / strategies)
        zeros = np.zeros(strategies)
        return OnlinePlayer(list(range(strategies)), uniform, zeros, np.zeros(opponents), 0, zeros, zeros)

    def strategy(self, unit: float) -> Array:
        """Return float64[n]: multiplicative weights, prior × exp(rate × gains / unit), with rate sqrt(8 ln k / t) in the t-th round of the
        window (Cesa-Bianchi and Lugosi 2006, theorem 2.3). unit: between the least and the largest payoff."""
        rate = np.sqrt(8.0 * np.log(max(2, len(self.effective))) / (self.rounds + 1))
        scores = rate * (self.gains - self.gains.max()) / max(unit, 1e-300)
        weights = self.prior * np.exp(scores)
        out = np.zeros(len(self.played))
        out[self.effective] = weights / weights.sum()
        return out

    def observe(self, own: Array, other: Array, earned: Array) -> None:
        """Record a round. own: float64[n], what it played; other: float64[m], what was played against it; earned: float64[n], what each of
        its strategies would have earned."""
        self.gains = self.gains + earned[self.effective]
        self.met, self.played, self.rounds = self.met + other, self.played + own, self.rounds + 1

    def mean_met(self) -> Array:
        """Return float64[m]: what it has met in its window; uniform before the first round."""
        return self.met / self.rounds if self.rounds else np.full(len(self.met), 1.0 / len(self.met))

    def mean_played(self, *, all_windows: bool) -> Array:
        """Return float64[n]: what it has played, in its window or in all of them."""
        total = self.past + self.played if all_windows or not self.rounds else self.played
        return np.asarray(total / total.sum())

    def resize(self, strategies: int, opponents: int) -> None:
        """Set the numbers of strategies; new ones are not played, and were not played against."""
        self.met = np.append(self.met, np.zeros(opponents - len(self.met)))
        new = np.zeros(strategies - len(self.played))
        self.played, self.past = np.append(self.played, new), np.append(self.past, new)

    def grow(self, place: int, *, begin: Literal["uniform", "last"]) -> None:
        """Add a strategy, and begin a new window: at the uniform strategy, or at the window's mean with a uniform share for who has
        none."""
        mean = self.mean_played(all_windows=False) if begin == "last" else np.zeros(len(self.played))
        self.effective = [*self.effective, place]
        count = len(self.effective)
        self.prior = weight_for_new_policies(mean[self.effective]) if begin == "last" else np.full(count, 1.0 / count)
        self.gains, self.met, self.rounds = np.zeros(count), np.zeros(len(self.met)), 0
        self.past, self.played = self.past + self.played, np.zeros(len(self.played))

    def state_dict(self) -> State:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    @staticmethod
    def from_state(state: Mapping[str, Any]) -> OnlinePlayer:
        """Return what `state_dict` gave."""
        arrays = {name: np.array(state[name], np.float64) for name in ("prior", "gains", "met", "played", "past")}
        return OnlinePlayer(effective=[int(k) for k in state["effective"]], rounds=int(state["rounds"]), **arrays)


def zero_sum_tables(mean: Array) -> tuple[Array, Array]:
    """Return payoffs float64[2, n, m] as each player sees them: own strategy by the other's."""
    return mean[0], mean[1].T


def play_rounds(players: Sequence[OnlinePlayer], tables: Sequence[Array], *, unit: float, rounds: int) -> None:
    """Let both play against each other. tables[p]: float64[n_p, n_q], what player p earns; read where somebody plays."""
    known = [np.nan_to_num(table) for table in tables]
    for _ in range(rounds):
        strategies = [player.strategy(unit) for player in players]
        for p, player in enumerate(players):
            player.observe(strategies[p], strategies[1 - p], known[p] @ strategies[1 - p])


# --------------------------------------------------------------------------------------------------------------------


class ODOOptions(ResponseOptions):
    """Online double oracle (Dinh et al. 2022): both players play multiplicative weights over some of their members, to which a response
    to what was met is added when it is better than all of them. Their mean strategies are what is announced. `warm_start` and `diversity`
    are as in psro, where they need no payoffs. Two players, zero-sum.

    Attributes:
        rounds: Rounds from one response to the next.
        average: What is announced, the mean of all rounds (run), as the theorem has it, or of those since the player's set has last grown
            (window).
        begin: Where a window begins, at the uniform strategy, or at the mean of the last one, in which policies without weight get a
            uniform share.
        improvement: What a response must earn beyond all that play, to play.
    """

    lacks_payoffs: ClassVar[str] = " of all members, and odo plays only some"

    rounds: int = Field(100, ge=1)
    average: Literal["run", "window"] = "run"
    begin: Literal["uniform", "last"] = "uniform"
    improvement: float = Field(0.0, ge=0, allow_inf_nan=False)

    def check_schedule(self, context: ScheduleContext) -> None:
        super().check_schedule(context)
        context.check_zero_sum("odo is for", "Use psro with meta_solver cce.")


class ODOScheduler(ResponseScheduler):
    """State beyond that of its base: both players of the rule."""

    options: ODOOptions

    def __init__(
        self, options: ODOOptions, *, population: tuple[int, ...], selection: MatchSelection | None = None
    ) -> None:
        """population: [2] index of each player's population. selection: what is played before rounds are, by default every hole. Raises
        ConfigError for other than two players."""
        require_two_players(population, "odo is")
        super().__init__(options, population=population)
        self.payoffs = PayoffTasks(selection)
        self._players: list[OnlinePlayer] = []

    def advance(self) -> None:
        """Begin the next generation."""
        super().advance()
        self.payoffs.begin()

    def _plan(self, view: View) -> Sequence[Sequence[Task]]:
        groups: list[Sequence[Task]] = []
        if self.solution is None:
            name = str(self.generation)
            if missing := self.payoffs.missing(name, self.generation, view.payoffs, game=self._game(view)):
                return missing
            self.solution = self._play(self.payoffs.completed(view.payoffs))
            groups += one_task_per_group([announcement(self.generation, self.solution)])
        if self.generation < self.options.generations and not self._asked:
            self._asked = True
            groups += one_task_per_group(self._response(k, view) for k in self.populations)
        return groups

    def _game(self, view: View) -> Places:
        """Return the members that play, and those that may begin to."""
        if not self._players:
            return {which: range(len(view.populations[which])) for which in self.populations}
        places = {}
        for which in self.populations:
            known = {place for p in self.seats(which) for place in self._players[p].effective}
            num_known = min(len(self._players[p].played) for p in self.seats(which))
            places[which] = sorted(known | set(range(num_known, len(view.populations[which]))))
        return places

    def _play(self, payoffs: Payoffs) -> MetaSolution:
        """Play the rounds of a generation, after its responses have been looked at, and return the averages."""
        tables, sizes = zero_sum_tables(payoffs.mean), payoffs.sizes
        if not self._players:
            self._players = [OnlinePlayer.of(sizes[p], sizes[1 - p]) for p in range(2)]
        unit = max(float(np.nanmax(table) - np.nanmin(table)) for table in payoffs.mean)
        for p, player in enumerate(self._players):
            first = len(player.played)
            player.resize(sizes[p], sizes[1 - p])
            self._consider(player, range(first, sizes[p]), np.nan_to_num(tables[p]) @ player.mean_met(), unit)
        play_rounds(self._players, tables, unit=unit, rounds=self.options.rounds)
        run = self.options.average == "run"
        return MetaSolution(tuple(player.mean_played(all_windows=run) for player in self._players), np.nan)

    def _consider(self, player: OnlinePlayer, new: Sequence[int], earned: Array, unit: float) -> None:
        """Decide whether the best of the new strategies is played. earned: float64[n], by each against what the player has met."""
        if not new:
            return
        best = new[best_index(earned[new], unit)]
        if earned[best] > earned[player.effective].max() + self.options.improvement + TIE * unit:
            player.grow(best, begin=self.options.begin)

    def _response(self, population: int, view: View) -> Task:
        """Return the response to what its players have played against in their windows: to each, what the other has played there."""
        averages = tuple(self._players[1 - q].mean_met() for q in range(2))
        return self.response(population, opponents(MetaSolution(averages, np.nan), self.members(view)), view)

    def state_dict(self) -> State:
        return {
            **super().state_dict(),
            **self.payoffs.state_dict(),
            "players": [player.state_dict() for player in self._players],
        }

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.payoffs.load_state_dict(state)
        self._players = [OnlinePlayer.from_state(player) for player in state["players"]]
