#!/usr/bin/env bash
# TensorBoard 2.21.0 with tensorboard-data-server 0.7.2: one folder, a first file with steps 0 to 10, and a second one, of the run
# that was resumed from step 5, with steps 6 to 12. Neither file has a session marker.
#
# Expected: TensorBoard's readers agree on what the curve is.
# Actual: the server that the page uses by default drops what the second file has overtaken and shows 13 points; the reader in
# Python (EventAccumulator, which --load_fast=false and most scripts use) shows 18, steps 6 to 10 twice.
#
# So a curve looks right in the browser and is wrong in the script that makes the paper's figure of it.
#
# Output seen (2026-11-29):
#   the page's server: 13 points
#   EventAccumulator:  18 points
set -uo pipefail
place=$(mktemp -d)
trap 'kill %1 2>/dev/null; rm -rf "$place"' EXIT
python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet "tensorboard==2.21.0" "tensorboard-data-server==0.7.2" "setuptools<81" || exit 2
cat >"$place/write.py" <<'PY'
import sys

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

folder = sys.argv[1]
for name, steps in ((".first", range(0, 11)), (".second", range(6, 13))):
    writer = EventFileWriter(folder, filename_suffix=name)
    for step in steps:
        value = Summary.Value(tag="x", simple_value=float(step))
        writer.add_event(Event(wall_time=1000.0 + step + (100 if name == ".second" else 0), step=step, summary=Summary(value=[value])))
    writer.close()
PY
cat >"$place/look.py" <<'PY'
import json
import sys
import time
import urllib.request

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder, port = sys.argv[1], sys.argv[2]
accumulator = EventAccumulator(folder)
accumulator.Reload()
script = len(accumulator.Scalars("x"))
url = f"http://127.0.0.1:{port}/data/plugin/scalars/scalars?tag=x&run=."
page = 0
for _ in range(120):
    try:
        page = len(json.load(urllib.request.urlopen(url, timeout=5)))
        break
    except OSError:
        time.sleep(0.5)
print(f"the page's server: {page} points")
print(f"EventAccumulator:  {script} points")
sys.exit((page, script) != (13, 18))
PY
mkdir "$place/log"
"$place/venv/bin/python" "$place/write.py" "$place/log" || exit 2
port=$((20000 + RANDOM % 10000))
"$place/venv/bin/tensorboard" --logdir "$place/log" --port "$port" --load_fast=true >/dev/null 2>&1 &
if "$place/venv/bin/python" "$place/look.py" "$place/log" "$port"; then
  echo "As described."
else
  echo "This has changed."
  exit 1
fi
