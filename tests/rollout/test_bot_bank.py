"""Bots beside the environments of a worker: who is asked what, in which state, and what a learner's rows are then."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium.spaces import Box

from ludus.core.errors import EnvError, PolicyError, ScenarioError
from ludus.core.types import Mixture, PolicyRef, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.envs.processes.vector import SubprocessVectorEnv
from ludus.envs.registry import make_env
from ludus.policies.bots import BotPolicy, BotSettings, parse_bot, require_fit
from ludus.policies.registry import build_policy
from ludus.rollout.base import RolloutRequest
from ludus.rollout.bot_players import BotPlayers, BotPool, BotRequests, CopiedGames, FollowedGames, LegalMoves
from ludus.rollout.bot_process import bot_players
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.manager import RolloutManager
from ludus.rollout.worker import RolloutWorker
from ludus.runtime.inprocess import InProcess
from ludus.testing.fakes import TEAM, CountingPolicy, FixedPolicy, ScriptedEnv
from ludus.testing.ledger import Actor

ME = PolicyRef(0, "me", 1)
TIC_TAC_TOE = "openspiel/tic_tac_toe"


class Stones:
    """Knows how many stones it has put down in its episode, and that the board agrees; the first free square."""

    def restart(self, player: int, seed: int) -> None:
        self.stones = 0

    def act(self, observation: Any, mask: Any) -> Any:
        assert self.stones == (9 - mask.sum()) // 2, "it was asked about another episode"
        self.stones += 1
        return int(np.flatnonzero(mask)[0])


class Watcher(Stones):
    """The same by the state, which it then spoils."""

    def act_on(self, state: Any) -> int:
        assert self.stones == state.move_number() // 2, "it was shown another episode"
        assert state.current_player() == state.move_number() % 2
        self.stones += 1
        action: int = state.legal_actions()[0]
        state.apply_action(action)
        return action


class Swings:
    """Drives a car to where it rolls."""

    def restart(self, player: int, seed: int) -> None:
        pass

    def act(self, observation: Any, mask: Any) -> Any:
        return 2 * int(observation[1] >= 0)


class Looks(Swings):
    """The same, as the environment itself says; and looks what comes of it."""

    def check(self, game: Any) -> None:
        assert game.id == "gymnasium/MountainCar-v0"

    def act_on(self, state: Any) -> Any:
        action = 2 * int(state.state[1] >= 0)
        state.step(action)
        return action


class Notes:
    """Keeps what it sees, episode by episode."""

    seen: ClassVar[list[list[float]]] = []

    def restart(self, player: int, seed: int) -> None:
        self.mine: list[float] = []
        self.seen.append(self.mine)

    def act(self, observation: Any, mask: Any) -> Any:
        self.mine.append(float(observation[0]))
        return 0


class Sleeps(Stones):
    """Does not answer, or is not there any more."""

    def __init__(self, ends: bool = False) -> None:
        self.ends = ends

    def act(self, observation: Any, mask: Any) -> Any:
        if self.ends:
            raise SystemExit(4)
        time.sleep(1e6)


@pytest.fixture(autouse=True)
def own_bots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The module of that name is found."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "evaluation"))


# ---------------------------------------------------------------------------------------------- one pool of bots


def asked(pool: BotPlayers, bot: int, *slots: int, seed: int = 5, player: int = 1) -> list[Any]:
    n = len(slots)
    return pool.ask(
        BotRequests(
            "worker",
            player,
            np.full(n, bot, np.int32),
            np.array(slots, np.int32),
            np.full(n, seed),
            np.zeros((n, 11), np.float32),
            np.ones((n, 2), np.bool_),
            [None] * n,
        )
    )


def test_each_slot_has_a_bot_of_its_own() -> None:
    heard: list[int] = []

    def tell(bot: int, *, making: bool = False) -> None:
        heard.append(10 * making + bot)

    pool = BotPool(tell)
    loaded = pool.load([parse_bot("own_bots:First"), parse_bot("own_bots:First,last=true"), parse_bot("mcts")])
    assert [tuple(one) for one in loaded] == [(0, False), (1, False), (2, True)]
    assert heard == [10, -1, 11, -1, 12, -1]
    assert pool.load([parse_bot("own_bots:First,last=true")]) == [loaded[1]]
    heard.clear()
    assert (asked(pool, 1, 0, seed=5), asked(pool, 1, 1, seed=6), asked(pool, 1, 0, seed=-1)) == ([1], [1], [1])
    assert [pool._at["worker", 1, 1, slot].seed for slot in (0, 1)] == [5, 6]
    assert heard == [1, -1] * 7
    with pytest.raises(PolicyError, match="bot 'own_bots:First' was lost"):
        asked(pool, 0, 7, seed=-1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Illegal", r"bot 'own_bots:Illegal' answered 17 as player 1; legal are \[0, 1\]"),
        ("Vague", "bot 'own_bots:Vague' answered 0.5 as player 1; a whole number was expected"),
        (
            "Raises",
            r"'own_bots:Raises' failed as player 1: Raises.act raised ValueError: no idea \(.*own_bots.py, line \d+\)",
        ),
        ("Leaves", r"'own_bots:Leaves' failed as player 1: Leaves.act raised SystemExit: 4 \("),
        (
            "HoldsLock",
            r"'own_bots:HoldsLock' failed as player 1: TypeError: .*\. Each slot plays with a copy of the bot",
        ),
    ],
)
def test_bad_answers_name_the_bot(text: str, words: str) -> None:
    pool, spec = BotPool(), make_env("openspiel/kuhn_poker", num_envs=1).spec
    pool.load([parse_bot(f"own_bots:{text}")])
    with pytest.raises(PolicyError, match=words):
        LegalMoves(spec, 1).checked(asked(pool, 0, 0), np.ones((1, 2), np.bool_), [f"own_bots:{text}"])


def test_without_masks_every_action_of_the_space_is_legal() -> None:
    moves = LegalMoves(make_env("gymnasium/CartPole-v1", num_envs=1).spec, 0)
    assert moves.checked([1], None, ["a"]).dtype == np.int32
    with pytest.raises(PolicyError, match=r"bot 'a' answered 17 as player 0; legal are \[0, 1\]"):
        moves.checked([17], None, ["a"])
    with pytest.raises(PolicyError, match=r"bot 'a' answered 10{30} as player 0; legal are \[0, 1\]"):
        moves.checked([10**30], None, ["a"])


@pytest.mark.parametrize("answer", [np.nan, np.inf])
def test_actions_are_finite(answer: float) -> None:
    spec = make_env("openspiel/kuhn_poker", num_envs=1).spec
    agent = replace(spec.agents[0], action=Box(-np.inf, np.inf, (2,)))
    moves = LegalMoves(replace(spec, agents=(agent, *spec.agents[1:])), 0)
    assert moves.checked([[0.5, 1]], None, ["a"]).tolist() == [[0.5, 1.0]]
    with pytest.raises(PolicyError, match=rf"bot 'a' answered \[{answer}, 0.0\] as player 0; an action of Box"):
        moves.checked([[answer, 0.0]], None, ["a"])


# ---------------------------------------------------------------------------------------------- states


@pytest.mark.parametrize("game", ["kuhn_poker", "leduc_poker", "matrix_rps", "goofspiel(num_cards=4)"])
@pytest.mark.parametrize(
    "options", [{"tree": "auto"}, {"tree": "off"}, {"openings": 2}], ids=["tree", "states", "openings"]
)
def test_states_follow_the_vector(game: str, options: dict[str, Any]) -> None:
    """Chance and moves lead to the states that the vector is in, episode after episode, whenever one is asked for."""
    follow(FollowedGames(make_env(f"openspiel/{game}", num_envs=4, **options)))


@pytest.mark.slow
def test_states_follow_subprocesses_that_are_repaired() -> None:
    """What is played after a repair has other seeds, and the game begins with random moves there, too."""
    vector = make_env("openspiel/leduc_poker", num_envs=4, workers=1, restarts=1, openings=2)
    assert isinstance(vector, SubprocessVectorEnv)
    try:
        follow(FollowedGames(vector), kill=partial(os.kill, vector._processes[0].pid, signal.SIGKILL), at=4)
        assert vector.restarts == 1
    finally:
        vector.close()


def follow(env: FollowedGames, *, kill: Callable[[], None] | None = None, at: int = 0) -> None:
    """kill: called before a step, when this many have been made."""
    seeds = np.arange(4, dtype=np.uint64) + 100
    actor, timestep = Actor(env.spec, seeds), env.reset(seeds, episodes=3)
    enumeration = env.spec.enumeration
    seen = finished = steps = 0
    while any(len(due.slot) for due in timestep.due):
        for player, due in enumerate(timestep.due):
            for slot, observation in zip(due.slot.tolist(), due.observation, strict=True):
                if (slot + seen) % 3 == 2:  # now and then
                    continue
                state = env.state(slot)
                seen += 1
                if enumeration is not None:
                    assert state.information_state_string(player) == enumeration.key[observation]
                else:
                    np.testing.assert_allclose(observation, state.information_state_tensor(player))
        if kill is not None and steps == at:
            kill()
        timestep = env.step(actor.actions(timestep))
        steps += 1
        finished += len(timestep.finished.environment)
    assert finished == 12
    assert seen >= 12


def test_moves_of_another_game_are_noticed() -> None:
    env = FollowedGames(make_env(TIC_TAC_TOE, num_envs=1, tree="off"))
    env.reset(np.zeros(1, np.uint64), episodes=1)
    for _ in range(2):
        env._before((np.array([4]), np.empty(0, np.int32)))
    with pytest.raises(EnvError, match="environment 0 is not in the state that its moves lead to"):
        env.state(0)


@pytest.mark.parametrize("processes", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_an_environment_in_python_is_a_state_itself(processes: int) -> None:
    """Who plays by it plays what is played by observations that say as much, and changes a copy."""
    found = []
    for name in ("test_bot_bank:Swings", "test_bot_bank:Looks"):
        env = make_env("gymnasium/MountainCar-v0", num_envs=2)
        require_fit(name, parse_bot(name).make(), env.spec)
        mixture = Mixture.product({0: ([PolicyRef(0, name)], [1.0])})
        bots = bot_players(BotSettings(processes=processes))
        request = RolloutRequest(None, (), mixture, "episodes", 4, seed=3)
        policies = [(PolicyRef(0, name), BotPolicy.of(parse_bot(name)))]
        found.append(worker(env, bots).play(request, policies).episodes.returns.tolist())
        bots.close()
    assert found[0] == found[1]
    assert len({tuple(row) for row in found[0]}) > 1


def test_states_that_nobody_has() -> None:
    with pytest.raises(ScenarioError, match=r"scripted has no states .* env.workers=0"):
        CopiedGames(ScriptedEnv([TEAM], 2))


# ---------------------------------------------------------------------------------------------- among policies


def against(*names: str, probs: tuple[float, ...] | None = None) -> tuple[Mixture, list[tuple[PolicyRef, Any]]]:
    """In both seats."""
    policies = [(PolicyRef(0, name), BotPolicy.of(parse_bot(name))) for name in names]
    refs = [ref for ref, _ in policies]
    shares = probs or tuple(1 / len(refs) for _ in refs)
    return Mixture.product({seat: (refs, shares) for seat in (0, 1)}), policies


def worker(env: VectorEnv, bots: BotPlayers | None = None) -> RolloutWorker:
    return RolloutWorker(env, LocalBank(env.spec, env.num_envs), bots=BotPool if bots is None else lambda: bots)


def test_a_learner_meets_bots_and_policies() -> None:
    """In Kuhn poker the learner always bets. Who always passes folds, and loses 1; who bets too loses or wins 2. Its rows have its own
    log-probabilities, wherever it sits."""
    mixture, policies = against("own_bots:First")
    bets, bot = PolicyRef(0, "bets"), policies[0][0]
    mixture = Mixture.product({seat: ((bot, bets), (0.5, 0.5)) for seat in (0, 1)})
    policies += [(ME, FixedPolicy.of(1, logp=-0.5)), (bets, FixedPolicy.of(1))]
    request = RolloutRequest(ME, (0, 1), mixture, "episodes", 40, seed=3, extras=("seen",))
    rollout = worker(make_env("openspiel/kuhn_poker", num_envs=8, tree="off")).play(request, policies)
    episodes, rows = rollout.episodes, rollout.trajectories
    assert rows is not None
    mine = episodes.returns[np.arange(40), episodes.seat]
    entry = episodes.entry[np.arange(40), 1 - episodes.seat]
    assert set(mine[entry == 0]) == {1.0}
    assert set(mine[entry == 1]) == {-2.0, 2.0}
    assert rows.num_rows == rollout.counters["learner_decisions"] == 40
    assert rows.logp.tolist() == [-0.5] * 40
    assert sorted(set(rows.seat.tolist())) == [0, 1]
    assert rows.action.dtype == np.int32


@pytest.mark.parametrize("name", ["test_bot_bank:Stones", "test_bot_bank:Watcher"])
def test_open_episodes_are_carried_on_with_their_bots(name: str) -> None:
    """Requests of 7 decisions cut episodes anywhere."""
    mixture, policies = against(name)
    policies.append((ME, build_policy(PolicySpec("random", {"actions": 9}), {})))
    played = worker(make_env(TIC_TAC_TOE, num_envs=5, tree="off"))
    requests = [RolloutRequest(ME, (0, 1), mixture, "decisions", 7, seed=k, carry_on=k > 0) for k in range(20)]
    found = [played.play(request, policies) for request in requests]
    assert sum(rollout.counters["episodes"] for rollout in found) > 20
    fresh = played.play(RolloutRequest(ME, (0, 1), mixture, "episodes", 5, seed=1), policies)
    assert fresh.counters["episodes"] == 5
    # For one that died: it is asked to go on, and begins.
    stands_in = worker(make_env(TIC_TAC_TOE, num_envs=5, tree="off"))
    assert stands_in.play(requests[1], policies).counters["learner_decisions"] >= 7


def test_a_seed_for_each_episode_decides_what_bots_play() -> None:
    mixture, policies = against("own_bots:Drawn", "uniform_random")
    policies.append((ME, FixedPolicy.of(1)))
    found = [
        worker(make_env("openspiel/leduc_poker", num_envs=4)).play(
            RolloutRequest(ME, (0,), mixture, "episodes", 60, seed=seed), policies
        )
        for seed in (1, 1, 2)
    ]
    returns = [rollout.episodes.returns.tolist() for rollout in found]
    assert returns[0] == returns[1] != returns[2]
    entry = found[0].episodes.entry[:, 1]
    assert all(len(set(found[0].episodes.returns[entry == k, 0])) > 3 for k in (0, 1))


def test_three_players_and_one_who_is_a_bot_of_each_kind() -> None:
    policies = [
        (PolicyRef(p, name), BotPolicy.of(parse_bot(name)))
        for p, name in ((1, "own_bots:First"), (2, "uniform_random"))
    ]
    mixture = Mixture.product({ref.population: ([ref], [1.0]) for ref, _ in policies})
    request = RolloutRequest(ME, (0,), mixture, "episodes", 30, seed=3)
    rollout = worker(make_env("openspiel/kuhn_poker(players=3)", num_envs=6)).play(
        request, [(ME, FixedPolicy.of(1)), *policies]
    )
    assert (rollout.episodes.returns.sum(axis=1) == 0).all()
    assert (rollout.episodes.returns[:, 1] == -1).all(), "player 1 never bets, and folds"


def test_each_agent_of_a_team_has_a_bot_of_its_own() -> None:
    """Agent 1 decides once and dies; agent 0 three times."""
    ref, bot = PolicyRef(0, "notes"), BotPolicy.of(parse_bot("test_bot_bank:Notes"))
    import test_bot_bank  # as it is found by its name

    test_bot_bank.Notes.seen.clear()
    request = RolloutRequest(ME, (1,), Mixture.product({0: ([ref], [1.0])}), "episodes", 2, seed=3)
    worker(ScriptedEnv([TEAM], 2)).play(request, [(ME, FixedPolicy.of(0)), (ref, bot)])
    assert sorted(test_bot_bank.Notes.seen) == [[10, 20, 30]] * 2 + [[11]] * 2


def test_the_games_of_a_bot_can_be_learned_from() -> None:
    """It is recorded as a learner is, beside a policy with memory."""
    ref, bot = PolicyRef(0, "bot"), BotPolicy.of(parse_bot("own_bots:First"))
    mixture = Mixture.product({0: ([ME], [1.0])})
    request = RolloutRequest(ref, (1,), mixture, "episodes", 6, seed=3)
    rows = (
        worker(make_env("openspiel/kuhn_poker", num_envs=2, tree="off"))
        .play(request, [(ref, bot), (ME, CountingPolicy())])
        .trajectories
    )
    assert rows is not None
    assert set(rows.action.tolist()) == {0}
    assert rows.memory0 is None or not rows.memory0.any()


# ---------------------------------------------------------------------------------------------- processes of their own


@pytest.mark.slow
def test_bots_in_processes_play_what_they_play_here() -> None:
    """A slot's bot stays in its process; two shards ask the same processes."""
    mixture, policies = against("test_bot_bank:Stones", "mcts-5")
    policies.append((ME, build_policy(PolicySpec("random", {"actions": 9}), {})))
    request = RolloutRequest(ME, (0, 1), mixture, "episodes", 24, seed=3)

    def make(*, num_envs: int) -> VectorEnv:
        return make_env(TIC_TAC_TOE, num_envs=num_envs, tree="off")

    found = []
    for processes in (0, 2):
        settings = BotSettings(processes=processes)
        spec = make(num_envs=1).spec
        rollouts = RolloutManager(InProcess(), make, spec=spec, num_envs=7, shards=2, bots=settings)
        found.append(rollouts.run(request, policies))
        rollouts.close()
    here, there = found
    assert here.trajectories is not None
    assert there.trajectories is not None
    assert here.episodes.returns.tolist() == there.episodes.returns.tolist()
    assert here.trajectories.action.tolist() == there.trajectories.action.tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "test_bot_bank:Sleeps",
            "bot 'test_bot_bank:Sleeps' did not answer within 0.3 seconds and was ended; runtime.bots.deadline",
        ),
        ("test_bot_bank:Sleeps,ends=true", "failed as player 0: Sleeps.act raised SystemExit: 4"),
        ("own_bots:Dies", "ended with exit code 3 while 'own_bots:Dies' was asked"),
        ("own_bots:DiesMade", "ended with exit code 3 while 'own_bots:DiesMade' was made"),
        ("own_bots:Illegal", r"bot 'own_bots:Illegal' answered 17 as player 0; legal are \[0, 1"),
        ("own_bots:AnswersWithCode", "what bot 'own_bots:AnswersWithCode' answered cannot be sent from its process"),
    ],
)
def test_a_bad_bot_is_ended_and_named_and_others_can_play(name: str, words: str) -> None:
    deadline = 0.3 if "Sleeps" in name else 30.0
    bots = bot_players(BotSettings(deadline=deadline))
    played = worker(make_env(TIC_TAC_TOE, num_envs=2, tree="off"), bots)
    me = (ME, build_policy(PolicySpec("random", {"actions": 9}), {}))
    mixture, policies = against(name)
    with pytest.raises(PolicyError, match=words):
        played.play(RolloutRequest(ME, (1,), mixture, "episodes", 2, seed=3), [me, *policies])
    mixture, policies = against("own_bots:First")
    played.play(RolloutRequest(ME, (1,), mixture, "episodes", 2, seed=3), [me, *policies])
    bots.close()
