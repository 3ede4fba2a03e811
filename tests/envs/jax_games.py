"""A functional environment that can be worked out by hand, and vectors in lockstep: on the host and on a device."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from gymnasium import spaces

from ludus.contrib.envs.functional.game import AgentViews, Program, StepOutcome
from ludus.contrib.envs.functional.vector import JaxVectorEnv, no_actions
from ludus.core.types import Array
from ludus.envs.adapters.agent_seats import Sides
from ludus.envs.base import VectorEnv
from ludus.envs.spaces import Choices
from ludus.testing.device_env import CopiedEnv
from ludus.testing.env import check_spec


class Relay:
    """Agents a_0 and a_1 act in each step, b_0 in each second one. a_1 is out after its second step. Each step pays its number to the
    a's, and ten times b_0's action to b_0. The seventh step ends an episode; the fifth does in which b_0 has last chosen 1 (truncated).
    Agents see the step, a draw of the episode and a draw of the step; b_0 sees only the step."""

    id = "toy/relay"
    masked = True
    state = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self) -> None:
        wide = spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.spaces = {
            "a_0": (wide, spaces.Discrete(3)),
            "b_0": (spaces.Box(-np.inf, np.inf, (1,), np.float32), spaces.Discrete(2)),
            "a_1": (wide, spaces.Discrete(2)),
        }

    def init(self, key: Any) -> tuple[Any, AgentViews]:
        state = {"step": jnp.int32(0), "draw": jax.random.uniform(key), "chosen": jnp.int32(0)}
        return state, self._seen(state, jnp.float32(0))

    def step(self, state: Any, actions: tuple[Any, ...], key: Any) -> tuple[Any, AgentViews, StepOutcome]:
        step = state["step"] + 1
        chosen = jnp.where(state["step"] % 2 == 0, actions[1], state["chosen"])
        state = {"step": step, "draw": state["draw"], "chosen": chosen}
        reward = jnp.stack([step, 10 * chosen, step]).astype(jnp.float32)
        ended = StepOutcome(reward, step == 7, (step == 5) & (chosen == 1))
        return state, self._seen(state, jax.random.uniform(key)), ended

    def final(self, state: Any, seen: AgentViews) -> tuple[Any, ...]:
        return (*seen.observation[:2], seen.observation[2] + 100.0)

    def _seen(self, state: Any, noise: Any) -> AgentViews:
        step, out = state["step"], state["step"] >= 2
        row = jnp.stack([step.astype(jnp.float32), state["draw"], noise])
        due = jnp.stack([jnp.bool_(True), step % 2 == 0, ~out])
        mask = (jnp.array([True, True, False]), jnp.ones(2, bool), jnp.array([True, False]))
        return AgentViews((row, row[:1], row), mask, due, row[:1])


_program: list[Program] = []


def relay(num_envs: int) -> JaxVectorEnv:
    """Two players: the a's, and b_0. Compiled once for each number of environments."""
    if not _program:
        _program.append(Program(Relay(), Sides(teams="prefix", state=True)))
    return JaxVectorEnv(_program[0], num_envs)


def check_form(env: VectorEnv) -> None:
    """What its two functions give has the shapes and dtypes that its spec announces, and a step's is the next one's: as JAX traces them,
    which compiles nothing."""
    assert isinstance(env, JaxVectorEnv)
    check_spec(env.spec)
    program, num_envs = env._program, env.num_envs
    begun = jax.eval_shape(program.begin, jax.ShapeDtypeStruct((num_envs, 2), np.uint32))
    actions = tuple(no_actions(env.spec.agents_of(p)[0].action, num_envs, n) for p, n in enumerate(program.agents))
    stepped = jax.eval_shape(program.step, begun[0], actions)
    forms = [[(leaf.shape, leaf.dtype) for leaf in jax.tree.leaves(each)] for each in (begun, stepped)]
    assert forms[0] == forms[1]
    shown = stepped[1]
    for p, n in enumerate(program.agents):
        agent, rows = env.spec.agents_of(p)[0], num_envs * n
        for seen in (shown.observation[p], shown.final[p]):
            assert (seen.shape, seen.dtype) == ((rows, *agent.observation.shape), agent.observation.dtype)
        assert (shown.reward[p].shape, shown.reward[p].dtype, shown.due[p].shape) == ((rows,), np.float32, (rows,))
        assert (shown.mask[p] is not None) == program.masked[p]
        if shown.mask[p] is not None:
            choices = Choices.of(agent.action)
            assert choices is not None
            assert (shown.mask[p].shape, shown.mask[p].dtype) == ((rows, choices.width), np.bool_)
    assert (shown.over.shape, shown.over.dtype) == ((num_envs,), np.uint8)


