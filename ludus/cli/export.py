"""ludus export"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ludus.apps.export import FORMATS, SUFFIXES
from ludus.cli.command import Command, check_new, whole_number
from ludus.cli.output import facts
from ludus.core.errors import ConfigError

if TYPE_CHECKING:
    from ludus.apps.export.export import Export


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "policy",
        metavar="RUN[@WHAT]|FILE",
        help="the policy: RUN (its last mixture), RUN@best, RUN@newest, RUN@12, RUN@PLAYER/POLICY, an entry of a zoo, or a policy's file",
    )
    parser.add_argument(
        "--to",
        required=True,
        metavar="FORMAT",
        help="onnx (ONNX Runtime and others), pt2 (torch.export), safetensors (weights, and what they are of), python (one file that needs "
        "NumPy alone) or kaggle (an agent for kaggle-environments)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="output file (default: named after the policy, here)")
    parser.add_argument(
        "--player", type=whole_number, metavar="P", help="whose policy (default: the first that has one)"
    )
    parser.add_argument("--mode", choices=("greedy", "explore"), help="how it plays (default: as in its run)")
    parser.add_argument(
        "--decisions",
        type=whole_number,
        default=1000,
        metavar="N",
        help="decisions that policy and file play for comparison, before the file is written (default: 1000)",
    )
    parser.add_argument("--seed", type=whole_number, default=0, help="seed of these decisions (default: 0)")
    parser.add_argument("--overwrite", action="store_true", help="overwrite the file")


def _execute(options: argparse.Namespace) -> int:
    if options.to not in FORMATS:
        raise ConfigError(f"--to {options.to!r} was given; expected one of {', '.join(FORMATS)}.")
    name = options.policy.rstrip("/").rpartition("/")[2] if "@" not in options.policy else options.policy
    path = options.out or Path(
        "".join(c if c.isalnum() or c in "-._" else "-" for c in name).removesuffix(".safetensors")
    )
    if options.out is None:
        path = path.with_name(path.name + SUFFIXES[options.to])
    check_new("the export", path, options)
    from ludus.apps.export.export import export_policy

    written = export_policy(
        options.policy,
        options.to,
        path,
        player=options.player,
        mode=options.mode,
        count=options.decisions,
        seed=options.seed,
    )
    _show(written)
    return 0


def _show(written: Export) -> None:
    signature = written.signature
    pairs = [("file", f"{written.path} ({written.size / 1024:,.0f} KiB)"), ("player", str(signature.player))]
    if len(signature.members) > 1:
        shares = [f"{name} {share:.2f}" for name, share in zip(signature.members, signature.probabilities, strict=True)]
        more = f" and {len(shares) - 4} more" if len(shares) > 5 else ""
        pairs.append(("mixture", ", ".join(shares[: 4 if more else 5]) + more))
    else:
        pairs.append(("policy", f"{signature.members[0]}, {signature.modes[0]}"))
    if signature.inputs:
        pairs += [("inputs", ", ".join(signature.inputs)), ("outputs", ", ".join(signature.outputs))]
    agreement = written.agreement
    if agreement is not None:
        clear = f"all {agreement.clear:,} clear greedy actions equal" if agreement.clear else "no greedy actions"
        where = signature.game or "random observations, since a file does not say what it was trained in"
        pairs.append(
            (
                "compared",
                f"{agreement.decisions:,} decisions ({where}): {clear}, largest difference {agreement.largest:.1g}",
            )
        )
    facts("Export", pairs)


COMMAND = Command(
    name="export",
    summary="Write a policy as a file that other programs run: ONNX, torch.export, NumPy source, a Kaggle agent.",
    examples=(
        ("ludus export try1@best --to onnx", "the best policy, try1-best.onnx"),
        ("ludus export try1 --to python --out agent.py", "the last mixture, for NumPy alone"),
        ("ludus export try1@0/0-12 --to pt2 --mode explore", "one policy, as it explores"),
        ("ludus export four1@best --to kaggle --out main.py", "an agent for connectx"),
    ),
    add_arguments=_add_arguments,
    execute=_execute,
)
