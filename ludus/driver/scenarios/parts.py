"""What several kinds of scenarios have in common."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

from ludus.core.parts import build_part, dump_part
from ludus.schedulers.registry import DIVERSITIES, PASTS
from ludus.schedulers.warm_start import WarmStart
from ludus.solvers.registry import META_SOLVERS


def _rules(value: Any) -> Any:
    rules = value if isinstance(value, list | tuple) else (value,)
    return tuple({"source": rule} if isinstance(rule, str) else rule for rule in rules)


Solver = Annotated[
    Any,
    BeforeValidator(lambda v: build_part("meta-solver", v, META_SOLVERS)),
    PlainSerializer(lambda part: dump_part(part, META_SOLVERS)),
]
WarmStarts = Annotated[tuple[WarmStart, ...], BeforeValidator(_rules)]
Past = Annotated[
    Any,
    BeforeValidator(lambda v: build_part("past", v, PASTS)),
    PlainSerializer(lambda part: dump_part(part, PASTS)),
]
Different = Annotated[
    Any,
    BeforeValidator(lambda v: None if v is None else build_part("diversity", v, DIVERSITIES)),
    PlainSerializer(lambda part: None if part is None else dump_part(part, DIVERSITIES)),
]