def check_on_a_device(host: JaxVectorEnv, device: str, *, steps: int, episodes: int | None = None) -> int:
    """The vector on a device gives what the one on the host does, step by step. Answers how many episodes ended."""
    env, other = host.on_device(torch.device(device), num_envs=host.num_envs), CopiedEnv(host)
    found, wanted, finished = env.reset(7, episodes=episodes), other.reset(7, episodes=episodes), 0
    opened = [torch.zeros_like(slots.due) for slots in wanted.slots]
    rng = np.random.default_rng(0)
    for _ in range(steps):
        assert found.over.cpu().equal(wanted.over)
        for field in ("returns", "terminated", "length"):
            torch.testing.assert_close(getattr(found, field).cpu()[wanted.over], getattr(wanted, field)[wanted.over])
        if wanted.state is not None:
            assert found.state is not None
            torch.testing.assert_close(found.state.cpu(), wanted.state)
            assert found.final_state is not None
            assert wanted.final_state is not None
            torch.testing.assert_close(found.final_state.cpu()[wanted.over], wanted.final_state[wanted.over])
        for p, (given, theirs) in enumerate(zip(found.slots, wanted.slots, strict=True)):
            ours = type(given)(*(None if x is None else x.cpu() for x in given))
            assert ours.due.equal(theirs.due)
            closed = theirs.ended & opened[p]
            assert (ours.ended & opened[p]).equal(closed)
            torch.testing.assert_close(ours.observation[ours.due], theirs.observation[ours.due])
            if theirs.mask is not None:
                assert ours.mask is not None
                assert ours.mask[ours.due].equal(theirs.mask[ours.due])
            paid = closed | (ours.due & opened[p] & ~wanted.over[:, None])
            torch.testing.assert_close(ours.reward[paid], theirs.reward[paid])
            assert ours.terminated[closed].equal(theirs.terminated[closed])
            assert ours.final is not None
            assert theirs.final is not None
            torch.testing.assert_close(ours.final[closed], theirs.final[closed])
            opened[p] = (opened[p] & ~wanted.over[:, None]) | theirs.due
        finished += int(wanted.over.sum())
        actions = tuple(legal(host, p, slots.mask, rng) for p, slots in enumerate(wanted.slots))
        found = env.step(tuple(torch.from_numpy(a).to(device) for a in actions))
        wanted = other.step(tuple(torch.from_numpy(a) for a in actions))
    return finished


def legal(env: JaxVectorEnv, player: int, mask: Any, rng: np.random.Generator) -> Array:
    """[E, n, …]"""
    agents = env.spec.agents_of(player)
    space, shape = agents[0].action, (env.num_envs, len(agents))
    if mask is not None:
        noise = rng.random(mask.shape)
        return np.asarray((noise * mask.numpy()).argmax(axis=-1))
    if isinstance(space, spaces.Discrete):
        return rng.integers(0, int(space.n), shape)
    assert isinstance(space, spaces.Box)
    low, high = np.maximum(space.low, -1), np.minimum(space.high, 1)
    return (low + rng.random((*shape, *space.shape)) * (high - low)).astype(np.float32)
