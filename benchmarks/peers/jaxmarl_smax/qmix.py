"""JaxMARL's QMIX with its own settings on a map of SMAX, and how many battles its team wins that training never saw.

python -m benchmarks.peers.jaxmarl_smax.qmix --map 3m --steps 400000

Its baselines/QLearning/qmix_rnn.py (a recurrent network, one for all units) with config/alg/ql_rnn_smax.yaml, without its tests while
it trains; the environments are those of the wheel that Ludus has. It is compiled before the clock starts. Battles are played greedily.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import yaml

from benchmarks.lines import Lines
from benchmarks.peers.jaxmarl_smax.run import BASELINES, BATTLES, PACKAGES, arguments, load, share_won

SOURCE = BASELINES / "QLearning"


def settings(name: str, *, steps: int, seed: int) -> dict[str, Any]:
    """What its main reads, and what a user says on its command line. name: of the map."""
    files = (SOURCE / "config" / "config.yaml", SOURCE / "config" / "alg" / "ql_rnn_smax.yaml")
    known: dict[str, Any] = {}
    for file in files:
        known |= yaml.safe_load(file.read_text(encoding="utf-8"))
    said = {"MAP_NAME": name, "TOTAL_TIMESTEPS": steps, "SEED": seed}
    return {**known, **said, "WANDB_MODE": "online", "TEST_DURING_TRAINING": False}


def won(qmix: ModuleType, config: Mapping[str, Any], params: Any) -> float:
    """The share of battles that the team wins greedily."""
    bare, _ = qmix.env_from_config(copy.deepcopy(dict(config)))
    env = qmix.CTRolloutManager(bare, batch_size=BATTLES)
    network = qmix.RNNQNetwork(action_dim=env.max_action_space, hidden_dim=config["HIDDEN_SIZE"])
    apply = jax.vmap(network.apply, in_axes=(None, 0, 0, 0))

    def stacked(found: Mapping[str, Any]) -> Any:
        return jnp.stack([found[agent] for agent in bare.agents])

    def first(key: Any) -> Any:
        seen, state = env.batch_reset(key)
        memory = qmix.ScannedRNN.initialize_carry(config["HIDDEN_SIZE"], len(bare.agents), BATTLES)
        return state, seen, {agent: jnp.zeros(BATTLES, bool) for agent in [*bare.agents, "__all__"]}, memory

    def step(carry: Any, key: Any) -> tuple[Any, Any, Any]:
        state, seen, dead, memory = carry
        memory, values = apply(params, memory, stacked(seen)[:, None], stacked(dead)[:, None])
        legal = stacked(env.get_valid_actions(state.env_state))
        chosen = jnp.argmax(values.squeeze(1) - (1 - legal) * 1e10, axis=-1)
        given = {agent: chosen[i] for i, agent in enumerate(bare.agents)}
        seen, state, _, done, info = env.batch_step(key, state, given)
        return (state, seen, done, memory), done["__all__"], info["returned_won_episode"][:, 0] > 0

    return share_won(first, step, longest=bare.max_steps + 2, seed=config["SEED"])


def main(argv: Sequence[str] | None = None) -> None:
    args = arguments(__doc__, argv)
    lines: Lines | None = None

    def log(numbers: Mapping[str, Any]) -> None:
        if lines is not None:
            lines.point(
                env_steps=float(numbers["env_step"]),
                updates=float(numbers["grad_steps"]),
                won=float(numbers["returned_won_episode"]),
            )

    qmix, config = load("qmix_rnn", folder=SOURCE, log=log), settings(args.map, steps=args.steps, seed=args.seed)
    env, _ = qmix.env_from_config(copy.deepcopy(config))
    key = jax.random.PRNGKey(args.seed)
    train = jax.jit(qmix.make_train(config, env)).lower(key).compile()
    lines = Lines((*PACKAGES, "flashbax"))
    state = jax.block_until_ready(train(key))["runner_state"][0]
    counts = {"env_steps": int(state.timesteps), "updates": int(state.grad_steps), "battles": BATTLES}
    lines.figures({"seconds": lines.seconds, **counts})
    lines.figures({"win rate": won(qmix, config, state.params["agent"])})


if __name__ == "__main__":
    main()
