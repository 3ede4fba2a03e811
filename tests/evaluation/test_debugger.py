"""Episodes step by step: what is kept of them, forwards and back, and on files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

from ludus.apps.episodes import played_episode
from ludus.apps.episodes.debugger import EpisodeDebugger, RecordedEpisode
from ludus.apps.episodes.played_episode import PlayedEpisode
from ludus.apps.episodes.recording import record
from ludus.core.errors import ConfigError, EnvError, ScenarioError
from ludus.core.types import AgentSpec, EnvSpec, Mixture, PolicyOutput, PolicyRef, PolicySpec
from ludus.envs.base import VectorEnv
from ludus.envs.publisher import TERMINATED
from ludus.envs.python_vector import EnvStepResult, PythonVectorEnv
from ludus.envs.registry import make_env
from ludus.policies.actor_critic import arrays_of, make_network
from ludus.policies.base import Policy
from ludus.policies.bots import BotPolicy, parse_bot
from ludus.policies.registry import build_policy
from ludus.policies.specs import actor_critic_spec, body_config, random_spec


def network_spec(**options: Any) -> PolicySpec:
    """For CartPole."""
    return actor_critic_spec(
        shape=(4,), action={"kind": "categorical", "actions": 2}, body=body_config("mlp", hidden=(4,)), **options
    )


def random(actions: int) -> Policy:
    return build_policy(PolicySpec("random", {"actions": actions}), {})


def played(id: str, policies: Sequence[Policy], *, seed: int = 0, **options: Any) -> PlayedEpisode:
    return PlayedEpisode(lambda: make_env(id, num_envs=1, **options), policies, seed=seed)


class Walk:
    """Two agents of one player and one of another, of whom the second moves every other step; three steps. The second agent of player 0
    stops at the second step. Pays the number of the step to agent 0."""

    counts = False

    def reset(self, seed: int) -> EnvStepResult:
        self.t, self.seed = 0, seed
        return EnvStepResult(due=self.due())

    def due(self) -> list[Any]:
        mask = np.array([True, self.t != 1, True])
        everybody = [(0, self.seen(0), mask), (1, self.seen(1), mask), (2, self.seen(2), mask)]
        return [one for one in everybody if (one[0] != 1 or self.t < 2) and (one[0] != 2 or self.t % 2 == 0)]

    def seen(self, agent: int) -> Any:
        return np.array([self.t, agent], np.float32)

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        self.t += 1
        reward = [(0, float(self.t)), (2, -1.0)]
        if self.t == 3:
            gone = [(k, self.seen(k), TERMINATED) for k in (0, 2)]
            counted = np.array([[3.0, 1.0], [2.0, np.nan]]) if self.counts else None
            return EnvStepResult(reward=reward, gone=gone, over=TERMINATED, statistics=counted)
        gone = [(1, self.seen(1), TERMINATED)] if self.t == 2 else []
        return EnvStepResult(due=self.due(), reward=reward, gone=gone)

    def render(self) -> Any:
        return np.full((4, 6, 3), 60 * self.t, np.uint8)

    def observation_names(self, player: int) -> Sequence[str]:
        return ("time", "agent")

    def action_names(self, player: int) -> Sequence[str]:
        return ("left", "stay", "right") if player == 0 else ()

    def close(self) -> None:
        return None


STATE = np.array([[0, 51], [102, 255]], np.uint8)


class State(Walk):
    """With an image as its state."""

    def reset(self, seed: int) -> EnvStepResult:
        return replace(super().reset(seed), state=STATE)

    def step(self, actions: Sequence[Any]) -> EnvStepResult:
        return replace(super().step(actions), state=STATE)


def walk(game: Callable[[], Any] = Walk, **spec: Any) -> VectorEnv:
    agents = tuple(
        AgentSpec(name, player, Box(0, 3, (2,), np.float32), Discrete(3))
        for name, player in (("a", 0), ("b", 0), ("c", 1))
    )
    made = EnvSpec("tests/walk", agents, ((0, 6), (-3, 0)), **{"symmetry": ((0,), (1,)), **spec})
    return PythonVectorEnv(game, 1, spec=made, masked=(True, True))


# ------------------------------------------------------------------------------------------ what is kept


def test_a_turn_based_game_is_told_in_its_own_words() -> None:
    with played("openspiel/kuhn_poker", [random(2), random(2)], seed=2) as episode:
        assert not episode.over
        assert len(episode.episode.steps) == 1  # no more than somebody looks at
        (first,) = episode.decisions(0)
        assert (first.player, first.information, first.names) == (0, "0", {0: "Pass", 1: "Bet"})
        assert (first.legal, first.policy, first.mode) == ((0, 1), "player_0", "explore")
        assert first.probs is not None
        assert first.probs.tolist() == [0.5, 0.5]
        assert first.logp == pytest.approx(np.log(0.5))
        assert np.isnan(first.reward)  # since its next decision has not come
        assert first.observation.shape == (11,)
        assert episode.go(99) == len(episode.episode.steps)
        assert episode.over
        told = [
            (d.player, d.information, d.action_name)
            for k in range(99)
            if episode.reach(k)
            for d in episode.decisions(k)
        ]
        film = record(make_env("openspiel/kuhn_poker", num_envs=1), [random(2), random(2)], seed=2)
        assert [f"player {p}: {action}" for p, _, action in told] == [
            line for line in film.text.splitlines() if line.startswith("player")
        ]
        assert episode.episode.steps[-1].returns.tolist() == film.returns[0].tolist()
        assert episode.step is None
        assert str(episode.picture(episode.position)) in film.text.replace("    ", "")


def test_rewards_wait_for_the_decision_that_they_are_of() -> None:
    with PlayedEpisode(walk, [random(3), random(3)]) as episode:
        episode.go(3)
        steps = episode.episode.steps
        assert [[rows.agent.tolist() for rows in step.due] for step in steps] == [
            [[0, 1], [0]],
            [[0, 1], []],
            [[0], [0]],
        ]
        assert [step.paid.tolist() for step in steps] == [[1, 0], [2, -2], [3, -1]]
        assert [step.returns.tolist() for step in steps] == [[1, 0], [3, -2], [6, -3]]
        assert steps[0].due[0].reward.tolist() == [1, 0]
        assert steps[0].due[1].reward.tolist() == [-2]  # of both steps until it moves again
        assert [step.over for step in steps] == ["", "", "terminated"]
        assert steps[1].closed == ((0, 1, True),)
        assert steps[2].closed == ((0, 0, True), (1, 0, True))


def test_columns_and_actions_are_named_where_the_environment_names_them() -> None:
    with PlayedEpisode(walk, [random(3), random(3)]) as episode:
        episode.go(1)
        first, second = episode.decisions(1, 0)
        assert first.columns == ("time", "agent")
        assert second.observation.tolist() == [1, 1]
        assert (second.name, second.several, second.names) == ("b", True, {0: "left", 2: "right"})
        assert second.legal == (0, 2)
        assert episode.decisions(1, 1) == []
        assert episode.decisions(0, 1)[0].names == {}
        episode.stop_at('observation["time"] == 2 and agent == 0')
        assert episode.resume() is episode.breakpoints[0]
        assert episode.position == 2
        assert episode.resume() is None
        assert episode.position == 3


def test_players_under_one_are_told_as_the_game_knows_them() -> None:
    together: list[dict[str, object]] = [{"kind": "group_players", "mapping": {"player_0": 0, "player_1": 0}}]
    make = partial(
        make_env, "openspiel/goofspiel(num_cards=3,imp_info=True,points_order=descending)", num_envs=1, tree="off"
    )
    with PlayedEpisode(make, [random(3)], wrappers=together) as episode:
        first, second = episode.decisions(0)
        assert (first.player, second.player) == (0, 0)
        assert "P0 hand: 1 2 3" in first.information
        assert "P1 hand: 1 2 3" in second.information
        assert second.names[0] == "[P1]Bid: 1"


def test_statistics_come_with_the_end(tmp_path: Path) -> None:
    class Counts(Walk):
        counts = True

    make = partial(walk, Counts, statistics=("moves", "falls"))
    with PlayedEpisode(make, [random(3), random(3)]) as episode:
        episode.stop_at("moves[0] > 2 and not falls[1] > 0")
        assert episode.resume() is not None
        assert episode.position == 2
        with pytest.raises(ConfigError, match="unknown name in a condition 'move'; did you mean 'moves'"):
            episode.stop_at("move > 2")
        assert [step.statistics is None for step in episode.episode.steps] == [True, True, False]
        episode.save(tmp_path / "counted.jsonl")
    read = RecordedEpisode(tmp_path / "counted.jsonl")
    assert np.asarray(read.episode.steps[2].statistics)[0].tolist() == [3, 1]
    read.stop_at("moves[1] == 2")
    assert read.resume() is not None


def test_a_wrapper_that_changes_observations_takes_their_names_away() -> None:
    stacked: list[dict[str, object]] = [{"kind": "frame_stack", "k": 2}]
    with PlayedEpisode(walk, [random(3), random(3)], wrappers=stacked) as episode:
        assert episode.decisions(0)[0].observation.shape == (2, 2)
        assert episode.decisions(0)[0].columns == ()
        assert int(np.asarray(episode.picture(0))[0, 0, 0]) == 0


def test_a_team_that_moves_at_once() -> None:
    with played("mpe2/simple_spread_v3", [random(5)], teams="one", state=True) as episode:
        assert episode.go(24) == 24
        step = episode.step
        assert step is not None
        assert [d.name for d in episode.decisions(24)] == ["agent_0", "agent_1", "agent_2"]
        assert step.over == "truncated"
        assert step.state is not None
        assert step.state.tolist() == np.concatenate([d.observation for d in episode.decisions(24)]).tolist()
        paid = sum(rows.reward.astype(np.float64).sum() for one in episode.episode.steps for rows in one.due)
        assert paid == pytest.approx(step.returns[0], abs=1e-4)


def test_moves_at_once_in_a_matrix_game() -> None:
    with played("openspiel/matrix_rps", [random(3), random(3)], seed=3) as episode:
        one, other = episode.decisions(0)
        assert (one.action_name, other.action_name) == ("Paper", "Scissors")
        assert episode.episode.steps[0].paid.tolist() == [-1, 1]
        assert "Terminal? false" in str(episode.picture(0))
        assert "Terminal? true" in str(episode.picture(1))


# ------------------------------------------------------------------------------------------ what policies answer


def test_probabilities_and_values_of_a_network() -> None:
    spec = network_spec(value="separate")
    network = make_network(spec, seed=1)
    policy = build_policy(spec, arrays_of(network))
    with played("gymnasium/CartPole-v1", [policy]) as episode:
        (d,) = episode.decisions(0)
        with torch.no_grad():
            out, value, _ = network(torch.from_numpy(d.observation[None].copy()))
        assert value is not None
        assert d.probs is not None
        assert d.probs == pytest.approx(out.softmax(1).numpy()[0], abs=1e-5)
        assert d.value == pytest.approx(float(value[0]), abs=1e-5)
        assert np.exp(d.logp) == pytest.approx(d.probs[int(d.action)], abs=1e-5)
        episode.go(2)
        later = episode.decisions(2)[0].value
        episode.restart()
        episode.stop_at(f"abs(value - {later}) < 1e-6 and prob < 1")
        assert episode.resume() is not None
        assert episode.position == 2


@pytest.mark.parametrize("shared", [True, False])
def test_a_central_critic_sees_the_state_as_its_learner_showed_it(shared: bool) -> None:
    # images of four numbers, divided by 255; of a population that two players share, then, one-hot, whose decision it is
    spec = actor_critic_spec(
        shape=(2,),
        action={"kind": "categorical", "actions": 3},
        body=body_config("mlp", hidden=(4,)),
        value="central",
        state=6 if shared else 4,
    )
    network = make_network(spec, seed=1)
    policies = [build_policy(spec, arrays_of(network))] * 2
    with PlayedEpisode(
        lambda: walk(State, symmetry=((0, 1),), state=Box(0, 255, (2, 2), np.uint8)), policies
    ) as episode:
        for d in episode.decisions(0):
            one_hot = [[1.0, 0.0], [0.0, 1.0]][d.player] if shared else []
            state = torch.tensor([*(STATE.ravel() / 255).tolist(), *one_hot], dtype=torch.float32)
            with torch.no_grad():
                value = network(torch.from_numpy(d.observation[None].copy()), None, None, state[None])[1]
            assert value is not None
            assert d.value == pytest.approx(float(value[0]), abs=1e-5)


def test_a_central_critic_of_another_state_says_nothing() -> None:
    spec = actor_critic_spec(
        shape=(2,),
        action={"kind": "categorical", "actions": 3},
        body=body_config("mlp", hidden=(4,)),
        value="central",
        state=7,
    )
    policies = [build_policy(spec, arrays_of(make_network(spec, seed=1)))] * 2
    with PlayedEpisode(lambda: walk(State, state=Box(0, 255, (2, 2), np.uint8)), policies) as episode:
        assert np.isnan(episode.decisions(0)[0].value)


def test_a_policy_that_remembers_is_asked_with_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = network_spec(core="gru", width=3)
    network = make_network(spec, seed=1)
    policy = build_policy(spec, arrays_of(network))
    with played("gymnasium/CartPole-v1", [policy]) as episode:
        episode.go(5)
        memory = episode.episode.steps[5].due[0].memory
        assert memory is not None
        assert np.abs(memory).sum() > 0
        assert np.abs(np.asarray(episode.episode.steps[0].due[0].memory)).sum() == 0
        (d,) = episode.decisions(5)
        assert d.probs is not None
        assert d.probs.sum() == pytest.approx(1, abs=1e-5)
        assert d.probs[int(d.action)] == pytest.approx(np.exp(d.logp), abs=1e-5)
        monkeypatch.setattr(played_episode, "_LADDER", 1)
        episode._answers.clear()
        seldom = episode.decisions(5)[0].probs
        assert seldom is not None
        assert np.isnan(seldom).sum() == 1  # one uniform shows one action


def test_greedy_play_shows_what_exploring_would_draw() -> None:
    spec = network_spec()
    policy = build_policy(spec, arrays_of(make_network(spec, seed=1)))
    with played("gymnasium/CartPole-v1", [policy]) as drawn:
        plain = drawn.decisions(0)[0]
    ref = PolicyRef(0, "best", mode="greedy")
    mixture = Mixture.product({0: ([ref], [1.0])})
    make = partial(make_env, "gymnasium/CartPole-v1", num_envs=1)
    with PlayedEpisode(make, mixture, lambda _: policy) as greedy:
        d = greedy.decisions(0)[0]
    assert plain.explored is None
    assert d.explored is not None
    assert plain.probs is not None
    assert d.explored.tolist() == plain.probs.tolist()
    assert d.probs is not None
    assert sorted(d.probs.tolist()) == [0, 1]
    assert (d.policy, d.mode) == ("best", "greedy")


@pytest.mark.usefixtures("bots_here")
def test_of_a_bot_only_its_moves_are_known() -> None:
    bot = BotPolicy.of(parse_bot("uniform_random"))
    with played("openspiel/kuhn_poker", [bot, random(2)]) as episode:
        d = episode.decisions(0)[0]
        assert d.probs is None
        assert np.isnan(d.logp)
        assert d.action_name in ("Pass", "Bet")
        episode.stop_at("prob >= 0 and player == 0")
        episode.resume()
        assert episode.position == len(episode.episode.steps)


# ------------------------------------------------------------------------------------------ pictures


def test_pictures_are_of_the_moves_that_were_made() -> None:
    with PlayedEpisode(walk, [random(3), random(3)]) as episode:
        episode.go(3)
        shades = [int(np.asarray(episode.picture(k))[0, 0, 0]) for k in (3, 0, 2, 1)]
        assert shades == [180, 0, 120, 60]


def test_an_environment_that_leads_elsewhere_has_no_pictures() -> None:
    starts = iter(range(99))

    class Wild(Walk):
        def seen(self, agent: int) -> Any:
            return np.array([self.t, agent + self.start], np.float32)

        def reset(self, seed: int) -> EnvStepResult:
            self.start = next(starts) % 2
            return super().reset(seed)

    elsewhere = pytest.raises(EnvError, match=r"does not repeat its episodes: .* lead elsewhere at step 0")
    with PlayedEpisode(lambda: walk(Wild), [random(3), random(3)]) as episode, elsewhere:
        episode.picture(0)
    with PlayedEpisode(lambda: walk(Wild, determinism="none"), [random(3), random(3)]) as episode:
        episode.go(3)
        assert [int(np.asarray(episode.picture(k))[0, 0, 0]) for k in (3, 0)] == [180, 0]


def test_render_of_an_unrenderable_game_raises() -> None:
    class Blind(Walk):
        def render(self) -> Any:
            raise NotImplementedError("no screen")

    for determinism in ("environment", "none"):
        make = partial(walk, Blind, determinism=determinism)
        wrong = pytest.raises(EnvError, match="could not be rendered: NotImplementedError: no screen")
        with PlayedEpisode(make, [random(3), random(3)]) as episode, wrong:
            episode.picture(0)


# ------------------------------------------------------------------------------------------ going


def test_exception_stops_the_debugger_at_its_step() -> None:
    class Falls(Walk):
        def step(self, actions: Sequence[Any]) -> EnvStepResult:
            if self.t == 2:
                raise RuntimeError("fell")
            return super().step(actions)

    with PlayedEpisode(lambda: walk(Falls), [random(3), random(3)]) as episode:
        assert episode.go(9) == 2
        assert "fell" in episode.cut
        assert len(episode.decisions(1)) == 2
        episode.restart()
        assert (episode.position, episode.cut) == (0, "")

    class Lame(Walk):
        def step(self, actions: Sequence[Any]) -> EnvStepResult:
            raise RuntimeError("fell")

    with pytest.raises(EnvError, match=r"the episode's first step cannot be made: .*fell"):
        PlayedEpisode(lambda: walk(Lame), [random(3), random(3)])


def test_a_policy_that_raises_ends_the_episode_too(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, asked = random(3), list[int]()
    act = policy.act

    def stumble(*args: Any, **keywords: Any) -> PolicyOutput:
        asked.append(1)
        if len(asked) == 3:
            raise ValueError("stumbled")
        return act(*args, **keywords)

    monkeypatch.setattr(policy, "act", stumble)
    with PlayedEpisode(lambda: walk(Walk), [policy, random(3)]) as episode:
        assert episode.go(9) == 2
        assert "ValueError: stumbled" in episode.cut
        assert episode.over
        assert len(episode.decisions(1)) == 2
        episode.restart()
        assert (episode.go(9), episode.cut) == (3, "")


def test_long_episodes_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    make = partial(make_env, "gymnasium/CartPole-v1", num_envs=1)
    with PlayedEpisode(make, [random(2)], steps=3) as episode:
        assert episode.go(9) == 3
        assert episode.cut == "cut after 3 steps; 3 steps are kept"
    monkeypatch.setattr(played_episode, "MOST_BYTES", 1000)
    with PlayedEpisode(make, [random(2)]) as episode:
        episode.go(9)
        assert episode.cut.startswith("cut after 2 steps; ")


def test_images_are_kept_compressed_and_come_back() -> None:
    image = np.arange(40_000, dtype=np.uint8).reshape(1, 200, 200)
    kept = played_episode.StoredArray(image)
    assert kept.size < 2000
    assert np.array_equal(kept.array, image)
    assert played_episode.StoredArray(np.ones(3)).array.dtype == np.float32


def test_another_seed_another_episode_and_the_same_again() -> None:
    with played("openspiel/leduc_poker", [random(3), random(3)], seed=1) as episode:
        episode.go(99)
        first = [d.information for k in range(99) if episode.reach(k) for d in episode.decisions(k)]
        episode.stop_at("step > 1")
        episode.restart()
        assert episode.position == 0
        episode.go(99)
        assert [d.information for k in range(99) if episode.reach(k) for d in episode.decisions(k)] == first
        episode.restart(5)
        assert (episode.episode.seed, episode.episode.number, len(episode.breakpoints)) == (5, 0, 1)
        episode.go(99)
        assert [d.information for k in range(99) if episode.reach(k) for d in episode.decisions(k)] != first


def test_wrong_numbers() -> None:
    make = partial(make_env, "openspiel/kuhn_poker", num_envs=1)
    with pytest.raises(ScenarioError, match="episode=-1"):
        PlayedEpisode(make, [random(2)] * 2, episode=-1)
    with pytest.raises(EnvError, match="2 environments were given to be debugged"):
        PlayedEpisode(lambda: make_env("openspiel/kuhn_poker", num_envs=2), [random(2)] * 2)
    with PlayedEpisode(make, [random(2)] * 2) as episode, pytest.raises(ConfigError, match="step -1"):
        episode.go(-1)


# ------------------------------------------------------------------------------------------ files


def told(episode: EpisodeDebugger) -> list[Any]:
    return [
        (
            d.player,
            d.agent,
            d.name,
            d.policy,
            d.observation.tolist(),
            d.columns,
            d.information,
            d.legal,
            d.names,
            d.action.tolist(),
            f"{d.logp:.5f}",
            None if d.probs is None else d.probs.tolist(),
            f"{d.value:.5f}",
            f"{d.reward:.5f}",
        )
        for k in range(len(episode.episode.steps))
        for d in episode.decisions(k)
    ]


@pytest.mark.parametrize("id", ["openspiel/leduc_poker", "openspiel/matrix_rps", "gymnasium/Pendulum-v1", "walk"])
def test_a_saved_episode_is_read_again(id: str, tmp_path: Path) -> None:
    make = walk if id == "walk" else lambda: make_env(id, num_envs=1)
    spec = make().spec
    policies = [build_policy(random_spec(spec.agents_of(p)[0].action), {}) for p in range(spec.num_players)]
    file = tmp_path / "episode.jsonl"
    with PlayedEpisode(make, policies, seed=4) as episode:
        episode.save(file)
        read = RecordedEpisode(file)
        assert told(read) == told(episode)
        for mine, its in zip(episode.episode.steps, read.episode.steps, strict=True):
            assert (mine.paid.tolist(), mine.returns.tolist()) == (its.paid.tolist(), its.returns.tolist())
            assert (mine.over, mine.closed) == (its.over, its.closed)
        if id.startswith("openspiel/"):
            assert read.picture(0) == episode.picture(0)
        read.stop_at("step == 0 or terminated or truncated")
        read.resume()
        read.restart()
        assert read.position == 0
