"""Connect four by PPO in self-play in the manner of PureJaxRL: all of a training is one function that JAX compiles.

Pgx's environments, each of which begins anew when its game is over; one network that moves for both players; a scan over steps collects, a
scan backwards estimates advantages, two scans are the epochs and their minibatches, and one more repeats it all. Nothing leaves the device
before the end.

Players alternate, and what one wins the other loses: values and advantages of the next position change their sign. (Ludus estimates each
player's from its own positions.) `tests/benchmarks/test_pgx_self_play.py` has how often it wins against random play.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.linen.initializers import orthogonal

from benchmarks.peers.training import Setting

ACTIONS, LONGEST = 7, 42
_NEVER = -1e9  # logit of an illegal move


class Network(nn.Module):
    """One trunk, and two heads: logits [n, 7] and values [n] of boards bool[n, 6, 7, 2], for who is to move."""

    hidden: Sequence[int]

    @nn.compact
    def __call__(self, board: Any, legal: Any) -> tuple[Any, Any]:
        x = board.reshape(len(board), -1).astype(jnp.float32)
        for width in self.hidden:
            x = nn.relu(nn.Dense(width, kernel_init=orthogonal(2**0.5))(x))
        logits = nn.Dense(ACTIONS, kernel_init=orthogonal(0.01))(x)
        value = nn.Dense(1, kernel_init=orthogonal(1.0))(x)[:, 0]
        return jnp.where(legal, logits, _NEVER), value


class Rows(NamedTuple):
    """Moves [T, E, …]. reward: of who moved. over: whether the game ended with it."""

    board: Any
    legal: Any
    action: Any
    logp: Any
    value: Any
    reward: Any
    over: Any


def advantages(reward: Any, over: Any, value: Any, after: Any, *, gamma: float, gae_lambda: float) -> Any:
    """Generalised advantage estimation where two players alternate, float[T, E]. value: for who moves; after: float[E], for who would be
    next. Rewards sum to 0."""

    def back(later: tuple[Any, Any], now: tuple[Any, Any, Any]) -> tuple[tuple[Any, Any], Any]:
        advantage, following = later
        earned, end, here = now
        surprise = earned - gamma * (1 - end) * following - here
        advantage = surprise - gamma * gae_lambda * (1 - end) * advantage
        return (advantage, here), advantage

    rows = (reward, over.astype(reward.dtype), value)
    return jax.lax.scan(back, (jnp.zeros_like(after), after), rows, reverse=True, unroll=16)[1]


def make_train(setting: Setting, *, iterations: int) -> Callable[[Any], Any]:
    """A function of a key, which returns the network's parameters after so many iterations."""
    import pgx
    from pgx.experimental import auto_reset

    game, network = pgx.make("connect_four"), Network(setting.hidden)
    step = jax.vmap(auto_reset(game.step, game.init))
    optimiser = optax.chain(
        optax.clip_by_global_norm(setting.max_gradient_norm), optax.adam(setting.learning_rate, eps=1e-5)
    )

    def move(state: Any, key: Any, params: Any) -> tuple[Any, Rows]:
        own, rest = jax.random.split(key)
        logits, value = network.apply(params, state.observation, state.legal_action_mask)
        action = jax.random.categorical(own, logits)
        after = step(state, action, jax.random.split(rest, setting.environments))
        reward = jnp.take_along_axis(after.rewards, state.current_player[:, None], axis=1)[:, 0]
        rows = Rows(
            state.observation,
            state.legal_action_mask,
            action,
            _of_action(jax.nn.log_softmax(logits), action),
            value,
            reward,
            after.terminated,
        )
        return after, rows

    def loss(params: Any, rows: Rows, advantage: Any, target: Any) -> Any:
        logits, value = network.apply(params, rows.board, rows.legal)
        logp = jax.nn.log_softmax(logits)
        ratio = jnp.exp(_of_action(logp, rows.action) - rows.logp)
        near = jnp.clip(ratio, 1 - setting.clip, 1 + setting.clip)
        policy = -jnp.minimum(ratio * advantage, near * advantage).mean()
        entropy = -(jnp.exp(logp) * logp).sum(axis=1).mean()
        squares = 0.5 * jnp.square(value - target).mean()
        return policy + setting.value_coefficient * squares - setting.entropy * entropy

    def learn(carry: Any, part: Any) -> tuple[Any, None]:
        params, memory = carry
        change, memory = optimiser.update(jax.grad(loss)(params, *part), memory)
        return (optax.apply_updates(params, change), memory), None

    def iterate(carry: Any, key: Any) -> tuple[Any, None]:
        params, memory, state = carry
        playing, learning = jax.random.split(key)
        keys = jax.random.split(playing, setting.steps)
        state, rows = jax.lax.scan(lambda before, key: move(before, key, params), state, keys)
        after = network.apply(params, state.observation, state.legal_action_mask)[1]
        advantage = advantages(
            rows.reward, rows.over, rows.value, after, gamma=setting.gamma, gae_lambda=setting.gae_lambda
        )
        target = advantage + rows.value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        batch = jax.tree.map(lambda x: x.reshape(setting.batch, *x.shape[2:]), (rows, advantage, target))

        def epoch(carry: Any, key: Any) -> tuple[Any, None]:
            order = jax.random.permutation(key, setting.batch).reshape(setting.minibatches, -1)
            return jax.lax.scan(lambda now, part: learn(now, jax.tree.map(lambda x: x[part], batch)), carry, order)

        (params, memory), _ = jax.lax.scan(epoch, (params, memory), jax.random.split(learning, setting.epochs))
        return (params, memory, state), None

    def train(key: Any) -> Any:
        first, beginning, rest = jax.random.split(key, 3)
        state = jax.vmap(game.init)(jax.random.split(beginning, setting.environments))
        params = network.init(first, state.observation, state.legal_action_mask)
        carry = (params, optimiser.init(params), state)
        return jax.lax.scan(iterate, carry, jax.random.split(rest, iterations))[0][0]

    return train


def _of_action(logp: Any, action: Any) -> Any:
    return jnp.take_along_axis(logp, action[:, None], axis=1)[:, 0]


def shares_won(setting: Setting, params: Any, key: Any, *, games: int) -> tuple[float, float]:
    """The shares of games that the network wins against random play when it begins, and when it does not. It draws its moves."""
    import pgx

    game, network = pgx.make("connect_four"), Network(setting.hidden)

    def move(state: Any, key: Any) -> tuple[Any, Any]:
        own, theirs = jax.random.split(key)
        logits, _ = network.apply(params, state.observation, state.legal_action_mask)
        anything = jnp.where(state.legal_action_mask, 0.0, _NEVER)
        ours = state.current_player == 0
        action = jnp.where(ours, jax.random.categorical(own, logits), jax.random.categorical(theirs, anything))
        after = jax.vmap(game.step)(state, action)
        return after, after.rewards[:, 0]

    @jax.jit
    def play(key: Any) -> tuple[Any, Any]:
        first, rest = jax.random.split(key)
        state = jax.vmap(game.init)(jax.random.split(first, games))
        won = jax.lax.scan(move, state, jax.random.split(rest, LONGEST))[1].sum(axis=0) > 0
        begins = state.current_player == 0
        return (won & begins).sum() / begins.sum(), (won & ~begins).sum() / (~begins).sum()

    begun, answered = play(key)
    return float(begun), float(answered)
