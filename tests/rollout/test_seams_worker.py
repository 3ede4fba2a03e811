"""The seams of the rollout worker, with scripted games and policies: every expected number is written out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from ludus.core.errors import EnvError, PolicyError, ScenarioError
from ludus.core.types import Mixture, PolicyRef, SegmentEnd
from ludus.policies.base import Policy
from ludus.replay.trajectories import joint
from ludus.rollout.base import Rollout, RolloutRequest
from ludus.rollout.inference.local import LocalBank
from ludus.rollout.worker import RolloutWorker
from ludus.testing.fakes import (
    ENDS_OFF_TURN,
    TEAM,
    TRUNCATED_OFF_TURN,
    CountingPolicy,
    FixedPolicy,
    Frame,
    Script,
    ScriptedEnv,
    StackedFixed,
)

ME = PolicyRef(0, "me", 3)
OTHER = PolicyRef(1, "other", 0)


def worker_of(scripts: Sequence[Script], num_envs: int, policies: dict[PolicyRef, Policy]) -> RolloutWorker:
    env = ScriptedEnv(scripts, num_envs)
    bank = LocalBank(env.spec, num_envs)
    bank.load(list(policies.items()))
    return RolloutWorker(env, bank)


def request_of(
    amount: int, *, seat: int = 0, unit: str = "episodes", other: PolicyRef = OTHER, **rest
) -> RolloutRequest:
    return RolloutRequest(
        learner=rest.pop("learner", ME),
        seats=(seat,),
        opponents=Mixture.product({1 - seat: ([other], [1.0])}),
        unit=unit,
        amount=amount,
        seed=1,
        **rest,
    )


def play(scripts: Sequence[Script], num_envs: int, request: RolloutRequest, me: Policy | None = None) -> Rollout:
    policies = {ME: me or FixedPolicy.of(1, logp=-0.5), OTHER: FixedPolicy.of(0)}
    return worker_of(scripts, num_envs, policies).run(request)


class TestEndsOnAnothersMove:
    def test_open_decision_is_closed_with_its_reward(self):
        got = play([ENDS_OFF_TURN], 1, request_of(1)).trajectories
        assert got.start.tolist() == [0, 2]
        assert got.observation.tolist() == [[1], [3]]
        assert got.action.tolist() == [1, 1]
        assert got.logp.tolist() == [-0.5, -0.5]
        assert got.reward.tolist() == [0.5, 1.0]
        assert (got.t.tolist(), got.dt.tolist()) == ([0, 2], [2, 2])
        assert got.tail.tolist() == [SegmentEnd.TERMINATED]
        assert got.bootstrap_observation.tolist() == [[5]]
        assert (got.policy, got.version_lo.tolist(), got.version_hi.tolist()) == ("me", [3], [3])
        assert (got.agent.tolist(), got.seat.tolist(), got.episode.tolist()) == ([0], [0], [0])

    def test_the_one_whose_move_ends_it(self):
        got = play([ENDS_OFF_TURN], 1, request_of(1, seat=1)).trajectories
        assert got.observation.tolist() == [[2], [4]]
        assert got.reward.tolist() == [-0.5, -1.0]
        assert (got.t.tolist(), got.dt.tolist()) == ([1, 3], [2, 1])
        assert (got.agent.tolist(), got.seat.tolist()) == ([1], [1])

    def test_episodes_and_counters(self):
        got = play([ENDS_OFF_TURN], 2, request_of(3))
        assert got.episodes.index.tolist() == [0, 1, 2]
        assert got.episodes.returns.tolist() == [[1.5, -1.5]] * 3
        assert got.episodes.length.tolist() == [4, 4, 4]
        assert got.episodes.seat.tolist() == [0, 0, 0]
        assert got.episodes.entry.tolist() == [[0]] * 3
        assert got.counters == {"env_steps": 12, "decisions": 12, "learner_decisions": 6, "episodes": 3}
        assert got.trajectories.episode.tolist() == [0, 1, 2]


class TestTruncationOffTurn:
    def test_tail_bootstraps_from_the_final_observation(self):
        got = play([TRUNCATED_OFF_TURN], 1, request_of(2))
        assert got.trajectories.tail.tolist() == [SegmentEnd.TRUNCATED] * 2
        assert got.trajectories.bootstrap_observation.tolist() == [[7], [7]]
        assert got.trajectories.bootstrap_mask.tolist() == [[True, True]] * 2
        assert got.trajectories.reward.tolist() == [0.25, 0.25]
        assert got.trajectories.dt.tolist() == [2, 2]
        assert got.episodes.terminated.tolist() == [False, False]

    def test_scripts_of_different_lengths_play_exactly_the_preassigned_episodes(self):
        got = play([ENDS_OFF_TURN, TRUNCATED_OFF_TURN], 2, request_of(5))
        assert got.episodes.index.tolist() == [0, 1, 2, 3, 4]
        assert got.episodes.length.tolist() == [4, 2, 4, 2, 4]
        by_episode = dict(zip(got.trajectories.episode.tolist(), got.trajectories.tail.tolist(), strict=True))
        assert by_episode == {0: 0, 1: 1, 2: 0, 3: 1, 4: 0}


class TestFragments:
    """ENDS_OFF_TURN as a stream of player 0's decisions: (1, 0.5), (3, 1.0), (1, 0.5), … with player 1 in between."""

    def fragments(self, *amounts: int) -> list[Rollout]:
        worker = worker_of([ENDS_OFF_TURN], 1, {ME: FixedPolicy.of(1), OTHER: FixedPolicy.of(0)})
        out = []
        for k, amount in enumerate(amounts):
            ref = PolicyRef(0, "me", 3 + k)
            worker.bank.load([(ref, FixedPolicy.of(k % 2)), (OTHER, FixedPolicy.of(0))])
            out.append(worker.run(request_of(amount, unit="decisions", learner=ref, carry_on=k > 0)))
        return out

    def test_a_fragments_end_is_not_an_episodes_end(self):
        first, second = (r.trajectories for r in self.fragments(1, 2))
        # After one complete decision player 0 is due again, with observation 3: that is the first tail.
        assert first.observation.tolist() == [[1]]
        assert (first.reward.tolist(), first.dt.tolist()) == ([0.5], [2])
        assert (first.tail.tolist(), first.bootstrap_observation.tolist()) == ([SegmentEnd.CUT], [[3]])
        # The second goes on in the same episode at t = 2, then begins the next.
        assert second.start.tolist() == [0, 1, 2]
        assert second.observation.tolist() == [[3], [1]]
        assert second.reward.tolist() == [1.0, 0.5]
        assert (second.t.tolist(), second.dt.tolist()) == ([2, 0], [2, 2])
        assert second.episode.tolist() == [0, 1]
        assert second.tail.tolist() == [SegmentEnd.TERMINATED, SegmentEnd.CUT]
        assert second.bootstrap_observation.tolist() == [[5], [3]]
        assert second.action.tolist() == [1, 1]
        assert second.version_lo.tolist() == [4, 4]

    def test_a_decision_that_waits_off_turn_is_the_tail_and_carries_on(self):
        # Two environments: in the second one, TRUNCATED_OFF_TURN, player 0 decides at t = 0 and waits at t = 1.
        worker = worker_of([ENDS_OFF_TURN, TRUNCATED_OFF_TURN], 2, {ME: FixedPolicy.of(0), OTHER: FixedPolicy.of(0)})
        first = worker.run(request_of(2, unit="decisions")).trajectories
        # Step 2: environment 0 is due with observation 3; environment 1 was truncated and is due again.
        assert first.episode.tolist() == [0, 1]
        assert first.tail.tolist() == [SegmentEnd.CUT, SegmentEnd.TRUNCATED]
        newer = PolicyRef(0, "me", 4)
        worker.bank.load([(newer, FixedPolicy.of(1)), (OTHER, FixedPolicy.of(0))])
        second = worker.run(request_of(1, unit="decisions", learner=newer, carry_on=True)).trajectories
        # Both decide at step 2; both end at step 4: environment 0's second and environment 1's only decision of their episodes.
        assert second.observation.tolist() == [[3], [1]]
        assert second.reward.tolist() == [1.0, 0.25]
        third_ref = PolicyRef(0, "me", 5)
        worker.bank.load([(third_ref, FixedPolicy.of(0)), (OTHER, FixedPolicy.of(0))])
        third = worker.run(request_of(1, unit="decisions", learner=third_ref, carry_on=True)).trajectories
        assert third.version_lo.tolist() == [5, 5]

    def test_carried_rows_keep_the_version_that_acted(self):
        # Player 0 moves once, then player 1 three times: player 0's decision is carried over a fragment of another environment.
        slow = Script(
            player=(0, 1),
            frames=(
                Frame(due=((0, 1, 0),)),
                Frame(due=((1, 2, 0),)),
                Frame(due=((1, 2, 0),)),
                Frame(due=((0, 3, 0.75),)),
                Frame(ended=((0, 0.25, 9), (1, 0.0, 9))),
            ),
            returns=(1.0, 0.0),
        )
        fast = Script(
            player=(0, 1),
            frames=(Frame(due=((0, 5, 0),)), Frame(ended=((0, 0.5, 9),))),
            returns=(0.5, 0.0),
        )
        worker = worker_of([slow, fast], 2, {ME: FixedPolicy.of(1, logp=-1), OTHER: FixedPolicy.of(0)})
        first = worker.run(request_of(1, unit="decisions")).trajectories
        assert (first.observation.tolist(), first.episode.tolist()) == ([[5]], [1])
        newer = PolicyRef(0, "me", 7)
        worker.bank.load([(newer, FixedPolicy.of(0, logp=-2)), (OTHER, FixedPolicy.of(0))])
        second = worker.run(request_of(5, unit="decisions", learner=newer, carry_on=True)).trajectories
        carried = second.episode.tolist().index(0)
        rows = slice(second.start[carried], second.start[carried + 1])
        assert second.observation[rows].tolist() == [[1], [3]]
        assert second.action[rows].tolist() == [1, 0]
        assert second.logp[rows].tolist() == [-1, -2]
        assert second.reward[rows].tolist() == [0.75, 0.25]
        assert (second.version_lo[carried], second.version_hi[carried]) == (3, 7)
        others = np.delete(np.arange(second.num_segments), carried)
        assert (second.version_lo[others] == 7).all()

    def test_every_decision_comes_out_exactly_once(self):
        rollouts = self.fragments(1, 1, 2, 3, 1)
        stream = [
            tuple(row)
            for r in rollouts
            for row in zip(r.trajectories.t.tolist(), r.trajectories.reward.tolist(), strict=True)
        ]
        assert stream == [(0, 0.5), (2, 1.0)] * (len(stream) // 2)


class TestTeam:
    def test_an_agent_that_dies_early_gets_its_teams_reward(self):
        rollout = play([TEAM], 1, request_of(1))
        got = rollout.trajectories
        assert got.agent.tolist() == [0, 1]
        assert got.start.tolist() == [0, 3, 4]
        assert got.observation.tolist() == [[10], [20], [30], [11]]
        assert got.reward.tolist() == [0, 1, 2, 3]
        assert (got.t.tolist(), got.dt.tolist()) == ([0, 1, 2, 0], [1, 1, 1, 3])
        assert got.bootstrap_observation.tolist() == [[40], [41]]
        assert rollout.counters["learner_decisions"] == 4

    def test_joint_view(self):
        env = ScriptedEnv([TEAM], 1)
        got = joint(play([TEAM], 1, request_of(2)).trajectories, env.spec, player=0)
        assert got.start.tolist() == [0, 3, 6]
        assert got.episode.tolist() == [0, 0, 0, 1, 1, 1]
        assert got.t.tolist() == [0, 1, 2, 0, 1, 2]
        assert got.present.tolist() == [[True, True], [True, False], [True, False]] * 2
        assert got.observation[:3, :, 0].tolist() == [[10, 11], [20, 0], [30, 0]]
        assert got.reward[:3].tolist() == [[0, 3], [1, 0], [2, 0]]
        assert got.tail.tolist() == [[0, 0], [0, 0]]
        assert got.bootstrap_observation[1, :, 0].tolist() == [40, 41]

    def test_opponents_are_bound_to_every_agent_of_their_player(self):
        rollout = play([TEAM], 2, request_of(2, seat=1))
        assert rollout.trajectories.observation.tolist() == [[12], [32], [12], [32]]
        assert rollout.trajectories.agent.tolist() == [2, 2]


class TestRecurrent:
    def test_memory_counts_within_an_episode_and_starts_at_zero(self):
        got = play([ENDS_OFF_TURN], 1, request_of(2), me=CountingPolicy()).trajectories
        assert got.action.tolist() == [0, 1, 0, 1]
        assert got.memory0.tolist() == [[0], [0]]

    def test_a_fragment_stores_the_memory_that_it_begins_with(self):
        worker = worker_of([ENDS_OFF_TURN], 1, {ME: CountingPolicy(), OTHER: FixedPolicy.of(0)})
        first = worker.run(request_of(1, unit="decisions")).trajectories
        newer = PolicyRef(0, "me", 4)
        worker.bank.load([(newer, CountingPolicy()), (OTHER, FixedPolicy.of(0))])
        second = worker.run(request_of(2, unit="decisions", learner=newer, carry_on=True)).trajectories
        assert first.memory0.tolist() == [[0]]
        assert second.memory0.tolist() == [[1], [0]]
        assert second.action.tolist() == [1, 0]


class TestOpponents:
    def acted(self, worker: RolloutWorker, request: RolloutRequest) -> list[tuple[int, int, int]]:
        """(environment, episode within it, action) of player 1's decisions, as the environment received them."""
        env, log = worker.env, []
        count = np.zeros(env.num_envs, int)
        reset, step = env.reset, env.step
        last = {}

        def spy_reset(*args, **kwargs):
            last["due"] = (timestep := reset(*args, **kwargs)).due
            return timestep

        def spy_step(actions):
            slots = last["due"][1].slot
            log.extend(zip(slots.tolist(), count[slots].tolist(), actions[1].tolist(), strict=True))
            timestep = step(actions)
            count[timestep.finished.environment] += 1
            last["due"] = timestep.due
            return timestep

        env.reset, env.step = spy_reset, spy_step
        worker.run(request)
        return log

    def two(self, num_envs: int) -> tuple[RolloutWorker, RolloutRequest]:
        a, b = PolicyRef(1, "a"), PolicyRef(1, "b")
        worker = worker_of(
            [ENDS_OFF_TURN], num_envs, {ME: FixedPolicy.of(0), a: FixedPolicy.of(0), b: FixedPolicy.of(1)}
        )
        mixture = Mixture.product({1: ([a, b], [0.5, 0.5])})
        return worker, RolloutRequest(ME, (0,), mixture, "episodes", 16 * num_envs, seed=5)

    def test_a_draw_stays_for_the_whole_episode(self):
        worker, request = self.two(4)
        log = self.acted(worker, request)
        by_episode: dict[tuple[int, int], set[int]] = {}
        for env, episode, action in log:
            by_episode.setdefault((env, episode), set()).add(action)
        assert len(by_episode) == 64
        assert all(len(actions) == 1 for actions in by_episode.values())
        assert {next(iter(actions)) for actions in by_episode.values()} == {0, 1}

    def test_draws_do_not_depend_on_the_number_of_environments(self):
        few = dict(((e, k), a) for e, k, a in self.acted(*self.two(2)))
        many = dict(((e, k), a) for e, k, a in self.acted(*self.two(7)))
        assert all(many[key] == action for key, action in few.items())

    def test_the_entry_that_is_recorded_is_the_one_that_played(self):
        worker, request = self.two(3)
        log = {(e, k): a for e, k, a in self.acted(worker, request)}
        got = worker.run(request).episodes
        assert [log[int(i) % 3, int(i) // 3] for i in got.index] == got.entry[:, 0].tolist()

    def test_opponents_of_one_architecture_are_one_call(self):
        worker, request = self.two(4)
        StackedFixed.calls = 0
        rollout = worker.run(request)
        assert 0 < StackedFixed.calls <= 2 * 4 * 16  # one for each of the 64 steps, at most, not one for each policy
        assert rollout.counters["decisions"] == 4 * 64

    def test_joint_draws_come_from_one_entry(self):
        three = Script(
            player=(0, 1, 2),
            frames=(Frame(due=((0, 1, 0), (1, 1, 0), (2, 1, 0))), Frame(ended=((0, 0, 0), (1, 0, 0), (2, 0, 0)))),
            returns=(0.0, 0.0, 0.0),
        )
        a, b = PolicyRef(1, "a"), PolicyRef(1, "b")
        worker = worker_of([three], 2, {ME: FixedPolicy.of(0), a: FixedPolicy.of(0), b: FixedPolicy.of(1)})
        from ludus.core.types import OpponentFactor

        mixture = Mixture((OpponentFactor((1, 2), ((a, b), (b, a)), (0.5, 0.5)),))
        seen = set()
        step = worker.env.step

        def spy(actions):
            seen.update(zip(actions[1].tolist(), actions[2].tolist(), strict=True))
            return step(actions)

        worker.env.step = spy
        worker.run(RolloutRequest(ME, (0,), mixture, "episodes", 64, seed=2))
        assert seen == {(0, 1), (1, 0)}

    def test_a_live_opponent_plays_its_newest_weights_from_the_next_episode_on(self):
        live = PolicyRef(1, "live", None)
        worker = worker_of([ENDS_OFF_TURN], 1, {ME: FixedPolicy.of(0), live: FixedPolicy.of(0)})
        request = request_of(1, unit="decisions", other=live)
        actions = []
        step = worker.env.step

        def spy(given):
            actions.extend(given[1].tolist())
            return step(given)

        worker.env.step = spy
        worker.run(request)  # the episode goes on: player 1 has moved once
        worker.bank.load([(ME, FixedPolicy.of(0)), (live, FixedPolicy.of(1))])
        worker.run(request_of(3, unit="decisions", other=live, carry_on=True))
        # Its open episode ends with the weights that were drawn for it (0, 0); the next one has the new weights.
        assert actions[:4] == [0, 0, 1, 1]

    def test_the_learner_always_plays_itself_and_seats_rotate(self):
        env = ScriptedEnv([ENDS_OFF_TURN], 4)
        bank = LocalBank(env.spec, 4)
        bank.load([(ME, FixedPolicy.of(1)), (OTHER, FixedPolicy.of(0))])
        mixture = Mixture.product({0: ([OTHER], [1.0]), 1: ([OTHER], [1.0])})
        got = RolloutWorker(env, bank).run(RolloutRequest(ME, (0, 1), mixture, "episodes", 8, seed=1))
        assert got.episodes.seat.tolist() == [0, 1, 0, 1, 0, 1, 0, 1]
        assert got.episodes.entry.tolist() == [[-1, 0], [0, -1]] * 4
        assert got.trajectories.action.tolist() == [1] * 16
        assert sorted(got.trajectories.seat.tolist()) == [0] * 4 + [1] * 4


class TestExtrasAndErrors:
    def test_extras_are_recorded_in_the_order_of_rows(self):
        got = play([ENDS_OFF_TURN], 2, request_of(2, extras=("seen",))).trajectories
        assert got.extras["seen"].tolist() == got.observation[:, 0].tolist() == [1, 3, 1, 3]

    def test_an_extra_that_the_policy_does_not_give(self):
        with pytest.raises(PolicyError, match="'value'"):
            play([ENDS_OFF_TURN], 1, request_of(1, extras=("value",)))

    def test_an_evaluation_has_no_trajectories(self):
        mixture = Mixture.product({0: ([ME], [1.0]), 1: ([OTHER], [1.0])})
        got = play([ENDS_OFF_TURN], 2, RolloutRequest(None, (), mixture, "episodes", 3, seed=1))
        assert got.trajectories is None
        assert got.episodes.returns.tolist() == [[1.5, -1.5]] * 3
        assert got.episodes.seat.tolist() == [-1] * 3
        assert got.episodes.entry.tolist() == [[0, 0]] * 3

    def test_an_environment_that_forgets_an_open_decision(self):
        forgetful = Script(player=(0, 1), frames=(Frame(due=((0, 1, 0),)), Frame()), returns=(0.0, 0.0))
        with pytest.raises(EnvError, match="open decision"):
            play([forgetful], 1, request_of(2))

    def test_a_learner_that_is_never_due(self):
        frames = (Frame(due=((1, 1, 0),)), Frame(ended=((1, 0, 0),)))
        idle = Script(player=(0, 1), frames=frames, returns=(0.0, 0.0))
        with pytest.raises(EnvError, match="without a decision of the learner"):
            play([idle], 1, request_of(1, unit="decisions"))

    def test_seats_without_opponents(self):
        request = RolloutRequest(ME, (0,), Mixture(()), "episodes", 1, seed=1)
        with pytest.raises(ScenarioError, match=r"seats \[1\]"):
            play([ENDS_OFF_TURN], 1, request)

    def test_probabilities_that_do_not_sum_to_one(self):
        mixture = Mixture.product({1: ([OTHER], [0.9])})
        with pytest.raises(ScenarioError, match="sum to 1"):
            play([ENDS_OFF_TURN], 1, RolloutRequest(ME, (0,), mixture, "episodes", 1, seed=1))

    def test_a_policy_that_is_not_loaded(self):
        with pytest.raises(PolicyError, match="'stranger'"):
            play([ENDS_OFF_TURN], 1, request_of(1, other=PolicyRef(1, "stranger")))


class TestWorkersAreUsedAgain:
    def test_masks_of_an_earlier_learner_are_forgotten(self):
        """Player 0's actions are masked, player 1's never are: the second request's decisions have no masks."""

        class HalfMasked(ScriptedEnv):
            def _timestep(self, finished):
                timestep = super()._timestep(finished)
                due, ended = timestep.due, timestep.ended
                return timestep._replace(
                    due=(due[0], due[1]._replace(mask=None)), ended=(ended[0], ended[1]._replace(mask=None))
                )

        env = HalfMasked([TRUNCATED_OFF_TURN], 1)
        bank = LocalBank(env.spec, 1)
        bank.load([(ME, FixedPolicy.of(1)), (OTHER, FixedPolicy.of(0))])
        worker = RolloutWorker(env, bank)
        first, second = (worker.run(request_of(2, seat=seat)).trajectories for seat in (0, 1))
        assert first.mask.tolist() == first.bootstrap_mask.tolist() == [[True, True]] * 2
        assert second.mask is None
        assert second.bootstrap_mask is None

    @pytest.mark.parametrize("seat", [0, 1])
    def test_players_may_see_observations_of_different_shapes(self, seat):
        class Wide(ScriptedEnv):
            """Player 1 sees every number twice."""

            def _timestep(self, finished):
                timestep = super()._timestep(finished)
                due, ended = (
                    (one, other._replace(observation=np.repeat(other.observation, 2, axis=1)))
                    for one, other in (timestep.due, timestep.ended)
                )
                return timestep._replace(due=due, ended=ended)

        env = Wide([TRUNCATED_OFF_TURN], 1)
        bank = LocalBank(env.spec, 1)
        bank.load([(ME, FixedPolicy.of(1)), (OTHER, FixedPolicy.of(0))])
        got = RolloutWorker(env, bank).run(request_of(2, seat=seat)).trajectories
        assert got.observation.tolist() == [[[1], [1]], [[2, 2], [2, 2]]][seat]
        assert got.bootstrap_observation.tolist() == [[[7], [7]], [[8, 8], [8, 8]]][seat]
