"""Serves a model of another library as an agent behind a command: python serve.py MODULE:CLASS WHAT OPTIONS-AS-JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import numpy as np


def main() -> None:
    """Answer messages until there are no more."""
    sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the log
    module, _, name = sys.argv[1].partition(":")
    model: Any = None
    game: Any = None
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "hello":
            game = message["game"]
            try:
                cls = getattr(importlib.import_module(f"agent_models.{module}"), name)
                model = cls(game, sys.argv[2], **json.loads(sys.argv[3]))
                reply: Any = {"type": "ready", "serves": "batch"}
            except Exception as error:  # noqa: BLE001  a model that does not fit, or a library that is not there
                reply = {"type": "error", "message": f"{error}" or type(error).__name__}
        elif message["type"] == "act":
            reply = {"actions": answers(model, game, message)}
        else:
            break
        out.write(json.dumps(reply) + "\n")
        out.flush()


def answers(model: Any, game: Any, message: Any) -> list[Any]:
    """Return the model's actions, as JSON values."""
    rows, player = message["requests"], game["players"][message["player"]]
    dtype = player["observation"]["dtype"]
    observation = np.array([row["observation"] for row in rows], dtype)
    seeds = [-1 if row["seed"] is None else row["seed"] for row in rows]
    slots = [(message["player"], row["slot"]) for row in rows]
    masks = [mask_of(row["legal"], player["action"]) for row in rows]
    mask = None if masks[0] is None else np.array(masks)
    chosen = model.act(message["player"], slots, seeds, observation, mask)
    return [np.asarray(action).tolist() for action in chosen]


def mask_of(legal: Any, space: Any) -> Any:
    """Return bool[A] of the legal actions that a message names; None: all are."""
    if legal is None:
        return None
    if space["type"] == "discrete":
        counts = [space["n"]]
    else:
        counts = np.ravel(space["nvec"]).tolist() if "nvec" in space else [2] * int(np.prod(space["shape"]))
    parts = []
    for count, values in zip(counts, [legal] if space["type"] == "discrete" else legal, strict=True):
        part = np.zeros(count, bool)
        part[values] = True
        parts.append(part)
    return np.concatenate(parts)


if __name__ == "__main__":
    main()
