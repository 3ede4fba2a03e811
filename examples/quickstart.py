"""The README's example: PSRO with PPO best responses on Leduc poker."""

import ludus

scenario = ludus.PSRO(
    env="openspiel/leduc_poker",
    algorithm=ludus.PPO(batch=500),
    meta_solver="nash",
    generations=5,
    response={"episodes": 5_000},
)
result = ludus.run(scenario)
print("NashConv per generation:", result.nash_conv)
print("player 0 mixes its policies like this:", result.meta_strategies[0].round(3))
print("report:", result.report)
