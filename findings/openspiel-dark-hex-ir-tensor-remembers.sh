#!/usr/bin/env bash
# OpenSpiel 2.0.2: dark_hex_ir, dark hex of imperfect recall, by its information states as strings and as tensors.
#
# Expected: both forget the same, so that a string has one tensor: a tabular player and a network play one game.
# Actual: the string shows the board alone, the tensor has the player's whole sequence of moves in it, as that of dark_hex, the game
# of perfect recall. A network can tell apart what a table cannot, and the two are equilibria of different games.
#
# Output seen (2026-11-29), 2 x 2 cells, 3,000 random games:
#   dark_hex_ir: 16 of 42 strings have several tensors
set -uo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet "open-spiel==2.0.2" "numpy==2.4.0" || exit 2
cat >"$place/look.py" <<'PY'
import random
import sys
from collections import defaultdict

import pyspiel

game = pyspiel.load_game("dark_hex_ir(num_rows=2,num_cols=2)")
random.seed(1)
tensors = defaultdict(set)
for _ in range(3000):
    state = game.new_initial_state()
    while not state.is_terminal():
        player = state.current_player()
        tensors[player, state.information_state_string(player)].add(tuple(state.information_state_tensor(player)))
        state.apply_action(random.choice(state.legal_actions()))
several = sum(len(seen) > 1 for seen in tensors.values())
print(f"dark_hex_ir: {several} of {len(tensors)} strings have several tensors")
sys.exit(several == 0)
PY
if "$place/venv/bin/python" "$place/look.py"; then
  echo "As described."
else
  echo "This has changed."
  exit 1
fi
