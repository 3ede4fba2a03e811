#!/usr/bin/env bash
# Optuna 5.0.0: a trial that reports twice at one step, as one does that is resumed from a checkpoint before that step.
#
# Expected: the newest value counts, as in a log that is written again from a checkpoint on.
# Actual: the first one is kept, and the second is dropped with a UserWarning. A trial that crashed after a lucky value is judged by
# that value by pruners for good.
#
# Output seen (2026-11-29):
#   reported 1.0 and then 5.0 at step 3: kept 1.0, UserWarning: True
set -uo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet "optuna==5.0.0" || exit 2
cat >"$place/look.py" <<'PY'
import sys
import warnings

import optuna

optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study()
trial = study.ask()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    trial.report(1.0, step=3)
    trial.report(5.0, step=3)
study.tell(trial, 0.0)
kept = study.trials[0].intermediate_values[3]
warned = any(issubclass(one.category, UserWarning) for one in caught)
print(f"reported 1.0 and then 5.0 at step 3: kept {kept}, UserWarning: {warned}")
sys.exit(kept != 1.0)
PY
if "$place/venv/bin/python" "$place/look.py"; then
  echo "As described."
else
  echo "This has changed."
  exit 1
fi
