"""Bots: their names, who may play which game, and what they play."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pyspiel
import pytest

from ludus.contrib import openspiel_bots
from ludus.contrib.openspiel_bots import ISMCTS, MCTS, Registered, RestrictedActions, choose_move
from ludus.core.errors import ConfigError, PolicyError, ScenarioError, UnknownName
from ludus.core.types import PolicySpec
from ludus.envs.registry import make_env
from ludus.policies.bots import BotPolicy, BotSpec, parse_bot, require_fit
from ludus.policies.file import load_policy, save_policy
from ludus.policies.registry import build_policy


@pytest.fixture(autouse=True)
def own_bots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of that name is found."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "evaluation"))


def state_of(game: str, *actions: int):
    state = pyspiel.load_game(game).new_initial_state()
    for action in actions:
        state.apply_action(action)
    return state


def moves(bot, game: str, *, seed: int) -> list[int]:
    """An episode in which copies of the bot play both sides."""
    state, sides = state_of(game), [copy.deepcopy(bot) for _ in range(2)]
    for player, side in enumerate(sides):
        side.restart(player, seed)
    while not state.is_terminal():
        state.apply_action(sides[state.current_player()].act_on(state))
    return state.history()


# ---------------------------------------------------------------------------------------------- search


def test_a_search_wins_where_it_can_and_stops_the_other() -> None:
    bot = MCTS(simulations=200)
    bot.restart(0, 1)
    assert bot.act_on(state_of("tic_tac_toe", 0, 3, 1, 4)) == 2  # xx. / oo. / ...
    bot.restart(0, 1)
    assert bot.act_on(state_of("tic_tac_toe", 0, 3, 8, 4)) == 5  # x.. / oo. / ..x


def test_the_seed_of_an_episode_decides_it() -> None:
    bot = MCTS(simulations=20)
    first = moves(bot, "connect_four", seed=3)
    assert moves(bot, "connect_four", seed=3) == first
    assert any(moves(bot, "connect_four", seed=seed) != first for seed in (4, 5, 6))


def stop_or_go(tmp_path: Path, *, stop: int, go: int, players: int = 2, depth: int = 7) -> str:
    """A game file: the first player stops, or goes into `depth` binary moves, by all players in turn, whose ends all pay `go`. The others
    always get 3."""
    names = " ".join(f'"P{player + 1}"' for player in range(players))
    lines, count = [f'EFG 2 R "stop or go" {{ {names} }} ""'], [0] * (players + 1)
    others = " 3" * (players - 1)

    def end(pay: int) -> None:
        count[0] += 1
        lines.append(f't "" {count[0]} "" {{ {pay}{others} }}')

    def moves(left: int) -> None:
        if left == 0:
            return end(go)
        mover = left % players + 1
        count[mover] += 1
        lines.append(f'p "" {mover} {count[mover]} "" {{ "a{count[mover]}" "b{count[mover]}" }} 0')
        moves(left - 1)
        return moves(left - 1)

    count[1] = 1
    lines.append('p "" 1 1 "" { "stop" "go" } 0')
    end(stop)
    moves(depth)
    path = tmp_path / "stop_or_go.efg"
    path.write_text("\n".join(lines) + "\n")
    return f"efg_game(filename={path})"


@pytest.mark.parametrize("players", [2, 3])
@pytest.mark.parametrize("solve", [True, False])
@pytest.mark.parametrize(
    ("stop", "go", "wanted"), [(-1, -5, "stop"), (-5, -1, "go"), (1, 5, "go"), (5, 1, "stop"), (-2, 2, "go")]
)
def test_a_search_takes_the_better_move_whatever_the_sign_of_its_payoffs(
    tmp_path: Path, *, stop: int, go: int, wanted: str, solve: bool, players: int
) -> None:
    """One move ends at once and is proven, the other is too deep for the search. OpenSpiel's own choice is another one in the first and in
    the third case (two players, 20 simulations)."""
    state = state_of(stop_or_go(tmp_path, stop=stop, go=go, players=players))
    for seed in range(5):
        bot = MCTS(simulations=20, solve=solve)
        bot.restart(0, seed)
        assert state.action_to_string(bot.act_on(state)) == wanted


def test_openspiels_own_choice_takes_zero_for_what_is_not_proven(tmp_path: Path) -> None:
    """The reason for `choose_move`; where this fails, OpenSpiel has changed it."""
    for stop, go, taken in ((-1, -5, "go"), (1, 5, "stop")):
        state = state_of(stop_or_go(tmp_path, stop=stop, go=go))
        bot = pyspiel.MCTSBot(state.get_game(), pyspiel.RandomRolloutEvaluator(1, 0), 2.0, 20, 1000, True, 0, False)
        assert state.action_to_string(bot.step(state)) == taken


@pytest.mark.parametrize("game", ["tic_tac_toe", "connect_four", "pig(players=3,winscore=20)"])
def test_a_search_chooses_as_openspiel_where_games_are_won_drawn_or_lost(game: str) -> None:
    rng, compared = np.random.default_rng(0), 0
    for k in range(60):
        state = state_of(game)
        for _ in range(rng.integers(30)):
            legal = [] if state.is_terminal() else state.legal_actions()
            if len(legal):
                state.apply_action(int(rng.choice(legal)))
        if state.is_terminal() or state.is_chance_node():
            continue
        search = pyspiel.MCTSBot(
            state.get_game(), pyspiel.RandomRolloutEvaluator(1, k), 2.0, int(rng.integers(3, 60)), 1000, True, k, False
        )
        root = search.mcts_search(state)
        assert choose_move(root, least=-1.0, most=1.0) == root.best_child().action
        compared += 1
    assert compared > 10


@pytest.mark.parametrize(
    ("game", "words"),
    [
        ("kuhn_poker", "bot 'mcts' searches from the state .* kuhn_poker do not know that"),
        ("matrix_rps", "bot 'mcts' searches games whose players move in turn; in matrix_rps several move at once"),
        ("cliff_walking", "cliff_walking pays along the way"),
    ],
)
def test_games_that_a_search_must_not_play(game: str, words: str) -> None:
    with pytest.raises(ScenarioError, match=words):
        MCTS().check(pyspiel.load_game(game))


def test_a_sampling_search_plays_what_can_be_sampled() -> None:
    bot = ISMCTS(simulations=50, play="most_visited")
    bot.check(pyspiel.load_game("leduc_poker"))
    bot.restart(0, 2)
    first = bot.act_on(state_of("leduc_poker", 0, 4))
    bot.restart(0, 2)
    assert bot.act_on(state_of("leduc_poker", 0, 4)) == first
    assert first in state_of("leduc_poker", 0, 4).legal_actions()
    with pytest.raises(ScenarioError, match="the players of tic_tac_toe know the state: bot:mcts"):
        ISMCTS().check(pyspiel.load_game("tic_tac_toe"))
    with pytest.raises(ScenarioError, match=r"bot 'ismcts' needs to draw states .* liars_dice"):
        ISMCTS().check(pyspiel.load_game("liars_dice"))
    with pytest.raises(ScenarioError, match="bot 'ismcts' crashes OpenSpiel in hearts"):
        ISMCTS().check(pyspiel.load_game("hearts"))


def test_a_sampling_search_does_not_see_the_other_card() -> None:
    """With the same card and the same seed it plays the same, whatever the other holds."""
    bot = ISMCTS(simulations=50, play="most_visited")
    answers = set()
    for other in (1, 2, 3, 4, 5):
        bot.restart(0, 7)
        answers.add(bot.act_on(state_of("leduc_poker", 0, other)))
    assert len(answers) == 1


# ---------------------------------------------------------------------------------------------- registered by OpenSpiel


def test_every_registered_bot_has_a_name_here() -> None:
    for name in pyspiel.registered_bots():
        assert parse_bot(name).make().name == name


def test_registered_bots_play_what_openspiel_says() -> None:
    with pytest.raises(
        ScenarioError, match="bot 'uniform_restricted_actions' cannot play tic_tac_toe; OpenSpiel lists"
    ):
        RestrictedActions().check(pyspiel.load_game("tic_tac_toe"))
    RestrictedActions().check(pyspiel.load_game("leduc_poker"))
    caller = RestrictedActions(policy_name="AlwaysCall")
    caller.restart(0, 0)
    assert caller.act_on(state_of("leduc_poker", 0, 1)) == 1  # fold 0, call 1, raise 2
    bot = Registered("uniform_random")
    assert moves(bot, "tic_tac_toe", seed=5) == moves(bot, "tic_tac_toe", seed=5)
    assert len({tuple(moves(bot, "tic_tac_toe", seed=seed)) for seed in range(8)}) > 4


def test_a_registered_bot_that_nobody_knows_sees_no_hidden_cards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openspiel_bots, "_BY_LEGAL_ACTIONS", ())
    Registered("uniform_random").check(pyspiel.load_game("tic_tac_toe"))
    with pytest.raises(ScenarioError, match="kuhn_poker hides parts"):
        Registered("uniform_random").check(pyspiel.load_game("kuhn_poker"))


# ---------------------------------------------------------------------------------------------- names


def test_a_bot_by_name() -> None:
    assert parse_bot("mcts") == BotSpec("mcts", {})
    assert parse_bot("mcts,simulations=7,uct_c=1.5,solve=false").make() == MCTS(7, 1, 1.5, False)
    assert parse_bot("own_bots:First,last=true").make().last is True
    assert parse_bot("uniform_random") == BotSpec("registered", {"name": "uniform_random"})
    assert parse_bot("ismcts-40,play=visits") == BotSpec("ismcts", {"simulations": 40, "play": "visits"})
    for text in ("mcts", "mcts,simulations=7,uct_c=1.5,solve=false", "uniform_random", "own_bots:First,last=true"):
        assert parse_bot(text).text == text
    identity = parse_bot("mcts,simulations=7").identity()
    assert identity == {"kind": "mcts", "options": {"simulations": 7, "rollouts": 1, "uct_c": 2.0, "solve": True}}
    assert len(parse_bot("own_bots:First").identity()["source"]) == 64


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("mtcs", UnknownName, "unknown bot 'mtcs'; did you mean 'mcts'"),
        ("mcts,simulations", ConfigError, "key=value was expected"),
        ("mcts-5,simulations=6", ConfigError, "simulations was given twice"),
        ("mcts,simulations=[1]", ConfigError, "a number, a word"),
        ("mcts,simulation=3", ConfigError, "unknown key 'simulation'; did you mean 'simulations'"),
        ("mcts,simulations=many", ConfigError, "bot 'mcts'"),
        ("mcts,simulations=0", ConfigError, "at least 1"),
        ("ismcts,rollouts=0", ConfigError, "at least 1"),
        ("own_bots:Frist", ConfigError, "has no 'Frist'; did you mean 'First'"),
        ("own_bots:First,lst=1", ConfigError, "cannot be made of the options"),
        ("own_bots:Nothing", ConfigError, r"is not a bot: it lacks act\(\), restart\(\)"),
    ],
)
def test_wrong_names_and_options(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        parse_bot(text).make()


# ---------------------------------------------------------------------------------------------- who may see what


def checked(text: str, game: str, **options: bool) -> None:
    env = make_env(game, num_envs=1, tree="off")
    require_fit(repr(text), parse_bot(text).make(), env.spec, **options)


def test_nobody_sees_more_than_its_player_may() -> None:
    checked("own_bots:First", "openspiel/kuhn_poker")
    checked("own_bots:First", "gymnasium/CartPole-v1")
    checked("own_bots:ByState", "openspiel/tic_tac_toe")
    with pytest.raises(
        ScenarioError, match="'own_bots:ByState' plays by the whole state, and openspiel/kuhn_poker hides"
    ):
        checked("own_bots:ByState", "openspiel/kuhn_poker")
    with pytest.raises(ScenarioError, match="gymnasium/CartPole-v1 does not say that its players know it"):
        checked("own_bots:ByState", "gymnasium/CartPole-v1")
    with pytest.raises(ScenarioError, match="'mcts' cannot play openspiel/kuhn_poker"):
        checked("mcts", "openspiel/kuhn_poker")
    with pytest.raises(ScenarioError, match="states of OpenSpiel's games, which gymnasium/CartPole-v1 does not have"):
        checked("mcts", "gymnasium/CartPole-v1")
    with pytest.raises(ScenarioError, match="openspiel/tic_tac_toe is played in wrappers"):
        checked("mcts", "openspiel/tic_tac_toe", wrapped=True)


# ---------------------------------------------------------------------------------------------- among policies


def test_a_policy_stands_for_a_bot(tmp_path: Path) -> None:
    """It is rebuilt from its spec, in a file too; what only the bot itself can do is refused."""
    file = tmp_path / "search.safetensors"
    save_policy(file, BotPolicy.of(parse_bot("mcts-7")).spec, {})
    policy = load_policy(file)
    assert isinstance(policy, BotPolicy)
    assert policy.bot == parse_bot("mcts,simulations=7")
    with pytest.raises(PolicyError, match="'mcts,simulations=7' is asked beside the environment"):
        policy.act(np.zeros((1, 9)), None, None, np.zeros((1, 2), np.float32))
    with pytest.raises(PolicyError, match="bot is 3 and options"):
        build_policy(PolicySpec("bot", {"bot": 3}), {})
