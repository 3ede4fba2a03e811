#!/usr/bin/env python3
"""An agent behind a command, without Ludus: a legal action at random, by the episode's seed."""

import json
import random
import sys

rngs = {}  # an episode is open in each slot
for line in sys.stdin:
    message = json.loads(line)
    if message["type"] == "hello":
        print(json.dumps({"type": "ready", "serves": "many"}), flush=True)
    elif message["type"] == "reset":
        rngs[message["slot"]] = random.Random(message["seed"])
    elif message["type"] == "act":
        action = rngs[message["slot"]].choice(message["legal"])
        print(json.dumps({"action": action}), flush=True)
