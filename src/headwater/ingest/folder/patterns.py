"""Which files of a folder belong to the set: include and exclude patterns over paths relative to the folder.

The rules, which the manual repeats:

- `*` matches any run of characters but `/`, `?` one of them, `[abc]`, `[a-z]`, `[!abc]` one of a class.
- `**` as a whole segment matches any number of folders, none too: `a/**/b`, `**/b`, `a/**`.
- A pattern without `/` (a last one does not count) matches the name at any depth; one with `/` begins at the folder.
- A pattern that ends in `/` matches folders only. A folder that matches brings everything below it.
- Without include patterns everything is included. What matches an exclude pattern is left out, whatever else matches.
- Upper and lower case differ; names that begin with a dot are names like all others.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import ClassVar

from headwater.errors import UsageFault


class BadPattern(UsageFault):
    """A pattern that cannot match anything or cannot be read."""

    code: ClassVar[str] = "HW-ING-01"
    advice: ClassVar[str] = "Patterns look like *.pdf, drafts/, reports/**/*.xml."


def _class(text: str, start: int) -> tuple[str, int]:
    """The regular expression of the class that opens at `start`, and where the text goes on after it."""
    end = text.find("]", start + 2 + (text[start + 1 : start + 2] == "!"))
    if end < 0:
        return re.escape("["), start + 1
    inner = text[start + 1 : end]
    negated, inner = inner.startswith("!"), inner.removeprefix("!")
    members = []
    while inner:
        if inner[1:2] == "-" and inner[2:]:
            members.append(f"{re.escape(inner[0])}-{re.escape(inner[2])}")
            inner = inner[3:]
        else:
            members.append(re.escape(inner[0]))
            inner = inner[1:]
    # A class never matches the slash, as in the shell.
    return f"(?![/])[{'^' if negated else ''}{''.join(members)}]", end + 1


def _segment(text: str) -> str:
    if text == "**":
        raise BadPattern("`**` is not a name")
    pieces: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == "[":
            piece, position = _class(text, position)
        else:
            piece = {"*": "[^/]*", "?": "[^/]"}.get(character) or re.escape(character)
            position += 1
        pieces.append(piece)
    return "".join(pieces)


def _translate(pattern: str) -> str:
    folders_only = pattern.endswith("/")
    anchored = "/" in pattern.rstrip("/")
    parts = pattern.strip("/").split("/")
    if not pattern.strip("/") or "\0" in pattern or any(part in ("", ".", "..") for part in parts):
        raise BadPattern(f"not a pattern: {pattern[:200]!r}")
    tail = ""
    if parts[-1] == "**":
        parts.pop()
        tail, folders_only = "/.+", False
        if not parts:
            return ".*"
    expression = "" if anchored else "(?:.*/)?"
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        expression += "(?:.*/)?" if part == "**" else _segment(part) + ("" if last else "/")
    return expression + (tail or ("/.*" if folders_only else "(?:/.*)?"))


def _compile(patterns: Iterable[str]) -> re.Pattern[str] | None:
    expressions = [_translate(pattern) for pattern in patterns]
    try:
        return re.compile("|".join(f"(?:{one})" for one in expressions), re.DOTALL) if expressions else None
    except re.error as cause:
        raise BadPattern(f"a class in a pattern cannot be read: {cause}") from cause


class Selection:
    """The files that patterns leave. Paths are octets relative to the folder, without a first `/`."""

    def __init__(self, include: Iterable[str] = (), exclude: Iterable[str] = ()) -> None:
        self._include = _compile(include)
        self._exclude = _compile(exclude)
        self.everything = self._include is None and self._exclude is None

    def enters(self, folder: bytes) -> bool:
        """Whether files below `folder` can belong to the set."""
        return self._exclude is None or not self._exclude.fullmatch(os.fsdecode(folder) + "/")

    def takes(self, file: bytes) -> bool:
        """Whether the file belongs, given that every folder above it is entered."""
        if self.everything:
            return True
        path = os.fsdecode(file)
        if self._exclude is not None and self._exclude.fullmatch(path):
            return False
        return self._include is None or self._include.fullmatch(path) is not None
