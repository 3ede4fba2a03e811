"""JaxMARL's IPPO with its own settings on a layout of Overcooked, and the return of its last episodes in training.

python -m benchmarks.peers.jaxmarl_smax.overcooked --layout cramped_room --steps 2000000

Its baselines/IPPO/ippo_ff_overcooked.py (one network for both cooks) with config/ippo_ff_overcooked.yaml; the environments are those of
the wheel that Ludus has. It is compiled before the clock starts. Returns are of soups alone, without the rewards on the way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
from jaxmarl.environments.overcooked import overcooked_layouts
from omegaconf import OmegaConf

from benchmarks.lines import Lines
from benchmarks.peers.jaxmarl_smax.run import BASELINES, PACKAGES, arguments, load

SOURCE = BASELINES / "IPPO"


def settings(layout: str, *, steps: int, seed: int) -> dict[str, Any]:
    """What its main reads, and what a user says on its command line."""
    known: Any = OmegaConf.to_container(OmegaConf.load(SOURCE / "config" / "ippo_ff_overcooked.yaml"))
    return {**known, "ENV_KWARGS": {"layout": overcooked_layouts[layout]}, "TOTAL_TIMESTEPS": steps, "SEED": seed}


def main(argv: Sequence[str] | None = None) -> None:
    args = arguments(__doc__, argv, place="layout", help="of Overcooked: cramped_room, coord_ring …")
    lines: Lines | None = None

    def log(numbers: Mapping[str, Any]) -> None:
        if lines is not None:
            returns = float(numbers["returned_episode_returns"])
            lines.point(**{"env_steps": float(numbers["env_step"]), "return": returns})

    config = settings(args.layout, steps=args.steps, seed=args.seed)
    key = jax.random.PRNGKey(args.seed)
    train = jax.jit(load("ippo_ff_overcooked", folder=SOURCE, log=log).make_train(config)).lower(key).compile()
    lines = Lines(PACKAGES)
    metrics = jax.block_until_ready(train(key))["metrics"]
    played, updates = int(metrics["env_step"][-1]), int(metrics["update_step"][-1])
    lines.figures({"seconds": lines.seconds, "env_steps": played, "updates": updates})
    lines.figures({"return": float(metrics["returned_episode_returns"][-1])})


if __name__ == "__main__":
    main()
