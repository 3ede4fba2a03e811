"""What to install for a module that an environment needs and that is not there."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

from ludus.core.errors import ConfigError, one_line

PIP: Mapping[str, str] = {  # module -> what `pip install` calls what brings it, where that is not the module's name
    "ale_py": "'ludus[atari]'",
    "dm_control": "'ludus[dmc]'",
    "envpool": "'ludus[envpool]'",
    "gymnasium_robotics": "'ludus[mamujoco]'",
    "gymnax": "'ludus[jax]'",
    "jax": "'ludus[jax]'",
    "jaxmarl": "'ludus[jax]'",
    "lbforaging": "'ludus[lbf]'",
    "magent2": "'ludus[magent2]'",
    "pgx": "'ludus[jax]'",
    "rware": "'ludus[rware]'",
    "vmas": "'ludus[vmas]'",
    "Box2D": "'ludus[box2d]'",
    "chess": "'ludus[classic]'",
    "cv2": "'ludus[atari]'",
    "gym_super_mario_bros": "--ignore-requires-python 'gym-super-mario-bros>=9'",  # it runs on 3.11, too
    "huggingface_hub": "huggingface-hub",
    "imageio": "'ludus[mujoco]'",
    "mlagents_envs": "--no-deps --ignore-requires-python mlagents-envs",  # docs/envs/mlagents.md says with what
    "mujoco": "'ludus[mujoco]'",
    "multi_agent_ale_py": "'ludus[atari]'",
    "open_spiel": "open-spiel",
    "pygame": "pygame-ce",
    "pkg_resources": "'setuptools<81'",
    "pyglet": "'pyglet<2'",
    "pymunk": "'ludus[butterfly]'",
    "pyspiel": "open-spiel",
    "rlcard": "'ludus[classic]'",
    "shimmy": "'ludus[classic]'",
    "smac": "git+https://github.com/oxwhirl/smac",  # PyPI's smac is another
    "smacv2": "git+https://github.com/oxwhirl/smacv2",
}
MAKE: Mapping[str, str] = {  # module -> the command that brings it, where `pip install` alone does not
    "gfootball": "make football",
    "gfootball_engine": "make football",
    "jumanji": "pip install --no-deps jumanji==1.1.0 && pip install 'ludus[jax]' huggingface-hub 'setuptools<81'",
}
_PIP_OF_PETTINGZOO = {"Box2D": "'ludus[butterfly]'", "pygame": "'ludus[classic]'"}


def install_command(module: str, *, extra: str = "") -> str:
    """The command that brings a module. extra: of Ludus, that asks for it."""
    what = f"'ludus[{extra}]'" if extra else PIP.get(module, module)
    return MAKE.get(module, f"pip install {what}")


def missing_package(id: str, error: BaseException) -> ConfigError:
    """An error that says what `id` needs and what to install. Packages raise ImportErrors of their own: the first that names a module,
    among an error and its causes, counts."""
    cause: BaseException | None = error
    module = ""
    while cause is not None and not module:
        said = cause
        module = (getattr(cause, "name", None) or "").partition(".")[0]
        cause = cause.__cause__ or cause.__context__
    if not module:
        return ConfigError(f"{id} needs something that cannot be imported: {one_line(error)}.")
    if importlib.util.find_spec(module) is not None:
        return ConfigError(f"{id} needs {module}, which is installed and cannot be imported: {one_line(said)}.")
    special = _PIP_OF_PETTINGZOO if id.startswith("pettingzoo/") else {}
    command = f"pip install {special[module]}" if module in special else install_command(module)
    return ConfigError(f"{id} needs {module}, which cannot be imported; `{command}` brings it.")
