"""A worker for the harness's tests: halves its NashConv every 10 ms of its own clock, or misbehaves as told."""

import json
import os
import sys
import time

how, seed = sys.argv[1], int(sys.argv[-1])
if how == "crash":
    sys.exit("no luck")
print("some library says hello")
print('{"not": "ours"}')
print(json.dumps({"kind": "start", "cold_seconds": 0.5, "versions": {"numpy": "2"}}), flush=True)
if how == "stuck":
    print(json.dumps({"kind": "point", "seconds": 1.0, "nash_conv": 0.3}), flush=True)
    time.sleep(60)
points = 2 if how == "short" else 4
for n in range(1, points + 1):
    print(json.dumps({"kind": "point", "seconds": n * (10 if how == "slow" else 1) + seed, "nash_conv": 2.0**-n}))
print(json.dumps({"kind": "figures", "score": seed, "cores": len(os.sched_getaffinity(0))}))
print(json.dumps({"kind": "figures", "threads": int(os.environ.get("OMP_NUM_THREADS", "0"))}))
print('{"kind": "figures", "sco')
