#!/usr/bin/env bash
# wandb 0.31.0, mode=offline: rows that Run.log has returned for, when the program is killed (SIGKILL) some seconds later.
#
# Expected: they are in the run's .wandb file, which `wandb sync` sends: W&B's own process (wandb-core) has had seconds to write them, and is
# not the one that is killed.
# Actual: the file has no history record. The service ends with the program, without writing what it holds; a long run has its rows in
# blocks of 32 KiB, and loses the last ones. A run that ends by itself has all five rows.
#
# Output seen (2026-11-30), five rows, three seconds of waiting:
#   killed: 0 of 5 rows are in the file
#   finished: 5 of 5 rows are in the file
set -uo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv" && "$place/venv/bin/pip" install --quiet "wandb==0.31.0" || exit 2
cat >"$place/log.py" <<'PY'
import os
import signal
import sys
import time

import wandb

settings = wandb.Settings(x_disable_stats=True, console="off")
run = wandb.init(project="rows", mode="offline", dir=sys.argv[2], settings=settings)
for n in range(5):
    run.log({"value_of_row": n}, step=n)
time.sleep(3)
if sys.argv[1] == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
run.finish()
PY
cat >"$place/read.py" <<'PY'
import struct
import sys
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

BLOCK = 32768  # LevelDB's log: blocks of pieces (checksum, length, kind) after a head of 7 bytes


def records(data):
    at, whole = 7, b""
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        if not kind:
            break
        whole += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last piece
            yield Record.FromString(whole)
            whole = b""


files = list(Path(sys.argv[1]).rglob("*.wandb"))
print(sum(record.WhichOneof("record_type") == "history" for file in files for record in records(file.read_bytes())))
PY
counts=()
for how in killed finished; do
  mkdir "$place/$how"
  "$place/venv/bin/python" "$place/log.py" "$how" "$place/$how" >/dev/null 2>&1
  sleep 5
  rows=$("$place/venv/bin/python" "$place/read.py" "$place/$how" 2>/dev/null)
  echo "$how: $rows of 5 rows are in the file"
  counts+=("$rows")
done
if [ "${counts[*]}" = "0 5" ]; then
  echo "As described."
else
  echo "This has changed."
  exit 1
fi
