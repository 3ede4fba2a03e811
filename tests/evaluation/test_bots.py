"""Bots: who may play which game, what they play, and what they are told is wrong."""

from __future__ import annotations

import copy

import numpy as np
import pyspiel
import pytest

from ludus.core.errors import ConfigError, EnvError, PolicyError, ScenarioError, UnknownName
from ludus.envs.registry import make_env
from ludus.evaluation import openspiel_bots
from ludus.evaluation.bots import BotPool, BotSpec, BotStates, NamedBot, parse_bot, require_fit
from ludus.evaluation.openspiel_bots import ISMCTS, MCTS, Registered, RestrictedActions
from ludus.testing.ledger import Actor


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
    with pytest.raises(ScenarioError, match=r"bot 'ismcts' needs to draw states .* liars_dice"):
        ISMCTS().check(pyspiel.load_game("liars_dice"))


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
    identity = parse_bot("mcts,simulations=7").identity()
    assert identity == {"kind": "mcts", "options": {"simulations": 7, "rollouts": 1, "uct_c": 2.0, "solve": True}}
    assert len(parse_bot("own_bots:First").identity()["source"]) == 64


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("mtcs", UnknownName, "unknown bot 'mtcs'; did you mean 'mcts'"),
        ("mcts,simulations", ConfigError, "key=value was expected"),
        ("mcts,simulations=[1]", ConfigError, "a number, a word"),
        ("mcts,simulation=3", ConfigError, "unknown key 'simulation'; did you mean 'simulations'"),
        ("mcts,simulations=many", ConfigError, "bot 'mcts'"),
        ("mcts,simulations=0", ConfigError, "at least 1"),
        ("ismcts,rollouts=0", ConfigError, "at least 1"),
        ("own_bots:Frist", ConfigError, "has no 'Frist'; did you mean 'First'"),
        ("own_bots:First,lst=1", ConfigError, "cannot be made of the options"),
        ("own_bots:Nothing", PolicyError, "has no methods restart"),
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
    with pytest.raises(ScenarioError, match="'mcts' cannot play openspiel/kuhn_poker"):
        checked("mcts", "openspiel/kuhn_poker")
    with pytest.raises(ScenarioError, match="states of OpenSpiel's games, which gymnasium/CartPole-v1 does not have"):
        checked("mcts", "gymnasium/CartPole-v1")
    with pytest.raises(ScenarioError, match="openspiel/tic_tac_toe in wrappers"):
        checked("mcts", "openspiel/tic_tac_toe", wrapped=True)


# ---------------------------------------------------------------------------------------------- what is asked and answered


def cast_of(*texts: str, game: str = "openspiel/kuhn_poker", tell=None) -> BotPool:
    return BotPool(make_env(game, num_envs=1).spec, [NamedBot(text, parse_bot(text)) for text in texts], tell)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("own_bots:Illegal", r"bot 'own_bots:Illegal' answered 17 as player 1; legal are \[0, 1\]"),
        ("own_bots:Vague", "bot 'own_bots:Vague' answered 0.5 as player 1; a whole number was expected"),
        ("own_bots:Raises", "bot 'own_bots:Raises' raised as player 1: ValueError: no idea"),
        ("own_bots:Leaves", "bot 'own_bots:Leaves' raised as player 1: SystemExit: 4"),
    ],
)
def test_bad_answers_name_the_bot(text: str, words: str) -> None:
    cast = cast_of(text)
    cast.restart(0, 1, 0, 5)
    with pytest.raises(PolicyError, match=words):
        cast.act(0, 1, 0, observation=np.zeros(11), mask=np.ones(2, np.bool_))


def test_each_slot_has_a_bot_of_its_own() -> None:
    heard: list[int] = []
    cast = cast_of("own_bots:First", "own_bots:First,last=true", tell=heard.append)
    mask = np.array([True, True])
    for slot, seed in ((0, 5), (1, 6)):
        cast.restart(1, 0, slot, seed)
    assert [cast._at[1, 0, slot].seed for slot in (0, 1)] == [5, 6]
    assert cast.act(1, 0, 1, observation=np.zeros(11), mask=mask) == 1
    assert heard == [0, -1, 1, -1] + [1, -1] * 3


def test_without_masks_every_action_of_the_space_is_legal() -> None:
    cast = cast_of("own_bots:Illegal", game="gymnasium/CartPole-v1")
    cast.restart(0, 0, 0, 1)
    with pytest.raises(PolicyError, match=r"legal are \[0, 1\]"):
        cast.act(0, 0, 0, observation=np.zeros(4), mask=None)


@pytest.mark.parametrize("game", ["kuhn_poker", "leduc_poker", "matrix_rps", "goofspiel(num_cards=4)"])
@pytest.mark.parametrize("tree", ["auto", "off"])
def test_states_follow_the_vector(game: str, tree: str) -> None:
    """Chance and moves lead to the states that the vector is in: the same returns, and the same information states on the way."""
    env = make_env(f"openspiel/{game}", num_envs=8, tree=tree)
    seeds = np.arange(8, dtype=np.uint64) + 100
    actor, timestep, states = Actor(env.spec, seeds), env.reset(seeds, episodes=1), BotStates(env.spec)
    states.reset(range(0, 8, 2), seeds)
    seen = 0
    while any(len(due.slot) for due in timestep.due):
        for player, due in enumerate(timestep.due):
            for slot, observation in zip(due.slot.tolist(), due.observation, strict=True):
                if slot % 2 == 0 and env.spec.enumeration is not None:
                    assert states[slot].information_state_string(player) == env.spec.enumeration.key[observation]
                    seen += 1
        actions = actor.actions(timestep)
        states.step(timestep.due, actions)
        timestep = env.step(actions)
        for e, returns in zip(timestep.finished.environment.tolist(), timestep.finished.returns, strict=True):
            if e % 2 == 0:
                assert states[e].is_terminal()
                assert states[e].returns() == returns.tolist()
    assert seen >= 8 or env.spec.enumeration is None


def test_moves_of_another_game_are_noticed() -> None:
    env = make_env("openspiel/tic_tac_toe", num_envs=1, tree="off")
    seeds = np.zeros(1, np.uint64)
    timestep, states = env.reset(seeds, episodes=1), BotStates(env.spec)
    states.reset([0], seeds)
    states.step(timestep.due, (np.array([4]), np.empty(0, np.int32)))
    with pytest.raises(EnvError, match="environment 0 is not in the state that its moves lead to"):
        states.step(timestep.due, (np.array([4]), np.empty(0, np.int32)))
