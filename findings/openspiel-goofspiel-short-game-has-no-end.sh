#!/usr/bin/env bash
# OpenSpiel 2.0.2: goofspiel whose parameter num_turns is one less than num_cards.
#
# Expected: the game ends after num_turns turns, as it does for every smaller number, and has returns then.
# Actual: after num_turns turns nobody has a legal action, the state is not terminal and the returns stay 0; a loop that draws from the
# legal actions fails there. (The last card of a full game is played without being asked for, after num_cards - 1 turns.)
#
# Output seen (2026-11-29), num_cards=4, descending points, everybody plays the lowest card:
#   num_turns=1: ends after 1 turns
#   num_turns=2: ends after 2 turns
#   num_turns=3: no legal action after 3 turns, terminal False
#   num_turns=4: ends after 3 turns
set -uo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet "open-spiel==2.0.2" "numpy==2.4.0" || exit 2
cat >"$place/look.py" <<'PY'
import sys

import pyspiel

ends = {}
for turns in range(1, 5):
    game = pyspiel.load_game(f"goofspiel(num_cards=4,num_turns={turns},points_order=descending)")
    state = game.new_initial_state()
    played = 0
    while not state.is_terminal() and state.legal_actions(0):
        state.apply_actions([state.legal_actions(player)[0] for player in range(2)])
        played += 1
    ends[turns] = (played, state.is_terminal())
    if state.is_terminal():
        print(f"num_turns={turns}: ends after {played} turns")
    else:
        print(f"num_turns={turns}: no legal action after {played} turns, terminal False")
sys.exit(ends != {1: (1, True), 2: (2, True), 3: (3, False), 4: (3, True)})
PY
if "$place/venv/bin/python" "$place/look.py"; then
  echo "As described."
else
  echo "This has changed."
  exit 1
fi
