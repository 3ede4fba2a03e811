"""A campaign of random harm: small runs of every kind are killed, starved, cut off and damaged, and what Ludus promises is checked.

`python -m benchmarks.chaos --minutes 60 --seed N` draws cases, runs them and writes benchmarks/results/chaos.json.

scenarios.py   what is run                 harms.py      what is done to it (data)
draw.py        which of them, and when     actions.py    how it is done
scene.py       a run in a folder of its own, which is watched from outside
case.py        a case from its beginning to its verdict
promises.py    what is checked             table.py      harm × promise, and the bars
parts.py       environments, bots, solvers … with faults to order
"""
