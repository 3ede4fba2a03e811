"""The answer to a shell that asks how a command line may continue: one candidate a line, as its script reads them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from ludus.cli.completion.candidates import Candidate, complete

_UNSAFE = re.compile(r"[^\w@%+=:,./~-]")
_PREFIXES = ("@", "$")
"""Characters at which bash ends a word, and which belong to the next one."""
_ASSIGNMENT = re.compile(r"\w+=")


def answer(arguments: Sequence[str]) -> None:
    """Write candidates to standard output; nothing where there are none, or something is wrong (LUDUS_DEBUG=1 says what).

    Args:
        arguments: bash, the line up to the cursor, and the characters that break words there; zsh or fish, and the words after `ludus`.
    """
    try:
        lines = _lines(*arguments)
    except Exception:  # a message would end up in the line that is typed
        if os.environ.get("LUDUS_DEBUG", "") not in ("", "0"):
            raise
        return
    sys.stdout.write("".join(f"{line}\n" for line in lines))


def _lines(shell: str, *arguments: str) -> list[str]:
    if shell == "bash":
        return for_bash(*arguments)
    if shell == "zsh":
        return [f"{int(one.ends)}\t{one.text}\t{one.help}" for one in complete(arguments)]
    return [f"{one.text}\t{one.help}" for one in complete(arguments)]


def for_bash(line: str, breaks: str) -> list[str]:
    """Return what replaces the part of the last word that bash takes for a word.

    Args:
        line: Up to the cursor.
        breaks: COMP_WORDBREAKS: bash also ends words at = and :, within what is one word to a command.

    Returns:
        Texts with the quotes that they need, and with a space where the word is complete.
    """
    words, start, quote = split(line)
    while words and _ASSIGNMENT.match(words[0]):
        words = words[1:]
    if len(words) < 2:
        return []
    candidates = complete(words[1:])
    if quote:
        return [one.text for one in candidates] if start == quote else []
    last = max((k for k, each in enumerate(start) if each in breaks and start[k - 1 : k] != "\\"), default=-1)
    first = last if start[last : last + 1] in _PREFIXES else last + 1
    return [text[first:] for one in candidates if (text := _quoted(one)).startswith(start[:first])]


def _quoted(candidate: Candidate) -> str:
    return _UNSAFE.sub(r"\\\g<0>", candidate.text) + (" " if candidate.ends else "")


def split(line: str) -> tuple[list[str], str, str]:
    """Return the words of a line without quotes, the last one as it is written (where a quote is open: up to that), and an open quote."""
    words, word, raw, quote, escaped, inside = list[str](), "", "", "", False, False
    for character in line:
        before, raw = raw, raw + character
        if escaped:
            word, escaped = word + character, False
        elif character == "\\" and quote != "'":
            escaped = inside = True
        elif quote:
            word, quote = (word, "") if character == quote else (word + character, quote)
        elif character in "'\"":
            quote, inside, opened = character, True, before + character
        elif character.isspace():
            words, word, raw, inside = [*words, word] if word or inside else words, "", "", False
        else:
            word += character
    return [*words, word], opened if quote else raw, quote
