#!/usr/bin/env bash
# Trains a run or, where it is there already, goes on with it: for schedulers that start the same command again.
#
#     run.sh RUN_DIR SCENARIO [options of `ludus train`]
#
# --trust: no one is there to be asked whether a run that another user or machine made may import the code that it names.
set -eu
run=${1:?folder of the run} scenario=${2:?preset or file of a scenario}
shift 2
if [ -e "$run/scenario.yaml" ]; then
    exec ludus resume "$run" "$@" --trust
fi
exec ludus train "$scenario" "$@" --trust --run-dir "$run"
