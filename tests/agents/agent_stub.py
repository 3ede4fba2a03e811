"""A command that misbehaves as its arguments say, for the tests: `python agent_stub.py SERVES HOW`. It needs no Ludus."""

import json
import os
import sys
import time
import zlib

serves, how, *rest = sys.argv[1:]
print("log line", file=sys.stderr, flush=True)
asked = 0
seen = {}


def reply(value: object) -> None:
    print(value if isinstance(value, str) else json.dumps(value), flush=True)


def action(row: dict, slot: int) -> int:
    """By all that the slot observed in its episode."""
    seen.setdefault(slot, []).append(round(sum(row["observation"]), 3))
    legal = row["legal"]
    return legal[zlib.crc32(str(seen[slot]).encode()) % len(legal)] if how != "illegal" else 99


for line in sys.stdin:
    message = json.loads(line)
    kind = message["type"]
    if kind == "hello":
        if how == "refuse":
            reply({"type": "error", "message": "only chess"})
            continue
        if how == "mute":
            time.sleep(60)
        reply({"type": "ready", "serves": serves})
    elif kind == "reset":
        seen[message["slot"]] = [message["seed"], message["player"]]
        if how == "pids":
            with open(rest[0], "a") as file:
                file.write(f"{os.getpid()} {message['slot']}\n")
    elif kind == "act":
        asked += 1
        if how == "die" and asked == 2:
            sys.exit(3)
        if how == "once" and not os.path.exists(rest[0]) and asked == 3:
            open(rest[0], "w").close()
            os._exit(4)
        if how == "slow" and asked == 2:
            time.sleep(0.5)
        if how == "hang" and asked >= 2:
            time.sleep(60)
        if how == "chatty":
            reply("thinking …")
        if how == "malformed":
            reply([1])
            continue
        if serves == "batch":
            answers = []
            for row in message["requests"]:
                if row["seed"] is not None:
                    seen[row["slot"]] = [row["seed"], message["player"]]
                answers.append(action(row, row["slot"]))
            reply({"actions": answers})
        else:
            answer = {"action": action(message, message["slot"])}
            reply(answer)
            if how == "twice":
                reply(answer)
    elif kind == "close" and how == "pids":
        with open(rest[0], "a") as file:
            file.write(f"{os.getpid()} close\n")
