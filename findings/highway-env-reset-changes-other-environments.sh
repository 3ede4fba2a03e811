#!/usr/bin/env bash
# highway-env 1.12.1: two environments in one process.
#
# Expected: highway-v0, made and reset with one seed, drives in one way, whatever else the process has made.
# Actual: a reset of intersection-v0 writes constants of the class IDMVehicle (the distance that vehicles keep, their accelerations), which all
# environments share; highway-v0 with the same seed drives otherwise afterwards.
#
# Output seen (2026-11-30), the constants, and whether eight steps of highway-v0 with seed 1 are those of before:
#   10.0 3.0 -5.0 True
#   7 6 -3 False
set -uo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet "highway-env==1.12.1" || exit 2
cat >"$place/drive.py" <<'PY'
import sys

import gymnasium
import highway_env  # noqa: F401  registers its environments
from highway_env.vehicle.behavior import IDMVehicle


def drive():
    env = gymnasium.make("highway-v0")
    env.reset(seed=1)
    for _ in range(8):
        observation = env.step(1)[0]
    return observation.round(4)


def constants():
    return IDMVehicle.DISTANCE_WANTED, IDMVehicle.COMFORT_ACC_MAX, IDMVehicle.COMFORT_ACC_MIN


first = drive()
before = constants(), bool((first == drive()).all())
print(*before[0], before[1])
gymnasium.make("intersection-v0").reset(seed=1)
after = constants(), bool((first == drive()).all())
print(*after[0], after[1])
sys.exit(not (before[1] and not after[1] and before[0] != after[0]))
PY
if SDL_VIDEODRIVER=dummy "$place/venv/bin/python" "$place/drive.py" 2>/dev/null; then
  echo "As described."
else
  echo "This has changed."
  exit 1
fi
