#!/usr/bin/env bash
# JaxMARL 0.2.0: MPE_simple_facmac_3a_v1, whose agents are adversary_0 to adversary_2 and agent_0, the prey.
#
# Expected: every listed agent acts by the action that it is given, as the prey of MPE_simple_tag_v3 does.
# Actual: agent_0 is listed and has an action space, an observation and a reward, and its action changes nothing: a script moves the
# prey. Training it is training on noise, and an evaluation of "its" policy says nothing.
#
# Output seen (2026-11-29):
#   MPE_simple_facmac_3a_v1: other action of agent_0, other positions: False
#   MPE_simple_tag_v3:       other action of agent_0, other positions: True
set -uo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet "jaxmarl==0.2.0" || exit 2
cat >"$place/look.py" <<'PY'
import sys

import jax
import jax.numpy as jnp
import jaxmarl


def matters(name):
    """Whether two steps with different discrete or continuous actions of agent_0 alone ever lead to different positions."""
    env = jaxmarl.make(name)
    key = jax.random.PRNGKey(0)
    _, one = env.reset(key)
    other = one
    space = env.action_space("agent_0")
    discrete = hasattr(space, "n")
    first = {agent: jnp.array(0) if discrete else jnp.zeros(space.shape) for agent in env.agents}
    second = {**first, "agent_0": jnp.array(1) if discrete else jnp.zeros(space.shape).at[1].set(1.0)}
    for _ in range(5):
        _, one, *_ = env.step_env(key, one, first)
        _, other, *_ = env.step_env(key, other, second)
    return bool((one.p_pos != other.p_pos).any())


answers = [(name, matters(name)) for name in ("MPE_simple_facmac_3a_v1", "MPE_simple_tag_v3")]
for name, differs in answers:
    print(f"{name + ':':24} other action of agent_0, other positions: {differs}")
sys.exit([differs for _, differs in answers] != [False, True])
PY
if JAX_PLATFORMS=cpu "$place/venv/bin/python" "$place/look.py"; then
  echo "As described."
else
  echo "This has changed."
  exit 1
fi
