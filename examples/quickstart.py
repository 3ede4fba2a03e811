"""PSRO on Leduc poker with PPO best responses, then the results.

python examples/quickstart.py
"""

import ludus

scenario = ludus.PSRO(
    env="openspiel/leduc_poker",
    algorithm=ludus.PPO(batch=500),
    meta_solver="nash",
    generations=5,
    response={"episodes": 5_000},
)
result = ludus.run(scenario)
print("NashConv per generation:", result.nash_conv, "report:", result.report)
