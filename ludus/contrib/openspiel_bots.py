"""OpenSpiel's bots: Monte Carlo tree search, its sampling form for imperfect information, and those that OpenSpiel has registered."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Literal

import pyspiel

from ludus.core.errors import ConfigError, ScenarioError, one_line
from ludus.core.types import EnvSpec
from ludus.envs.openspiel.states import CHANCE
from ludus.envs.tree.walk import display_name

_MEMORY = 1000  # MB that a search tree may take


@dataclass(slots=True)
class MCTS:
    """Monte Carlo tree search (Kocsis and Szepesvári 2006) with uniformly random rollouts, `pyspiel.MCTSBot`; the search starts again at
    each decision. For games of perfect information in which players move in turn and are paid at the end. The search is OpenSpiel's, the
    choice at its end that of `choose_move`.

    simulations: of a decision. rollouts: of each simulation, averaged. uct_c: weight of exploration. solve: prove wins and losses in the
    tree (Winands et al. 2008).
    """

    simulations: int = 100
    rollouts: int = 1
    uct_c: float = 2.0
    solve: bool = True
    _bot: Any = field(default=None, init=False, repr=False)
    _seed: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        _at_least_one("mcts", simulations=self.simulations, rollouts=self.rollouts)

    def check(self, game: Any) -> None:
        """Raise ScenarioError for a game that it cannot search, or in which it would see what is hidden."""
        _refuse_unsearchable("mcts", game)
        if game.get_type().information != pyspiel.GameType.Information.PERFECT_INFORMATION:
            raise ScenarioError(
                f"bot 'mcts' searches from the state of the game, and the players of {display_name(game)} do not know that: it is "
                f"a game of "
                "imperfect information. bot:ismcts samples what they may not see, where the game can do that."
            )

    def restart(self, player: int, seed: int) -> None:
        self._bot, self._seed = None, seed

    def act_on(self, state: Any) -> int:
        game = state.get_game()
        return choose_move(self._searched(state), least=game.min_utility(), most=game.max_utility())

    def move_statistics(self, state: Any) -> dict[int, tuple[float, float]]:
        """Implement `SupportsMoveStatistics`: of a move that is proven, its outcome in place of the mean. A search that has proven the move
        that it plays stops, and its visits say nothing: that move has all of the simulations then."""
        root, game = self._searched(state), state.get_game()
        played = choose_move(root, least=game.min_utility(), most=game.max_utility())
        children = [child for child in root.children if child.explore_count or child.outcome]
        proven = any(child.action == played and child.outcome for child in children)
        visits = max(1, sum(child.explore_count for child in children))
        return {
            child.action: (
                float(child.action == played) if proven else child.explore_count / visits,
                child.outcome[child.player] if child.outcome else child.total_reward / child.explore_count,
            )
            for child in children
        }

    def _searched(self, state: Any) -> Any:
        """Return the root of a search, a `pyspiel.SearchNode`."""
        if self._bot is None:
            rollouts = pyspiel.RandomRolloutEvaluator(self.rollouts, self._seed)
            self._bot = pyspiel.MCTSBot(
                state.get_game(), rollouts, self.uct_c, self.simulations, _MEMORY, self.solve, self._seed, False
            )
        return self._bot.mcts_search(state)


def choose_move(root: Any, *, least: float, most: float) -> int:
    """Choose a move at the end of a search. Of several proven moves the best counts, of several others the most visited one; the first is
    chosen if it pays more than the other one's mean.

    OpenSpiel's own choice (`root.best_child()`) takes 0 for the value of what is not proven. It prefers a likely -5 to a proven -1, and a
    proven 1 to a likely 5. Where games are won, drawn or lost both choose alike: an outcome in the middle of the range, a draw, is
    compared by visits.

    Args:
        root: The search's `pyspiel.SearchNode`; its children are of one player.
        least: Least return of the game.
        most: Its largest return.

    Returns:
        The action.
    """
    proven = [child for child in root.children if child.outcome]
    others = [child for child in root.children if not child.outcome]
    if not proven or not others:
        return int(root.best_child().action)
    best = max(proven, key=lambda child: (child.outcome[child.player], *_visits(child)))
    rival = max(others, key=_visits)
    value = best.outcome[best.player]
    if value == (least + most) / 2:
        return int(best.action if _visits(best) > _visits(rival) else rival.action)
    mean = rival.total_reward / rival.explore_count if rival.explore_count else least
    return int(best.action if value > mean or value >= most else rival.action)


def _visits(child: Any) -> tuple[int, float]:
    return child.explore_count, child.total_reward


@dataclass(slots=True)
class ISMCTS:
    """Information-set Monte Carlo tree search (Cowling et al. 2012), `pyspiel.ISMCTSBot`: each simulation begins in a state that is drawn
    from those that the player cannot tell apart. For games that can draw such states.

    Its search goes through hash tables whose order is another one in every process: in one, the same seed gives the same moves.

    simulations, rollouts, uct_c: as of `MCTS`. play: by the most visited action, or in proportion to the visits.
    """

    simulations: int = 100
    rollouts: int = 1
    uct_c: float = 2.0
    play: Literal["most_visited", "visits"] = "visits"
    _bot: Any = field(default=None, init=False, repr=False)
    _seed: int = field(default=0, init=False, repr=False)
    _rng: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        _at_least_one("ismcts", simulations=self.simulations, rollouts=self.rollouts)

    def check(self, game: Any) -> None:
        """Raise ScenarioError for a game that it cannot search, or that cannot draw states."""
        _refuse_unsearchable("ismcts", game)
        if game.get_type().information == pyspiel.GameType.Information.PERFECT_INFORMATION:
            raise ScenarioError(
                f"bot 'ismcts' samples states that its player cannot tell apart, and the players of {display_name(game)} know the "
                f"state: bot:mcts "
                "searches from that."
            )
        if game.get_type().short_name == "hearts":
            raise ScenarioError("bot 'ismcts' crashes OpenSpiel in hearts, later in the game. Choose another bot.")
        state = game.new_initial_state()
        rng = random.Random(0)
        while state.current_player() == CHANCE:
            state.apply_action(rng.choice(state.chance_outcomes())[0])
        try:
            state.resample_from_infostate(state.current_player(), rng.random)
        except pyspiel.SpielError as error:
            raise ScenarioError(
                f"bot 'ismcts' needs to draw states that its player cannot tell apart, and {display_name(game)} cannot: {one_line(error)}."
            ) from error

    def restart(self, player: int, seed: int) -> None:
        self._bot, self._seed = None, seed

    def act_on(self, state: Any) -> int:
        if self._bot is None:
            rollouts = pyspiel.RandomRolloutEvaluator(self.rollouts, self._seed)
            self._bot = pyspiel.ISMCTSBot(self._seed, rollouts, self.uct_c, self.simulations)
            self._rng = random.Random(self._seed)
        # OpenSpiel lists the actions in an order that changes from run to run, and draws by it: drawn here, from a sorted list.
        actions, shares = zip(*sorted(self._bot.get_policy(state)), strict=True)
        if self.play == "most_visited":
            return int(actions[shares.index(max(shares))])
        return int(self._rng.choices(actions, shares)[0])


@dataclass(slots=True)
class Registered:
    """A bot that OpenSpiel has registered (`pyspiel.registered_bots()`), where OpenSpiel says that it can play the game."""

    name: str
    _bot: Any = field(default=None, init=False, repr=False)
    _player: int = field(default=0, init=False, repr=False)
    _seed: int = field(default=0, init=False, repr=False)

    def check(self, game: Any) -> None:
        """Raise ScenarioError for a game that it cannot play, or whose observation is not described."""
        _require_openspiel(self.name, game)
        kind = game.get_type()
        able = pyspiel.bots_that_can_play_game(game)
        if self.name not in able:
            raise ScenarioError(
                f"bot {self.name!r} cannot play {display_name(game)}; OpenSpiel lists {', '.join(able)} for it."
            )
        perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        if self.name not in _BY_LEGAL_ACTIONS and not perfect:
            raise ScenarioError(
                f"bot {self.name!r} is given the state of the game, and {display_name(game)} hides parts of that from its "
                f"players; it may play "
                "games of perfect information."
            )

    def restart(self, player: int, seed: int) -> None:
        self._bot, self._player, self._seed = None, player, seed

    def act_on(self, state: Any) -> int:
        if self._bot is None:
            options = self._options()
            self._bot = pyspiel.load_bot(self.name, state.get_game(), self._player, options)
        return int(self._bot.step(state))

    def _options(self) -> dict[str, Any]:
        return {"seed": self._seed} if self.name == "uniform_random" else {}


@dataclass(slots=True)
class RestrictedActions(Registered):
    """`uniform_restricted_actions`, for poker: always folds, always calls, or calls and raises by halves."""

    name: str = "uniform_restricted_actions"
    policy_name: Literal["AlwaysCall", "AlwaysRaise", "AlwaysFold", "HalfCallHalfRaise"] = "AlwaysCall"

    def _options(self) -> dict[str, Any]:
        return {"policy_name": self.policy_name}


_BY_LEGAL_ACTIONS = ("uniform_random", "fixed_action_preference", "uniform_restricted_actions")
"""Registered bots that look at the legal actions alone (open_spiel/spiel_bots.cc, games/universal_poker)."""


def _require_openspiel(name: str, game: Any) -> None:
    if isinstance(game, EnvSpec):
        raise ScenarioError(f"bot {name!r} plays by the states of OpenSpiel's games, which {game.id} does not have.")


def _refuse_unsearchable(name: str, game: Any) -> None:
    _require_openspiel(name, game)
    kind = game.get_type()
    if kind.dynamics != pyspiel.GameType.Dynamics.SEQUENTIAL:
        raise ScenarioError(
            f"bot {name!r} searches games whose players move in turn; in {display_name(game)} several move at once."
        )
    if kind.reward_model != pyspiel.GameType.RewardModel.TERMINAL:
        raise ScenarioError(
            f"bot {name!r} searches games that pay at the end; {display_name(game)} pays along the way."
        )


def _at_least_one(bot: str, **counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise ConfigError(f"bot {bot!r}: {name} is {count}; at least 1 is needed.")
