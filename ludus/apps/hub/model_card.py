"""The model card of a zoo's entry: what Hugging Face's Hub shows of it, from its manifest alone."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from ludus.core.config import to_yaml
from ludus.metagame.solvers.confidence import student
from ludus.storage.manifest import Manifest

_MOST = 50
"""Policies in the table."""


def model_card(manifest: Manifest, repo: str) -> str:
    """Return README.md of an entry.

    Args:
        manifest: The entry's.
        repo: ORG/NAME on the Hub.

    Returns:
        Markdown with a YAML header: tags, and results as the Hub's model index takes them.
    """
    sections = [
        f"# {_safe(manifest.name)}",
        f"Policies of {_code(manifest.game.id)}, trained with Ludus.",
        *([_safe(manifest.note)] if manifest.note else []),
        "## What it is",
        _table(("", ""), _facts(manifest)),
        "## Results",
        "\n\n".join(_results(manifest)) or "No results are known.",
        "## Policies",
        _table(("policy", "plays", "kind", "mode", "generation", "probability"), _policies(manifest)),
        "## How to load it",
        _usage(manifest, repo),
    ]
    return f"---\n{to_yaml(_header(manifest))}---\n\n" + "\n\n".join(sections) + "\n"


def _header(manifest: Manifest) -> dict[str, Any]:
    game, source = manifest.game, manifest.source
    several = "multi-agent-reinforcement-learning" if len(game.players) > 1 else ""
    tags = ["reinforcement-learning", several, "ludus", _tag(game.id), _tag(source.algorithm)]
    metrics = [{"type": name, "name": name, "value": value} for name, value in _metrics(manifest)]
    index = {
        "name": manifest.name,
        "results": [
            {
                "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
                "dataset": {"name": game.id, "type": game.id},
                "metrics": metrics,
            }
        ],
    }
    header = {"library_name": "ludus", "pipeline_tag": "reinforcement-learning", "tags": [tag for tag in tags if tag]}
    return {**header, **({"model-index": [index]} if metrics else {})}


def _metrics(manifest: Manifest) -> Iterator[tuple[str, float]]:
    results = manifest.results
    if results.nash_conv is not None and math.isfinite(results.nash_conv):
        yield "NashConv" if results.exact else "NashConv (lower bound)", results.nash_conv
    for player, value in enumerate(results.values):
        if math.isfinite(value):
            yield f"return of player {player}", value


def _tag(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]


def _facts(manifest: Manifest) -> Iterator[tuple[str, ...]]:
    game, source = manifest.game, manifest.source
    yield "game", f"{_code(game.id)}, {len(game.players)} player{'s' if len(game.players) > 1 else ''}"
    if source.algorithm:
        yield "algorithm", _code(source.algorithm)
    if source.run:
        yield "run", f"{_code(source.run)}, after generation {source.generation}, seed {source.seed}"
    trained = sum(member.trained.get("episodes", 0) for member in manifest.policies)
    if trained:
        yield "episodes of training", f"{trained:,}"
    yield "versions", ", ".join(f"{_safe(name)} {_safe(version)}" for name, version in game.packages.items())


def _results(manifest: Manifest) -> Iterator[str]:
    results = manifest.results
    if results.nash_conv is not None:
        bound = "" if results.exact else ", at least"
        gains = ", ".join(f"{gain:.4g}" for gain in results.gains)
        yield f"NashConv{bound}: **{results.nash_conv:.4g}** (gains of best responses by player: {gains})."
    if results.values:
        values = ", ".join(f"{round(value, 9) + 0.0:.4g}" for value in results.values)
        yield f"Returns by player, where what is here plays itself: {values}."
    names = [_name(manifest, k) for k in range(len(manifest.policies))]
    for rated in results.ratings:
        rows = [
            (_code(name), f"{rating:.4g}", "" if math.isnan(low) else f"[{low:.4g}, {high:.4g}]")
            for name, rating, low, high in zip(names, rated.rating, rated.low, rated.high, strict=True)
            if not math.isnan(rating)
        ]
        if rows:
            yield _table((f"{_safe(rated.name)} ({_safe(rated.unit)})", "rating", "95% interval"), rows[:_MOST])
    rows = [
        (
            _code(name),
            f"{member.returns.mean:.4g} ± {_half_width(member.returns.n, member.returns.m2):.4g}",
            f"{member.returns.n:,}",
        )
        for name, member in zip(names, manifest.policies, strict=True)
        if member.returns is not None and member.returns.n > 1
    ]
    if rows:
        yield _table(("policy", "return in its newest episodes of training, 95%", "episodes"), rows[:_MOST])


def _half_width(n: int, m2: float) -> float:
    return student(n) * math.sqrt(m2 / (n - 1) / n)


def _policies(manifest: Manifest) -> Iterator[tuple[str, ...]]:
    counts: dict[int, int] = {}
    for k, member in enumerate(manifest.policies):
        place = counts[member.population] = counts.get(member.population, -1) + 1
        players = [p for p, facts in enumerate(manifest.game.players) if facts.population == member.population]
        shares = [manifest.meta_strategy.marginals[p][place] for p in players if manifest.meta_strategy.marginals[p]]
        share = f"{sum(shares) / len(shares):.3f}" if shares else ""
        if k < _MOST:
            plays = " ".join(map(str, players))
            yield (
                _code(_name(manifest, k)),
                plays,
                _safe(member.kind),
                _safe(member.mode),
                str(member.generation),
                share,
            )
    if len(manifest.policies) > _MOST:
        yield f"and {len(manifest.policies) - _MOST} more", "", "", "", "", ""


def _name(manifest: Manifest, k: int) -> str:
    """Return PLAYER/POLICY, as commands name it after the @."""
    member = manifest.policies[k]
    first = next(p for p, facts in enumerate(manifest.game.players) if facts.population == member.population)
    return f"{first}/{member.policy}"


def _usage(manifest: Manifest, repo: str) -> str:
    name = repo.rpartition("/")[2]
    plays = f"evaluate {name}" if all(manifest.sizes) else f"tournament {name} random"  # of some players only
    return f"""\
```bash
pip install 'ludus-rl[hub]'
ludus pull hf://{repo}
ludus list policies {name}
ludus {plays}
```

```python
import ludus

policy = ludus.load_policy("runs/{name}")
```

`ludus pull` checks every file against the manifest, and that the game here is the one of the entry. Nothing in it is code; where it names a
custom environment, that is imported only after you trust it."""


def _table(heading: Sequence[str], rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> str:
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _code(text: str) -> str:
    return f"`{re.sub(r'[`|]', ' ', ' '.join(text.split()))}`"


def _safe(text: str) -> str:
    """Return a text that is no markup."""
    return re.sub(r"([\\`*_{}\[\]<>#|])", r"\\\1", " ".join(text.split()))
