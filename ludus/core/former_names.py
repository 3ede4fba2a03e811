"""Modules by names that they had before: what stored runs and files of scenarios name ("module:Class") keeps its meaning."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

_CONTRIB_ALGORITHMS = "bc|coma|curiosity|imitation|maddpg|mat|mpo|muzero|qmix|sequential|tabular_q"
_CONTRIB_ENVS = (
    "ale|dmc|envpool|gymnax|jaxmarl|jumanji|lbf|magent2|mamujoco|mlagents|mpe2|pettingzoo|pgx|rware|smac|smacv2|vmas"
)
_COMMON = (
    "acting|around|base|conditioned|defaults|diversity|images|losses|options|registry|replayed|restricted|returns|schedule|spaces|states|"
    "statistics|team_specs|teams"
)
_MOVES: Final = tuple(
    (re.compile(rf"ludus\.{before}(?![a-z_0-9])"), f"ludus.{now}")
    for before, now in (  # of release 0.1; the first that matches counts
        (r"(learners\.teams|algorithms\.common\.joint_steps)", "contrib.algorithms.joint_steps"),
        (rf"learners\.({_CONTRIB_ALGORITHMS})\.options", r"contrib.algorithms.\1.config"),
        (rf"learners\.({_CONTRIB_ALGORITHMS})", r"contrib.algorithms.\1"),
        (rf"learners\.({_COMMON})", r"algorithms.common.\1"),
        (r"learners\.(network|optimizer|ranks)", r"backend.\1"),
        (r"learners\.on_policy\.in_place", "algorithms.on_policy.ondevice.learning"),
        (r"learners\.(on_policy|ppo)\.written", r"algorithms.\1.kernels"),
        (r"learners\.(\w+)\.options", r"algorithms.\1.config"),
        (r"learners", "algorithms"),
        (r"driver\.(experiment|sweep)", r"apps.experiments.\1"),
        (r"driver", "runs"),
        (r"(solvers|population)", r"metagame.\1"),
        (r"storage\.live(_files)?", "runs.control"),
        (r"view\.(progress|tensorboard|curves)", r"reporting.\1"),
        (r"view", "apps.ui"),
        (r"evaluation\.against", "tournament.cross_play"),
        (r"evaluation\.tournament", "tournament"),
        (r"evaluation\.zoo", "apps.hub.zoo"),
        (r"evaluation\.(debugger|recording|conditions|trajectories|played_episode)", r"apps.episodes.\1"),
        (r"evaluation\.play\.(records|drawing|person|checks)", r"apps.episodes.\1"),
        (r"evaluation\.play", "apps.play"),
        (r"storage\.people", "apps.play.people"),
        (r"core\.device", "backend.device"),
        (r"policies\.(mlp|perceptron)", r"backend.\1"),
        (r"policies\.football", "contrib.football.bots"),
        (r"policies\.openspiel_bots", "contrib.openspiel_bots"),
        (r"envs\.football", "contrib.football"),
        (r"envs\.adapters\.football", "contrib.football.adapter"),
        (rf"envs\.adapters\.({_CONTRIB_ENVS})", r"contrib.envs.\1"),
    )
)
_RENAMED: Final = {
    f"ludus.{package}.{before}": f"ludus.{package}.{now}"
    for package, modules in (
        ("algorithms.common", "around=delegating acting=device_policy states=information_states"),
        ("algorithms.common", "images=space_checks schedule=config"),
        (
            "algorithms.common",
            "replayed=replay_learner restricted=delegating restricted_learner=delegating conditioned=delegating team_specs=space_checks",
        ),
        ("algorithms.common", "spaces=space_checks diversity=behavioral_diversity options=config"),
        ("algorithms.mmd", "tabular=tabular_learner"),
        ("algorithms.on_policy", "teams=multi_agent models=autograd_model"),
        ("contrib.algorithms.qmix", "diversity=cds"),
        ("apps.episodes", "trajectories=trajectory_export records=schemas checks=validation"),
        ("apps.episodes", "person=human_policy conditions=breakpoints"),
        ("contrib.algorithms.sequential", "teams=team_rows"),
        ("contrib.football", "statistics=match_statistics rewards=shaping observations=encoders"),
        ("core", "own_code=user_code plain=jsonable curves=recorders"),
        ("core", "curve_recorder=recorders timings=recorders plugins=parts files=machine"),
        ("envs", "resident=device_vector python_loop=python_vector options=config"),
        ("envs.adapters", "teams=agent_seats zoo=pettingzoo_vector answers=step_checks"),
        ("envs.adapters", "own=custom"),
        ("envs.functional", "making=factory"),
        ("envs.tree", "arrays=tree_arrays restricted=restricted_game"),
        ("envs.wrappers", "teams=player_groups resident=ondevice device_joint_state=ondevice"),
        ("evaluation", "population=population_exploitability ratings=run_ratings"),
        ("metagame.population", "matches=match_log payoffs=base"),
        ("metagame.population.ratings", "results=win_counts elo=online_elo"),
        ("metagame.solvers", "games=normal_form"),
        ("backend", "perceptron=mlp optimizer=network"),
        ("policies", "checks=base tabular=categorical"),
        ("replay", "hand_over=episode_server recorded_spaces=parquet"),
        ("rollout", "bots=bot_players in_place=ondevice shards=base opponent_sampling=opponents local=host"),
        ("runs", "stored_run=resumable_run player_names=scenario_defaults defaults=scenario_defaults"),
        ("runs", "scenario_kinds=scenario result=runner"),
        ("schedulers", "options=config diversity=response_diversity match_selection=planning"),
        ("schedulers", "queue=planning payoff_tasks=planning chunked=planning"),
        ("storage", "payoff_log=records policy_files=checkpoint"),
        ("training", "in_place=ondevice_collector remote=remote_trainer by_hand=standalone"),
        ("training", "tasks=training rollout_requests=collecting"),
    )
    for before, now in (pair.split("=") for pair in modules.split())
}
"""Modules that have another name in their package than the table above leads to."""


@lru_cache(1024)
def present_name(name: str) -> str:
    """Translate a name of release 0.1.

    Args:
        name: `module:Class` or a module, of anybody.

    Returns:
        The same where Ludus has it now; `name` where it is no former name of Ludus's.
    """
    for before, now in _MOVES:
        if match := before.match(name):
            name = match.expand(now) + name[match.end() :]
            break
    module, colon, rest = name.partition(":")
    return _RENAMED.get(module, module) + colon + rest
