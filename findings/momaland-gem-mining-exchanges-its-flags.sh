#!/usr/bin/env bash
# momaland 0.2.0: mogem_mining_v0, a game of one step.
#
# Expected: its only step terminates the game, as its source sets: terminations are true and truncations false.
# Actual: step returns them in exchanged places: the game "is truncated" (a learner bootstraps from a state that has no future).
#
# Output seen (2026-11-30), NumPy 2.3.5, flags of the first agent after the step:
#   terminated False, truncated True
set -uo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet "momaland==0.2.0" "numpy==2.3.5" || exit 2
cat >"$place/step.py" <<'PY'
import sys

from momaland.envs.gem_mining import mogem_mining_v0

env = mogem_mining_v0.parallel_env()
env.reset(seed=1)
agent = env.agents[0]
_, _, terminations, truncations, _ = env.step({name: env.action_space(name).sample() for name in env.agents})


def flag(flags):
    return bool(flags[agent]) if isinstance(flags, dict) else bool(flags)


print(f"terminated {flag(terminations)}, truncated {flag(truncations)}")
sys.exit(not (flag(truncations) and not flag(terminations)))
PY
if "$place/venv/bin/python" "$place/step.py" 2>"$place/errors"; then
  echo "As described."
else
  tail -1 "$place/errors"
  echo "This has changed."
  exit 1
fi
