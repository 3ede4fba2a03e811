"""JaxMARL's MAPPO with its own settings on a map of SMAX, and how many battles its team wins that training never saw.

python -m benchmarks.peers.jaxmarl_smax.run --map 3m --steps 1000000

Its baselines/MAPPO/mappo_rnn_smax.py (a recurrent network, one for all units) with config/mappo_homogenous_rnn_smax.yaml; the
environments are those of the wheel that Ludus has. It is compiled before the clock starts. Battles are played greedily, as Ludus's
are, and by chance, as its own figures are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import yaml

from benchmarks.lines import Lines
from benchmarks.peers.jax_device import use_device

BASELINES = Path(sys.prefix) / "jaxmarl" / "baselines"
SOURCE = BASELINES / "MAPPO"
PACKAGES = ("jax", "jaxmarl", "flax", "optax", "distrax")
BATTLES = 128
_FRESH = 1_000_000  # added to the seed of the battles at the end


def settings(name: str, *, steps: int, seed: int) -> dict[str, Any]:
    """What its main reads, and what a user says on its command line. name: of the map."""
    text = (SOURCE / "config" / "mappo_homogenous_rnn_smax.yaml").read_text(encoding="utf-8")
    return {**yaml.safe_load(text), "MAP_NAME": name, "TOTAL_TIMESTEPS": steps, "SEED": seed}


def load(module: str, *, folder: Path, log: Any) -> ModuleType:
    """One of its modules, whose dashboard is `log`."""
    dashboard: Any = ModuleType("wandb")
    dashboard.log = log
    sys.modules["wandb"] = dashboard
    sys.path.insert(0, str(folder))
    return import_module(module)


def arguments(
    description: str | None,
    argv: Sequence[str] | None,
    *,
    place: str = "map",
    help: str = "of SMAX: 3m, 2s3z …",
) -> argparse.Namespace:
    """map (or another place), steps, seed. JAX computes on the device that is given. Raises RuntimeError where it sees none."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(f"--{place}", required=True, help=help)
    parser.add_argument("--steps", type=int, required=True, help="of the environment")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu, cuda, or cuda:N")
    args = parser.parse_args(argv)
    use_device(args.device)
    return args


def share_won(first: Callable[[Any], Any], step: Callable[[Any, Any], Any], *, longest: int, seed: int) -> float:
    """Of `BATTLES` first battles, of at most `longest` steps. first: a state of a key; step: of a state and a key the next state, which
    battles end, and of which the last was won, bool[BATTLES] each."""

    def played(carry: Any, key: Any) -> tuple[Any, Any]:
        state, open_ = carry
        state, ends, victory = step(state, key)
        return (state, open_ & ~ends), open_ & ends & victory

    @jax.jit
    def battles(key: Any) -> Any:
        start = (first(key), jnp.ones(BATTLES, bool))
        left, victories = jax.lax.scan(played, start, jax.random.split(key, longest))
        return victories.sum(), left[1].sum()

    victories, unfinished = battles(jax.random.PRNGKey(seed + _FRESH))
    if int(unfinished):
        raise RuntimeError(f"{int(unfinished)} battles did not end within {longest} steps")
    return float(victories) / BATTLES


def won(mappo: ModuleType, config: Mapping[str, Any], params: Any, *, greedy: bool) -> float:
    """The share of battles that the actor wins."""
    scenario = mappo.map_name_to_scenario(config["MAP_NAME"])
    env = mappo.SMAXLogWrapper(mappo.HeuristicEnemySMAX(scenario=scenario, **config["ENV_KWARGS"]))
    actor, units = mappo.ActorRNN(env.action_space(env.agents[0]).n, config=config), env.num_agents
    actors = units * BATTLES

    def rows(found: Mapping[str, Any]) -> Any:
        return mappo.batchify(found, env.agents, actors)

    def first(key: Any) -> Any:
        seen, state = jax.vmap(env.reset)(jax.random.split(key, BATTLES))
        memory = mappo.ScannedRNN.initialize_carry(actors, config["GRU_HIDDEN_DIM"])
        return state, seen, jnp.zeros(actors, bool), memory

    def step(carry: Any, key: Any) -> tuple[Any, Any, Any]:
        state, seen, dead, memory = carry
        legal = rows(jax.vmap(env.get_avail_actions)(state.env_state))
        memory, chances = actor.apply(params, memory, (rows(seen)[None], dead[None], legal))
        action = chances.mode() if greedy else chances.sample(seed=key)
        given = mappo.unbatchify(action, env.agents, BATTLES, units)
        keys = jax.random.split(jax.random.fold_in(key, 1), BATTLES)
        seen, state, _, done, info = jax.vmap(env.step)(keys, state, {k: v.squeeze() for k, v in given.items()})
        return (state, seen, rows(done).squeeze(), memory), done["__all__"], info["returned_won_episode"][:, 0] > 0

    return share_won(first, step, longest=env.max_steps + 2, seed=config["SEED"])


def main(argv: Sequence[str] | None = None) -> None:
    args = arguments(__doc__, argv)
    lines: Lines | None = None

    def log(numbers: Mapping[str, Any]) -> None:
        if lines is not None:
            lines.point(env_steps=float(numbers["env_step"]), won=float(numbers["win_rate"]))

    mappo = load("mappo_rnn_smax", folder=SOURCE, log=log)
    config = settings(args.map, steps=args.steps, seed=args.seed)
    key = jax.random.PRNGKey(args.seed)
    train = jax.jit(mappo.make_train(config)).lower(key).compile()
    lines = Lines(PACKAGES)
    (states, updates) = jax.block_until_ready(train(key))["runner_state"]
    played = int(updates) * config["NUM_STEPS"] * config["NUM_ENVS"]
    lines.figures({"seconds": lines.seconds, "env_steps": played, "updates": int(updates), "battles": BATTLES})
    actor = states[0][0].params
    rates = {
        "win rate": won(mappo, config, actor, greedy=True),
        "win rate by chance": won(mappo, config, actor, greedy=False),
    }
    lines.figures(rates)


if __name__ == "__main__":
    main()
