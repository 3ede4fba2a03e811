"""Families of environments whose adapters lie in `ludus.contrib`, as the entry points of the distribution name them."""

from __future__ import annotations

from ludus.envs.families import Family

ALE = Family(
    "ludus.contrib.envs.ale",
    "Atari through the Arcade Learning Environment's own vector",
    "ale/pong",
    needs="ale_py",
    extra="atari",
    threads=True,
)
CRAFTAX = Family(
    "ludus.contrib.envs.craftax",
    "Craftax and Craftax-Classic: survival in an open world, compiled by JAX",
    "craftax/Craftax-Symbolic-v1",
    needs="craftax",
    extra="craftax",
    quick=True,
    threads=True,
)
DMC = Family(
    "ludus.contrib.envs.dmc",
    "DeepMind's Control Suite",
    "dmc/cheetah-run",
    needs="dm_control",
    extra="dmc",
    python=True,
)
ENVPOOL = Family(
    "ludus.contrib.envs.envpool",
    "EnvPool: Atari, MuJoCo, Box2D and more, in C++ threads",
    "envpool/Pong-v5",
    needs="envpool",
    extra="envpool",
    threads=True,
)
FOOTBALL = Family(
    "ludus.contrib.football.adapter",
    "Google Research Football: academies, 5-a-side, 11-a-side",
    "football/5_vs_5",
    needs="gfootball",
    quick=True,
    python=True,
    shaping={"rewards": {"score": 1.0, "win": 0.0}},
)
GYMNAX = Family(
    "ludus.contrib.envs.gymnax",
    "gymnax: classic control, bsuite, MinAtar, compiled by JAX",
    "gymnax/CartPole-v1",
    needs="gymnax",
    extra="jax",
    threads=True,
)
HIGHWAY = Family(
    "ludus.contrib.envs.highway",
    "highway-env: an intersection with several vehicles",
    "highway/intersection-multi-agent-v1",
    needs="highway_env",
    extra="highway",
    quick=True,
    python=True,
)
JAXMARL = Family(
    "ludus.contrib.envs.jaxmarl",
    "JaxMARL: SMAX, Overcooked, Hanabi, particles, compiled by JAX",
    "jaxmarl/MPE_simple_spread_v3",
    needs="jaxmarl",
    extra="jax",
    threads=True,
    shaping={"shaped_rewards": {}},
)
JUMANJI = Family(
    "ludus.contrib.envs.jumanji",
    "Jumanji: robot warehouse, foraging, connector, puzzles, compiled by JAX",
    "jumanji/RobotWarehouse-v0",
    needs="jumanji",
    also=("huggingface_hub", "pkg_resources"),
    threads=True,
)
KAGGLE = Family(
    "ludus.contrib.envs.kaggle",
    "kaggle-environments: the games of Kaggle's competitions",
    "kaggle/connectx",
    needs="kaggle_environments",
    python=True,
)
LBF = Family(
    "ludus.contrib.envs.lbf",
    "level-based foraging, cooperative and mixed",
    "lbf/Foraging-8x8-2p-3f-v3",
    needs="lbforaging",
    extra="lbf",
    python=True,
)
MAGENT2 = Family(
    "ludus.contrib.envs.magent2",
    "MAgent2: battles of hundreds of agents",
    "magent2/battle_v4",
    needs="magent2",
    extra="magent2",
)
MAMUJOCO = Family(
    "ludus.contrib.envs.mamujoco",
    "Multi-agent MuJoCo: bodies whose joints are shared out",
    "mamujoco/HalfCheetah-2x3",
    needs="gymnasium_robotics",
    extra="mamujoco",
    python=True,
)
MLAGENTS = Family(
    "ludus.contrib.envs.mlagents",
    "games built with Unity's ML-Agents",
    "mlagents/builds/Pong",
    needs="mlagents_envs",
    quick=True,
    python=True,
)
MOMALAND = Family(
    "ludus.contrib.envs.momaland",
    "MOMAland: several agents, several objectives",
    "momaland/moconnect4_v0",
    needs="momaland",
    extra="momaland",
    quick=True,
    python=True,
    shaping={"weights": {}},
)
MPE2 = Family(
    "ludus.contrib.envs.mpe2",
    "MPE2: the multi-agent particle environments",
    "mpe2/simple_spread_v3",
    needs="mpe2",
    quick=True,
    extra="mpe2",
    python=True,
    discount=0.95,  # of the papers on it (Lowe et al. 2017); nothing but a limit of steps ends its episodes
)
PETTINGZOO = Family(
    "ludus.contrib.envs.pettingzoo",
    "PettingZoo: classic, SISL, butterfly, two-player Atari",
    "pettingzoo/connect_four_v3",
    needs="pettingzoo",
    quick=True,
    extra="pettingzoo",
    python=True,
    orders_agents=True,
)
PGX = Family(
    "ludus.contrib.envs.pgx",
    "Pgx: board and card games, compiled by JAX",
    "pgx/connect_four",
    needs="pgx",
    extra="jax",
    threads=True,
)
RWARE = Family(
    "ludus.contrib.envs.rware",
    "the multi-robot warehouse, cooperative",
    "rware/rware-tiny-2ag-v2",
    needs="rware",
    extra="rware",
    python=True,
)
SMAC = Family(
    "ludus.contrib.envs.smac",
    "the StarCraft Multi-Agent Challenge",
    "smac/3m",
    needs="smac",
    quick=True,
    python=True,
)
SMACV2 = Family(
    "ludus.contrib.envs.smacv2",
    "SMACv2: battles whose units are drawn",
    "smacv2/terran_5_vs_5",
    needs="smacv2",
    quick=True,
    python=True,
)
TEXTARENA = Family(
    "ludus.contrib.envs.textarena",
    "TextArena: games in words whose moves are a closed list",
    "textarena/TicTacToe-v0",
    needs="textarena",
    extra="textarena",
    python=True,
)
VMAS = Family(
    "ludus.contrib.envs.vmas",
    "VMAS: batched physics in torch",
    "vmas/simple_spread",
    needs="vmas",
    extra="vmas",
)
XLAND = Family(
    "ludus.contrib.envs.xland",
    "XLand-MiniGrid: grid worlds whose goals and rules are drawn, compiled by JAX",
    "xland/MiniGrid-DoorKey-8x8",
    needs="xminigrid",
    extra="xland",
    threads=True,
)
