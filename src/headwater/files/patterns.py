"""Which resources are meant: include and exclude patterns over relative paths, the same for a source and a copy.

The rules, which the manual repeats:

- `*` matches any run of characters but `/`, `?` one of them, `[abc]`, `[a-z]`, `[!abc]` one of a class.
- `**` as a whole segment matches any number of folders, none too: `a/**/b`, `**/b`, `a/**`.
- A pattern without `/` (a last one does not count) matches the name at any depth; one with `/` begins at the folder.
- A pattern that ends in `/` matches folders only. A folder that matches brings everything below it.
- A pattern with `://` is of whole addresses: `*://cdn.example/**`. Only a destination has those; it refuses
  `http:x` and `*:x`, which at a source are names like all others.
- Without include patterns everything is included. What matches an exclude pattern is left out, whatever else matches.
- Upper and lower case differ; names that begin with a dot are names like all others.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Lock
from typing import Any, Final

from headwater.errors import UsageFault

_REST_SECONDS: Final = 1.0
_EMPTY: Final = "it is empty. To exclude nothing, write a line that begins with #"
_BARE_SCHEME = r"(?i:https?|ftp|file|\*):(?!//)"


class BadPattern(UsageFault):
    """A pattern is invalid, or cannot match anything."""

    code = "HW-ING-01"


def _class(text: str, start: int) -> tuple[str, int]:
    """Of the class that opens at `start`: its expression, and where the text goes on after it."""
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
    """One name. Where it has several `*`, what follows one of them is looked for once, at the first place: a later one
    would leave less for the others. So no name, which a source chooses, makes a pattern take long."""
    if text == "**":
        raise BadPattern("`**` is not a name")
    parts = [""]
    position = 0
    while position < len(text):
        character = text[position]
        if character == "[":
            piece, position = _class(text, position)
            parts[-1] += piece
            continue
        position += 1
        if character == "*":
            parts.append("")
        else:
            parts[-1] += "[^/]" if character == "?" else re.escape(character)
    first, *between = parts
    if not between:
        return first
    return first + "".join(f"(?>[^/]*?{one})" for one in between[:-1] if one) + "[^/]*" + between[-1]


def _translate(pattern: str) -> str:
    folders_only = pattern.endswith("/")
    anchored = "/" in pattern.rstrip("/")
    parts = pattern.strip("/").split("/")
    if not pattern.strip("/") or "\0" in pattern or any(part in ("", ".", "..") for part in parts):
        raise BadPattern(f"not a pattern: {pattern[:200]!r}")
    end, rest = "/" if folders_only else r"(?=/|\Z)", ".*"
    if parts[-1] == "**":
        while parts and parts[-1] == "**":
            parts.pop()
        end, rest = "/", ".+"
        if not parts:
            return ".*"
    return _blocks(parts if anchored else ["**", *parts], end) + rest


def _blocks(parts: list[str], end: str) -> str:
    """The names between two `**` are looked for once, at the first place, as what follows a `*` in a name is."""
    blocks: list[list[str]] = [[]]
    for part in parts:
        if part != "**":
            blocks[-1].append(_segment(part))
        elif blocks[-1] or len(blocks) == 1:
            blocks.append([])
    *others, last = ["/".join(block) for block in blocks]
    first, *searched = [*(one and f"{one}/" for one in others), last + end]
    return first + "".join(f"(?>(?:.*?/)??{one})" for one in searched)


def _translate_uri(pattern: str) -> str:
    scheme, _, rest = pattern.partition("://")
    if not re.fullmatch(r"[A-Za-z0-9+.*?-]+", scheme) or rest.startswith("/"):
        raise BadPattern(f"not a pattern of addresses: {pattern[:200]!r}")
    return f"{_segment(scheme)}://{_translate('/' + rest)}"


class Selection:
    """The resources that patterns leave. Paths are octets relative to the folder, without a first `/`.

    `everything`: there are no patterns. Where it is not `hidden`, no name that begins with a dot belongs. Nor does what
    lies in a folder that contains one of the `marks`, which whoever looks at the folder judges. Where it `is_fixed`,
    what belongs to it depends on paths alone.
    """

    is_fixed = True
    fault: UsageFault | None = None  # why nobody knows by now what belongs to it

    def __init__(
        self,
        include: Iterable[str] = (),
        exclude: Iterable[str] = (),
        *,
        of_addresses: bool = False,
        hidden: bool = True,
        marks: Iterable[str] = (),
    ) -> None:
        """Raises BadPattern, also for patterns of addresses where there are none."""
        self.hidden = hidden
        self.marks = tuple(map(os.fsencode, marks))
        self.is_fixed = self.is_fixed and not self.marks
        if (wrong := next((one for one in self.marks if one in (b"", b".", b"..") or b"/" in one), None)) is not None:
            raise BadPattern(f"no name of what a folder may contain: {os.fsdecode(wrong)!r}")
        self._patterns = tuple(include), tuple(exclude)
        self._of_addresses = of_addresses
        self._include, self._include_uri = _compiled(self._patterns[0], of_addresses=of_addresses)
        self._exclude, self._exclude_uri = _compiled(self._patterns[1], of_addresses=of_addresses)
        self._includes_all = self._include is None and self._include_uri is None
        self.everything = self._includes_all and self._exclude is None and self._exclude_uri is None

    def current(self) -> Selection:
        """The selection as it is now, for one look at a folder."""
        return self

    def enters(self, folder: bytes) -> bool:
        """Whether files below `folder` can belong to the set."""
        if self.hides(folder):
            return False
        return self._exclude is None or not self._exclude.fullmatch(os.fsdecode(folder) + "/")

    def hides(self, path: bytes) -> bool:
        """Whether the last name of a path is left out because it begins with a dot."""
        return not self.hidden and path.rpartition(b"/")[2].startswith(b".")

    def takes(self, file: bytes, uri: str | None = None) -> bool:
        """Whether the file belongs, given that every folder above it is entered. Without a `uri` it has no address."""
        if self.hides(file):
            return False
        if self.everything:
            return True
        path = os.fsdecode(file)
        if _fits(self._exclude, path) or _fits(self._exclude_uri, uri):
            return False
        return self._includes_all or _fits(self._include, path) or _fits(self._include_uri, uri)

    def refusal(self, path: bytes, uri: str | None = None) -> str | None:
        """The rule by which a file does not belong, in words; None: it belongs."""
        if (name := next(filter(self.hides, path.split(b"/")), None)) is not None:
            return f"the name {os.fsdecode(name)} begins with a dot"
        include, exclude = self._patterns
        for pattern in exclude:
            if not Selection((), (pattern,), of_addresses=self._of_addresses).takes(path, uri):
                return f"the exclude pattern {pattern} leaves it out"
        return None if self.takes(path, uri) else f"no include pattern matches it: {', '.join(include)}"


class RereadSelection(Selection):
    """A selection that excludes also what the lines of a file say, which is read again when it has changed.

    A line excludes also the path that it spells. One that has gone counts until the file has been at rest for a moment:
    nothing becomes public because somebody writes the file anew. While it is empty, or cannot be read, `fault` says so,
    and what it has said last counts. For several threads.
    """

    is_fixed = False

    def __init__(self, include: Sequence[str], exclude: Sequence[str], file: str, **options: Any) -> None:
        """Raises UsageFault, also where the file cannot be read."""
        super().__init__(include, exclude, **options)
        self._exclude_always, self._selection = exclude, partial(Selection, include, **options)
        self._file, self._lock = file, Lock()
        self._now: Selection = self
        self._lines: frozenset[str] | None = None
        self._state: tuple[int, ...] = ()
        self._is_at_rest, self._rests_at = False, 0.0
        self.current()
        if self.fault is not None:
            raise self.fault

    def current(self) -> Selection:
        """The selection as the file says by now; the same object as long as nothing has changed."""
        with self._lock:
            try:
                self._look()
            except (OSError, BadPattern) as cause:
                self._state = () if isinstance(cause, OSError) else self._state
                self.fault = UsageFault(f"exclude_file cannot be read: {cause}", code="HW-ING-25", where=self._file)
            return self._now

    def _look(self) -> None:
        found, now = os.stat(self._file), time.monotonic()
        state = found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino
        is_new, self._state = state != self._state, state
        if not is_new and (self._is_at_rest or now < self._rests_at):
            return
        self._is_at_rest, self._rests_at = not is_new, now + _REST_SECONDS
        lines = frozenset(lines_of(self._file, _EMPTY)) | ((is_new and self._lines) or frozenset())
        if self.fault is not None or lines != self._lines:
            spelled = [one.replace("[", "[[]") for one in lines if "[" in one]
            self._now, self._lines = self._selection(exclude=[*self._exclude_always, *lines, *spelled]), lines
        self.fault = None


def first_that_fits(patterns: Iterable[str]) -> Callable[[str], int | None]:
    """Gives the number, from 0, of the first pattern that a path fits. Raises BadPattern."""
    expression = _joined(f"({_translate(one)})" for one in patterns)

    def first(path: str) -> int | None:
        found = None if expression is None else expression.fullmatch(path)
        return None if found is None else (found.lastindex or 1) - 1

    return first


def lines_of(file: str, refused_if_empty: str | None = None) -> list[str]:
    """The lines of a file of patterns without those that are blank or begin with `#`. Raises OSError, also with the
    words by which a file without any text is refused."""
    with open(file, "rb") as opened:
        lines = opened.read().removeprefix(b"\xef\xbb\xbf").decode("utf-8", "surrogateescape").split("\n")
    if refused_if_empty and not any(map(str.strip, lines)):
        raise OSError(refused_if_empty)
    return [one.strip() for one in lines if one.strip() and not one.lstrip().startswith("#")]


def _compiled(patterns: Iterable[str], *, of_addresses: bool) -> tuple[re.Pattern[str] | None, re.Pattern[str] | None]:
    listed = list(patterns)
    if of_addresses and (bare := next((one for one in listed if re.match(_BARE_SCHEME, one)), None)):
        raise BadPattern(f"a pattern of addresses has `://`, and one of names `[:]`: {bare[:200]!r}")
    if not of_addresses and (address := next((one for one in listed if "://" in one), None)):
        raise BadPattern(f"a file of a folder has no address: {address[:200]!r}")
    paths = _joined(_translate(one) for one in listed if "://" not in one)
    return paths, _joined(_translate_uri(one) for one in listed if "://" in one)


def _joined(expressions: Iterable[str]) -> re.Pattern[str] | None:
    found = "|".join(f"(?:{one})" for one in expressions)
    try:
        return re.compile(found, re.DOTALL) if found else None
    except re.error as cause:
        raise BadPattern(f"a class in a pattern cannot be read: {cause}") from cause


def _fits(expression: re.Pattern[str] | None, text: str | None) -> bool:
    return expression is not None and text is not None and expression.fullmatch(text) is not None
