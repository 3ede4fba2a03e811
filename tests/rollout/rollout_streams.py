"""Environments that follow a written stream of events, for the rollout loop's clocks, memories and columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gymnasium.spaces import Box, Discrete, Space

from ludus.core.types import ActionRequests, AgentSpec, ClosedDecisions, EnvSpec, FinishedEpisodes, Timestep


class StreamEnv:
    """Environment e repeats streams[e], one letter a step, whatever the actions are; all players act at once.

    d: a decision is due. `.`: nothing (it is still at work). e: the episode ends, and the next one begins at a later letter. E: it ends,
    and the next one's first decision is due in the same step. Steps in which no environment has anything due are passed over, as the
    contract asks. An observation is made by `observe` from (environment, time in the episode).
    """

    def __init__(
        self,
        streams: Sequence[str],
        *,
        players: int = 1,
        actions: Sequence[Space] = (Discrete(2),),
        shape: tuple[int, ...] = (2,),
        dtype: type = np.float32,
    ) -> None:
        self.num_envs = len(streams)
        self.streams = [list(stream) for stream in streams]
        self.given: list[
            tuple
        ] = []  # per step: the environments that were due, their times, and the actions of each player
        space = Box(0, 255, shape, dtype)
        self.spec = EnvSpec(
            id="streams",
            agents=tuple(AgentSpec(f"agent_{p}", p, space, actions[p % len(actions)]) for p in range(players)),
            utility_range=((-np.inf, np.inf),) * players,
            symmetry=tuple((p,) for p in range(players)),
        )

    def observe(self, environment: int, time: int) -> np.ndarray:
        box = self.spec.agents[0].observation
        out = np.zeros(box.shape, box.dtype).ravel()
        out[:2] = environment, time
        return out.reshape(box.shape)

    def reset(self, seeds, *, episodes=None) -> Timestep:
        self.left = np.broadcast_to(np.asarray(-1 if episodes is None else episodes), self.num_envs).copy()
        self.at = [-1] * self.num_envs
        self.time = [0] * self.num_envs  # decisions so far in the episode
        return self._advance()

    def step(self, actions) -> Timestep:
        self.given.append((*self.last, tuple(np.array(action) for action in actions)))
        return self._advance()

    def close(self) -> None:
        pass

    def _advance(self) -> Timestep:
        due: list[tuple[int, int]] = []
        ended: list[tuple[int, int]] = []
        while not due and (self.left != 0).any():
            for e, stream in enumerate(self.streams):
                if not self.left[e]:
                    continue
                self.at[e] = (self.at[e] + 1) % len(stream)
                letter = stream[self.at[e]]
                if letter in "eE":
                    ended.append((e, self.time[e]))
                    self.left[e] -= 1
                    self.time[e] = 0
                if letter in "dE" and self.left[e]:
                    due.append((e, self.time[e]))
                    self.time[e] += 1
        self.last = [e for e, _ in due], [t for _, t in due]
        players = range(self.spec.num_players)
        box = self.spec.agents[0].observation
        slots = np.array(self.last[0], np.int32)
        times = np.array(self.last[1])
        seen = np.array([self.observe(e, t) for e, t in due], box.dtype).reshape(-1, *box.shape)
        ends = np.array([e for e, _ in ended], np.int32)
        last = np.array([self.observe(e, t) for e, t in ended], box.dtype).reshape(-1, *box.shape)
        k = len(ended)
        return Timestep(
            tuple(ActionRequests(slots, seen, None, (times > 0).astype(np.float32), times == 0) for _ in players),
            tuple(ClosedDecisions(ends, np.ones(k, np.float32), np.ones(k, np.bool_), last) for _ in players),
            FinishedEpisodes(
                ends,
                np.array([[float(t)] * len(players) for _, t in ended]).reshape(-1, len(players)),
                np.ones(k, np.bool_),
                np.array([t for _, t in ended], np.int32),
            ),
        )
