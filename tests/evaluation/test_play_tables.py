"""Tables: games with people in them, by the rules."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from play_games import AnyGame, choose, openspiel, people

from ludus.algorithms.common.space_checks import state_width
from ludus.apps.episodes.played_episode import PlayedEpisode, bots_of_run
from ludus.apps.episodes.schemas import FrameDecision
from ludus.apps.play.controls import action_names_of, keys_of
from ludus.apps.play.game_sessions import FinishedGame, GameSession, GameSessions, MoveRequest, SavedReplay, SeatRequest
from ludus.apps.play.hints import Advisor
from ludus.apps.play.replays import title_of
from ludus.core.errors import ConfigError, EnvError, PlayError, PolicyError, TooManySessionsError, WrongTurnError
from ludus.core.jsonable import to_builtins
from ludus.core.types import AgentSpec, EnvSpec, PolicyOutput, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.envs.config import Environment
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv
from ludus.envs.registry import make_env
from ludus.evaluation.policies import SampledPolicy
from ludus.policies.base import Values
from ludus.policies.bots import BotSettings


def test_a_game_of_two_people_is_won_and_its_result_told() -> None:
    told: list[FinishedGame] = []
    table = people(openspiel("connect_four"), finish=noting(told, "r1"))
    for k in range(3):
        choose(table, 0, 0)
        choose(table, 1, k + 2)
    assert not table.view(0)["over"]
    choose(table, 0, 0)  # four above each other
    view = table.view(1)
    assert (view["over"], view["results"], view["replay"]) == ("terminated", [{"returns": [1, -1]}], "r1")
    assert view["frame"]["returns"] == [1, -1]
    assert [row[0] for row in view["frame"]["board"]["cells"]] == ["", "", "0", "0", "0", "0"]
    assert [(game.people, game.policies, game.returns, game.steps) for game in told] == [
        (["P0", "P1"], ["", ""], [1, -1], 7)
    ]
    assert told[0].replay.steps == 7
    table.close()


def test_a_move_that_is_not_granted_changes_nothing() -> None:
    table = people(openspiel("tic_tac_toe"))
    choose(table, 0, 4)
    before = table.view(0), table.view(1), table.view(None)
    with pytest.raises(PlayError, match="action 4 is not legal here"):
        choose(table, 1, 4)
    with pytest.raises(PlayError, match="action True is not legal"):
        choose(table, 1, True)
    with pytest.raises(WrongTurnError, match="it is not the turn of P0"):
        choose(table, 0, 0)
    with pytest.raises(WrongTurnError, match="gone on since"):
        table.move(1, [MoveRequest(player=1, agent=0, action=0)], 0)
    with pytest.raises(WrongTurnError, match="a move of player 0 came from the seat of player 1"):
        table.move(1, [MoveRequest(player=0, agent=0, action=0)], 1)
    with pytest.raises(WrongTurnError, match="agent 3 of player 1 has nothing to decide"):
        table.move(1, [MoveRequest(player=1, agent=3, action=0)], 1)
    with pytest.raises(WrongTurnError, match="only watches"):
        table.move(None, [MoveRequest(player=1, agent=0, action=0)], 1)
    with pytest.raises(WrongTurnError, match="still going on"):
        table.again(0)
    assert (table.view(0), table.view(1), table.view(None)) == before
    table.close()
    with pytest.raises(WrongTurnError, match="was closed"):
        choose(table, 1, 0)


def test_seats_are_told_by_their_tokens() -> None:
    table = people(openspiel("tic_tac_toe"))
    assert [table.viewer(table.tokens[p]) for p in (0, 1)] == [0, 1]
    assert table.viewer(table.watch_token) is None
    with pytest.raises(PlayError, match="no seat at this table"):
        table.viewer("0" * 32)
    assert len({*table.tokens.values(), table.watch_token}) == 3
    table.close()


def test_policies_answer_at_once_and_another_game_keeps_the_seats() -> None:
    game = openspiel("kuhn_poker")
    table = GameSession(
        "t", game, [SeatRequest(who="person", name="Ada"), SeatRequest(who="random")], seed=1, rated=False
    )
    heard: list[Any] = []
    end = table.listen(0, heard.append)
    for _ in range(2):
        while not table.view(0)["over"]:
            choose(table, 0, 0)
        table.again(0)
    assert len(table.view(0)["results"]) == 2
    assert table.view(0)["players"][0]["name"] == "Ada"
    assert heard[-1] == table.view(0)
    end()
    known = len(heard)
    choose(table, 0, 0)
    assert len(heard) == known
    table.close()


def test_everybody_answers_before_a_simultaneous_move_is_made() -> None:
    table = people(openspiel("goofspiel(num_cards=3,points_order=descending)"))
    choose(table, 1, 0)
    assert table.view(0)["waiting_for"] == [0]
    choose(table, 0, 2)
    assert [seat["note"] for seat in table.view(1)["frame"]["board"]["seats"]] == ["3 points", "0 points"]
    assert table.view(1)["frame"]["last"] == [
        {"player": 0, "agent": 0, "label": "bid 3"},
        {"player": 1, "agent": 0, "label": "bid 1"},
    ]
    table.close()


def test_a_player_answers_for_each_of_its_agents() -> None:
    together = [{"kind": "group_players", "mapping": {"player_0": 0, "player_1": 0}}]
    env = Environment(id="openspiel/goofspiel(num_cards=3,points_order=descending)", num_envs=1, tree="off")
    table = people(AnyGame(env, wrappers=together))
    table.move(0, [MoveRequest(player=0, agent=1, action=2)], 0)
    assert table.view(0)["frame"]["number"] == 0
    table.move(0, [MoveRequest(player=0, agent=0, action=1)], 0)
    view = table.view(0)["frame"]
    assert view["number"] == 1
    assert [move["label"] for move in view["last"]] == ["bid 2", "bid 3"]
    assert [seat["name"] for seat in view["board"]["seats"]] == ["P0 1", "P0 2"]
    table.close()


def test_a_table_says_who_plays_which_of_the_boards_seats() -> None:
    teams = [{"kind": "group_players", "mapping": {"player_0": 0, "player_1": 0, "player_2": 1}}]
    env = Environment(id="openspiel/kuhn_poker(players=3)", num_envs=1, tree="off")
    told: list[FinishedGame] = []
    table = people(AnyGame(env, wrappers=teams), finish=noting(told))
    seats = [
        {"player": 0, "agent": 0, "name": "P0 1"},
        {"player": 0, "agent": 1, "name": "P0 2"},
        {"player": 1, "agent": 0, "name": "P1"},
    ]
    assert table.view(1)["board_seats"] == seats
    for number, (player, agent) in enumerate([(0, 0), (0, 1), (1, 0)]):  # all pass
        table.move(player, [MoveRequest(player=player, agent=agent, action=0)], number)
    assert [to_builtins(seat) for seat in told[0].replay.board_seats] == seats
    table.close()
    alone = people(openspiel("kuhn_poker"))
    assert alone.view(1)["board_seats"] == []
    alone.close()


def test_who_comes_late_is_told_of_all_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    table = people(openspiel("connect_four"))
    for k in range(3):
        choose(table, k % 2, k)
    made = [{"number": k + 1, "player": k % 2, "agent": 0, "label": f"column {k + 1}"} for k in range(3)]
    for viewer in (0, 1, None):
        assert (table.view(viewer)["moves"], table.view(viewer)["earlier"]) == (made, 0)
    monkeypatch.setattr("ludus.apps.play.views._MOVES", 2)
    table._publish()
    assert (table.view(0)["moves"], table.view(0)["earlier"]) == (made[1:], 1)
    table.close()


def test_actions_that_are_vectors() -> None:
    table = people(AnyGame(Environment(id="gymnasium/Pendulum-v1", num_envs=1)), seed=1)
    decision = table.view(0)["frame"]["decisions"][0]
    assert decision["box"] == {"low": [-2], "high": [2], "names": [], "whole": False}
    assert decision["legal"] == []
    for wrong, said in (([3.0], "is outside of"), ([1.0, 1.0], "2 numbers were given"), ([float("nan")], "1 numbers")):
        with pytest.raises(PlayError, match=said):
            choose(table, 0, wrong)
    choose(table, 0, [1.5])
    assert table.view(0)["frame"]["last"][0]["label"] == "1.5"
    assert table.view(0)["frame"]["board"]["kind"] == "frame"
    table.close()


def test_numbered_actions_have_names_and_keys() -> None:
    table = people(AnyGame(Environment(id="gymnasium/CartPole-v1", num_envs=1)), seed=1)
    assert [one["label"] for one in table.view(0)["frame"]["decisions"][0]["legal"]] == ["left", "right"]
    assert table.view(0)["keys"] == {"ArrowLeft": 0, "ArrowRight": 1}
    table.close()
    names = action_names_of(make_env("gymnasium/Taxi-v4", num_envs=1))  # the version that Gymnasium has now
    assert (keys_of("gymnasium/Taxi-v4", names, 6) or {})["p"] == names.index("pick up") == 4


class Named(gymnasium.Env[Any, Any]):
    action_names: ClassVar[Any] = ("hold", "sell")
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, True, False, {}


class Meant(Named):
    action_names = None

    def get_action_meanings(self) -> list[str]:
        return ["HOLD", "SELL"]


class NoNames(Named):
    action_names = "hold, sell"


class Bidders:
    """Two agents with names of their own for what they do."""

    possible_agents: ClassVar[list[str]] = ["buyer", "seller"]
    metadata: ClassVar[dict[str, Any]] = {"name": "bidders"}

    def __init__(self) -> None:
        self.agents = list(self.possible_agents)

    def close(self) -> None: ...

    def action_names(self, agent: str) -> list[str]:
        return [f"{agent} waits", f"{agent} deals"]

    def observation_space(self, agent: str) -> Any:
        return gymnasium.spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return gymnasium.spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = list(self.possible_agents)
        return {agent: np.zeros(1, np.float32) for agent in self.agents}, {agent: {} for agent in self.agents}

    def step(self, actions: Any) -> Any:
        self.agents = []
        zeros = dict.fromkeys(self.possible_agents, 0.0)
        seen = {agent: np.zeros(1, np.float32) for agent in self.possible_agents}
        return seen, zeros, dict.fromkeys(zeros, True), dict.fromkeys(zeros, False), {agent: {} for agent in zeros}


def test_an_environment_names_its_actions() -> None:
    def labels(name: str, player: int = 0) -> list[str]:
        table = people(AnyGame(Environment(id=f"{__name__}:{name}", num_envs=1)), seed=1)
        decisions = table.view(player)["frame"]["decisions"]
        table.close()
        return [one["label"] for one in decisions[0]["legal"]]

    assert labels("Named") == ["hold", "sell"]
    assert labels("Meant") == ["hold", "sell"]
    assert labels("Bidders") == ["buyer waits", "buyer deals"]
    assert labels("Bidders", player=1) == ["seller waits", "seller deals"]
    with pytest.raises(EnvError, match="action_names gave 'hold, sell'; a list of texts was expected"):
        labels("NoNames")


def test_a_title_has_no_module() -> None:
    seats = [{"name": "Ada"}]
    assert title_of({"game": "my_games:Auction", "seats": seats}) == "Auction: Ada"
    assert title_of({"game": "openspiel/my_games:python_auction(cards=6)", "seats": seats}) == "python auction: Ada"


def noting(told: list[FinishedGame], id: str = "") -> Callable[[FinishedGame], SavedReplay]:
    def finish(game: FinishedGame) -> SavedReplay:
        told.append(game)
        return SavedReplay(id)

    return finish


class _Falls:
    """Raises in its second step."""

    game = None

    def reset(self, seed: int) -> EnvStepResult:
        del seed
        self.t = 0
        return EnvStepResult(due=[(0, np.zeros(1, np.float32), None)])

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        del actions
        self.t += 1
        if self.t == 2:
            raise RuntimeError("the board fell")
        return EnvStepResult(due=[(0, np.zeros(1, np.float32), None)], reward=[(0, 1.0)])

    def render(self) -> str:
        return f"at {self.t}"

    def close(self) -> None:
        return None


def falls() -> VectorEnv:
    agent = AgentSpec("hand", 0, Box(0, 1, (1,), np.float32), Discrete(2))
    spec = EnvSpec("tests/falls", (agent,), ((0, 6),), ((0,),))
    return PythonVectorEnv(_Falls, 1, spec=spec, masked=(False,))


@pytest.mark.parametrize(
    ("space", "high", "right", "wrong"),
    [
        (MultiBinary(2), [1, 1], [1, 0], ([0.9, 1], [2, 0], [-1, 0], [256, 0], [1e30, 0])),
        (MultiDiscrete([4, 2]), [3, 1], [3, 1], ([1.5, 0.99], [4, 0], [-0.5, 1])),
    ],
)
def test_vectors_of_whole_numbers(
    space: Any, high: list[int], right: list[float], wrong: Sequence[list[float]]
) -> None:
    agent = AgentSpec("hand", 0, Box(0, 1, (1,), np.float32), space)
    spec = EnvSpec("tests/falls", (agent,), ((0, 6),), ((0,),))
    table = people(AnyGame(lambda: PythonVectorEnv(_Falls, 1, spec=spec, masked=(False,))))
    box = table.view(0)["frame"]["decisions"][0]["box"]
    assert box == {"low": [0, 0], "high": high, "names": [], "whole": True}
    for numbers in wrong:
        said = "is outside of" if all(number % 1 == 0 for number in numbers) else "choose whole numbers"
        with pytest.raises(PlayError, match=said):
            choose(table, 0, numbers)
    choose(table, 0, right)
    assert table.view(0)["moves"][0]["label"] == " ".join(map(str, right))
    table.close()


def test_an_environment_that_raises_ends_the_game_and_nothing_counts() -> None:
    told: list[FinishedGame] = []
    table = people(AnyGame(falls), finish=noting(told))
    choose(table, 0, 0)
    assert table.view(0)["frame"]["board"] == {"text": "at 1", "kind": "text"}
    choose(table, 0, 0)
    assert "the board fell" in table.view(0)["over"]
    assert table.view(0)["results"] == []
    assert told == []
    assert table.view(0)["round"] == 1
    table.again(0)
    assert (table.view(0)["over"], table.view(0)["round"]) == ("", 2)
    table.close()


def test_a_result_that_cannot_be_kept_is_shown_with_the_reason() -> None:
    table = people(openspiel("matrix_rps"), finish=lambda _: SavedReplay("r1", "the disk is full."))
    choose(table, 0, 0)
    choose(table, 1, 1)
    seen = table.view(0)
    assert (seen["results"], seen["replay"], seen["note"]) == ([{"returns": [-1, 1]}], "r1", "the disk is full.")
    table.close()


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ([SeatRequest(who="person")], "1 seats were given; .* has 2 players"),
        ([SeatRequest(who="random"), SeatRequest(who="random")], "no person"),
        ([SeatRequest(who="person"), SeatRequest(who="/tmp/x.safetensors")], "was given for a seat"),
        ([SeatRequest(who="person"), SeatRequest(who="os:system")], "was given for a seat"),
        ([SeatRequest(who="person"), SeatRequest(who="other-run@best")], "was given for a seat"),
        ([SeatRequest(who="person", name="a\nb"), SeatRequest(who="random")], "printable"),
    ],
)
def test_wishes_that_are_not_granted(wishes: list[SeatRequest], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        GameSession("t", openspiel("tic_tac_toe"), wishes)


def test_a_rated_game_is_played_without_help() -> None:
    wishes = [SeatRequest(who="person"), SeatRequest(who="random")]
    for help in ({"hints": ""}, {"seed": 3}):
        with pytest.raises(ConfigError, match="rated: false"):
            GameSession("t", openspiel("tic_tac_toe"), wishes, **help)


def test_there_are_so_many_tables_and_idle_ones_are_closed() -> None:
    now = [0.0]
    tables = GameSessions(most=2, idle=60, clock=lambda: now[0])

    def make(id: str) -> GameSession:
        table = people(openspiel("tic_tac_toe"))
        table.id, table.used = id, now[0]
        return table

    first, second = tables.add(make), tables.add(make)
    with pytest.raises(TooManySessionsError, match="2 tables are open"):
        tables.add(make)
    now[0], second.used = 61.0, 30.0
    assert tables.get(first.id) is None
    assert tables.get(second.id) is second
    gone: list[Any] = []
    second.listen(0, gone.append)
    tables.remove(second.id)
    assert gone == [None]
    tables.sweep()
    assert len(tables) == 0
    tables.close()


def test_tables_that_were_left_give_their_place_to_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GameSession, "has_bots", True)
    now = [0.0]

    def make(id: str) -> GameSession:
        table = people(openspiel("tic_tac_toe"))
        table.id, table.used = id, now[0]
        return table

    for limits in ({"most": 2}, {"bots": 2}):
        now[0] = 0.0
        tables = GameSessions(**limits, left=120, clock=lambda: now[0])
        looked_at = tables.add(make)
        looked_at.listen(0, lambda _: None)
        now[0] = 1.0
        left = tables.add(make)
        now[0] = 100.0
        with pytest.raises(TooManySessionsError, match=r"in use.*eave one.*after 2 minutes"):
            tables.add(make)
        now[0] = 130.0
        newest = tables.add(make)
        assert [tables.get(table.id) for table in (looked_at, left, newest)] == [looked_at, None, newest]
        with pytest.raises(WrongTurnError, match="was closed"):
            choose(left, 0, 0)
        swapped = tables.add(make, instead=newest.id)  # at the limit, and without another one that was left
        assert [tables.get(table.id) for table in (looked_at, newest, swapped)] == [looked_at, None, swapped]
        with pytest.raises(TooManySessionsError):
            tables.add(make, instead=newest.id)
        tables.close()


class _Constant:
    """Plays action 1 with a fixed probability."""

    modes, noise_width, takes_ids = ("explore", "greedy"), 1, False
    memory_shape: tuple[int, ...] | None = None
    actions = 2

    def __init__(self, prob: float) -> None:
        self.prob, self.spec = prob, PolicySpec("constant", {"prob": prob})

    def act(self, observation: Any, mask: Any, memory: Any, noise: Any, *, mode: str = "explore") -> Any:
        del mask, memory, mode
        action = (noise[:, 0] >= 1 - self.prob).astype(np.int32)
        logp = np.log(np.where(action == 1, self.prob, 1 - self.prob)).astype(np.float32)
        return PolicyOutput(action[: len(observation)], logp)

    def tabulate(self, *_: Any, **__: Any) -> None:
        return None

    def weights(self) -> dict[str, Any]:
        return {}


class _Slow(_Constant):
    """Answers when it may."""

    def __init__(self) -> None:
        super().__init__(0.0)
        self.asked, self.may = threading.Event(), threading.Event()

    def act(self, *arguments: Any, **keywords: Any) -> Any:
        self.asked.set()
        assert self.may.wait(10)
        return super().act(*arguments, **keywords)


def test_a_table_is_closed_while_a_policy_thinks() -> None:
    slow, told, closed = _Slow(), list[Any](), list[bool]()

    class Game(AnyGame):
        def episode(self, who: Sequence[str], *, people: Any = None, **_: Any) -> PlayedEpisode:
            del who
            return PlayedEpisode(
                self._make, [people[0], cast(Any, slow)], waits=lambda due: 0 in due and not people[0].ready
            )

    game = Game(Environment(id="openspiel/kuhn_poker", num_envs=1, tree="off"))
    table = GameSession("t", game, [SeatRequest(who="person"), SeatRequest(who="random")], rated=False)
    ends = table._episode.close
    table._episode.close = lambda: closed.append(True) or ends()  # type: ignore[method-assign, func-returns-value]
    table.listen(0, told.append)
    moving = threading.Thread(target=choose, args=(table, 0, 0))
    moving.start()
    assert slow.asked.wait(10)
    before = len(told)
    table.close()  # at once
    assert (told[before:], closed) == ([None], [])
    table.listen(0, told.append)  # who comes now hears it too
    slow.may.set()
    moving.join(10)
    table.close()
    assert (told[before:], closed) == ([None, None], [True])


def test_bots_at_a_table_may_take_as_long_as_the_run_says() -> None:
    def stored(runtime: dict[str, Any]) -> Any:
        return SimpleNamespace(part=lambda name, make, *, default: make(runtime))

    assert bots_of_run(stored({"bots": {"processes": 4, "deadline": 5.0}})) == BotSettings(processes=1, deadline=5.0)
    assert bots_of_run(stored({})) == BotSettings()


def test_of_two_that_answer_at_once_one_is_late() -> None:
    table = people(openspiel("tic_tac_toe"))
    begin, late = threading.Barrier(4), list[str]()

    def answer(action: int) -> None:
        begin.wait()
        try:
            table.move(0, [MoveRequest(player=0, agent=0, action=action)], 0)
        except WrongTurnError as error:
            late.append(str(error))

    threads = [threading.Thread(target=answer, args=(action,)) for action in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(late) == 3
    assert table.view(None)["frame"]["number"] == 1
    table.close()


def test_few_tables_have_bots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GameSession, "has_bots", True)
    tables = GameSessions(bots=1)
    tables.add(lambda _: people(openspiel("tic_tac_toe")))
    with pytest.raises(TooManySessionsError, match="bots play at 1 tables"):
        tables.add(lambda _: people(openspiel("tic_tac_toe")))
    assert len(tables) == 1
    tables.close()


# ---------------------------------------------------------------------------------------------- hints


def test_the_mixture_answers_by_what_its_members_would_have_done() -> None:
    """Bold bets with 0.8, shy with 0.2, half of the games each. After a pass shy is four times as likely as bold: 0.8 and 0.2; so the
    mixture now bets with 0.8 × 0.2 + 0.2 × 0.8 = 0.32, where it bet with 0.5 before."""
    bold, shy = SampledPolicy("bold", _Constant(0.8), prob=0.5), SampledPolicy("shy", _Constant(0.2), prob=0.5)
    game = AnyGame(Environment(id="openspiel/kuhn_poker", num_envs=1, tree="off"))
    mixed(game, {"@meta": (bold, shy), "@0/bold": (replace(bold, prob=1.0),)})
    table = GameSession("t", game, [SeatRequest(who="person"), SeatRequest(who="person")], rated=False, seed=1)
    table._advisors = {0: Advisor(game, 0, "@meta")}
    table._publish()
    [alone] = table.view(0)["frame"]["decisions"]
    assert (alone["probs"], alone["hint"]["meta"]) == (pytest.approx([0.5, 0.5], abs=1e-6), None)
    table._advisors = {0: Advisor(game, 0, "@0/bold")}
    table._publish()
    assert table.view(0)["hints"] == "@0/bold"
    [first] = table.view(0)["frame"]["decisions"]
    assert first["hint"]["policy"] == "@0/bold"
    assert first["probs"] == pytest.approx([0.2, 0.8], abs=1e-6)
    assert first["hint"]["meta"] == pytest.approx([0.5, 0.5], abs=1e-6)
    assert "as before the game" in first["hint"]["how"]
    choose(table, 0, 0)
    choose(table, 1, 1)
    [second] = table.view(0)["frame"]["decisions"]
    assert second["hint"]["meta"] == pytest.approx([0.68, 0.32], abs=1e-6)
    assert "how likely" in second["hint"]["how"]
    assert "hint" not in str(table.view(1)["frame"]["decisions"] or "")
    table.close()


def mixed(game: AnyGame, sampled: Mapping[str, Sequence[SampledPolicy]]) -> None:
    """Let names stand for these policies of player 0."""
    game.run = cast(Any, SimpleNamespace(lacking=[]))
    game.named = cast(Any, SimpleNamespace(seats=lambda name: (sampled[name], ())))


def one_member(game: AnyGame, policy: Any) -> None:
    """Let the mixture be one policy."""
    only = (SampledPolicy("best", policy),)
    mixed(game, {"@meta": only, "@0/best": only})


class _Remembers(_Constant):
    """Bets with 0.2 first and with 0.8 then; wants observations, as a network does, also in a compiled game."""

    memory_shape = (1,)

    def __init__(self) -> None:
        super().__init__(0.2)

    def act(self, observation: Any, mask: Any, memory: Any, noise: Any, *, mode: str = "explore") -> Any:
        if observation.ndim == 1:
            raise ValueError("numbers of information states were given")
        self.prob = 0.8 if memory[0, 0] else 0.2
        return super().act(observation, mask, memory, noise, mode=mode)._replace(memory=memory + 1)


def test_a_policy_that_remembers_gives_hints_in_a_compiled_game() -> None:
    game = AnyGame(Environment(id="openspiel/kuhn_poker", num_envs=1))
    one_member(game, _Remembers())
    assert game.spec.enumeration is not None
    table = GameSession("t", game, [SeatRequest(who="person"), SeatRequest(who="person")], rated=False, seed=1)
    table._advisors = {0: Advisor(game, 0, "@0/best")}
    table._publish()
    for probs in ([0.8, 0.2], [0.2, 0.8]):
        [due] = table.view(0)["frame"]["decisions"]
        assert due["probs"] == pytest.approx(probs, abs=1e-6)
        assert due["hint"]["meta"] == pytest.approx(probs, abs=1e-6)
        choose(table, 0, 0)
        if not table.view(0)["over"]:
            choose(table, 1, 1)
    table.close()


class _Valued(_Constant):
    """Has a critic that sees the central state."""

    def __init__(self, width: int) -> None:
        super().__init__(0.5)
        self.spec, self.seen = PolicySpec("valued", {"state": width}), list[Any]()

    def values(self, observation: Any, mask: Any, memory: Any, state: Any) -> Values:
        del mask, memory
        self.seen.append(state)
        return Values(np.zeros(len(observation), np.float32))


def test_a_hint_does_not_come_from_what_all_players_see_together() -> None:
    env = Environment(id="openspiel/kuhn_poker", num_envs=1, tree="off")
    game = AnyGame(env, wrappers=[{"kind": "joint_state"}])
    policy = _Valued(state_width(game.spec, (0,)))
    one_member(game, policy)
    table = GameSession("t", game, [SeatRequest(who="person"), SeatRequest(who="person")], rated=False, seed=1)
    assert table._episode.open_step is not None
    assert table._episode.open_step.state is not None
    table._advisors = {0: Advisor(game, 0, "@0/best")}
    table._publish()
    assert table.view(0)["frame"]["decisions"][0]["value"] == 0
    assert policy.seen
    assert all(state is None for state in policy.seen)
    table.close()


_BROKEN = "the policy of /runs/try1/policies/0-3.safetensors is broken."


@pytest.mark.parametrize(
    ("error", "said"),
    [(PolicyError(_BROKEN), "the policy of 0-3.safetensors is broken."), (ValueError("odd"), "ValueError: odd")],
)
def test_a_hint_that_cannot_be_given_says_why(error: Exception, said: str) -> None:
    class _Mute:
        who = "@0/best"

        def advise(self, *_: object) -> list[FrameDecision]:
            raise error

    env = Environment(id="openspiel/kuhn_poker", num_envs=1, tree="off")
    table = GameSession("t", AnyGame(env), [SeatRequest(who="person"), SeatRequest(who="person")], rated=False, seed=1)
    table._advisors = {0: cast(Any, _Mute())}
    table._publish()
    [due] = table.view(0)["frame"]["decisions"]
    assert due["probs"] is None
    assert due["hint"]["how"].startswith("There is no hint: ")
    assert said in due["hint"]["how"]
    table.close()
