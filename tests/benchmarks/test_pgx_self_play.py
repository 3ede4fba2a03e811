"""Connect four in the manner of PureJaxRL: it is what Ludus is measured by, so it must learn, and by as much work."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
for package in ("pgx", "flax", "optax"):
    pytest.importorskip(package)

from benchmarks.gpu_jax import FOUR, FOUR_SMALL, self_play  # noqa: E402
from benchmarks.gpu_options import Options  # noqa: E402
from benchmarks.peers.pgx_self_play import Network, advantages, make_train, shares_won  # noqa: E402
from ludus.algorithms.ppo.config import PPO  # noqa: E402
from ludus.policies.actor_critic import layouts  # noqa: E402


def test_what_a_player_wins_the_other_loses() -> None:
    """By hand, from the end: the third move wins, where 0.5 was expected: 1 - 0.5 = 0.5. The second: the next position is worth 0.5 to the
    other, so -0.5 - 0.2 = -0.7, less half of 0.5: -0.95. The first: -0.2 - 0.1 = -0.3, less half of -0.95: 0.175. The fourth is of the next
    game, and 0.4 is expected of whoever is next: -0.4 - 0 = -0.4."""
    reward, value = (
        np.array([[0.0], [0.0], [1.0], [0.0]], np.float32),
        np.array([[0.1], [0.2], [0.5], [0.0]], np.float32),
    )
    over, after = np.array([[False], [False], [True], [False]]), np.array([0.4], np.float32)
    found = advantages(reward, over, value, after, gamma=1.0, gae_lambda=0.5)
    np.testing.assert_allclose(found[:, 0], [0.175, -0.95, 0.5, -0.4], rtol=1e-5)
    shorter = advantages(reward, over, value, after, gamma=0.5, gae_lambda=0.0)  # the next value alone, and half of it
    np.testing.assert_allclose(shorter[:, 0], [-0.2, -0.45, 0.5, -0.2], rtol=1e-5)


def test_both_have_the_same_networks_and_batches() -> None:
    """By hand: (84 + 1) 128 + 129 128 + 129 (7 + 1) = 28424."""
    scenario = self_play(FOUR, Options("cpu", 0, quick=True), 3 * FOUR.batch)
    ppo, env = scenario.algorithm, scenario.env
    assert isinstance(ppo, PPO)
    assert (ppo.batch, ppo.batch_unit, ppo.epochs, ppo.minibatches) == (131_072, "decisions", 4, 16)
    assert env.num_envs == FOUR.environments
    spec = ppo.policy(env.make(num_envs=1).spec, (0, 1))
    boards = jax.ShapeDtypeStruct((2, 6, 7, 2), bool), jax.ShapeDtypeStruct((2, 7), bool)
    parameters = jax.eval_shape(Network(FOUR.hidden).init, jax.random.PRNGKey(0), *boards)
    assert sum(layout.size for layout in layouts(spec).values()) == 28_424
    assert sum(leaf.size for leaf in jax.tree.leaves(parameters)) == 28_424


@pytest.mark.slow
def test_it_learns_to_win_whoever_begins() -> None:
    """After 204,800 steps. By hand, with three keys on a CPU: it won 87, 92 and 89% of games when it began, and 79, 88 and 83% when it did
    not; before, 56 and 43%."""
    key = jax.random.PRNGKey(1)
    fresh, learned = (jax.jit(make_train(FOUR_SMALL, iterations=many))(key) for many in (0, 100))
    begun, answered = shares_won(FOUR_SMALL, learned, key, games=1000)
    assert (begun + answered) / 2 > 0.75
    assert answered > 0.65
    assert max(shares_won(FOUR_SMALL, fresh, key, games=1000)) < 0.65
