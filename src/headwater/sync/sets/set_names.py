"""Set names: made of the addresses of Capability Lists, unique in one source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

_GENERIC = re.compile(
    r"(capability[-_]?list|capabilities|caps?|resource[-_]?list|change[-_]?list|sitemap|index|)\Z", re.I
)
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
_NUMBERED = re.compile(r"(.+)-[0-9]+\Z")
_LONGEST_PART = 80
_LONGEST_NAME = 200  # a set's folder has its name, of which file systems take 255 octets; a number may follow


class SetNames:
    """The set names in use, compared without regard to case."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = {name.lower() for name in taken}
        self._numbers: dict[str, int] = {}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._taken

    def free(self, name: str) -> str:
        """The name, or one like it that is not taken yet; now it is."""
        return self.take(name) if name not in self else self.numbered(name)

    def take(self, name: str) -> str:
        """This name, taken from now on."""
        self._taken.add(name.lower())
        return name

    def numbered(self, stem: str) -> str:
        """The stem with the lowest number that makes a name which is not taken yet; now it is."""
        number = self._numbers.get(stem.lower(), 2)
        while f"{stem}-{number}" in self:
            number += 1
        self._numbers[stem.lower()] = number + 1
        return self.take(f"{stem}-{number}")


def names_of(identities: Sequence[str]) -> list[str]:
    """A name for each of these addresses, in their order: the plainest that no earlier one has."""
    names = SetNames()
    found = []
    for identity in identities:
        plain, stem = _plain(identity)
        free = next((name for name in plain if name not in names), None)
        found.append(names.numbered(stem) if free is None else names.take(free))
    return found


class NameCandidates:
    """Which of these addresses could get a name, whichever of the others turn out to be sets."""

    def __init__(self, identities: Sequence[str]) -> None:
        self.names = dict(zip(names_of(identities), identities, strict=True))
        """The address of each name, where all of them are sets."""

        self._owners: dict[str, set[str]] = {}
        for identity in identities:
            plain, stem = _plain(identity)
            for name in (*plain, stem):
                self._owners.setdefault(name.lower(), set()).add(identity)

    def owner(self, name: str) -> str | None:
        """The only address that can have this name, and has it; None: there is none, or more than one can."""
        lowered = name.lower()
        able = set(self._owners.get(lowered, ()))
        numbered = _NUMBERED.match(lowered)
        if numbered is not None:
            able |= self._owners.get(numbered[1], set())
        identity = self.names.get(name)
        return identity if able == {identity} else None


def _plain(identity: str) -> tuple[list[str], str]:
    """The names that fit an address, the plainest first, and what a number is put to when all are taken."""
    path = urlsplit(identity).path
    folders = [_fit(part) for part in path.split("/")[:-1] if _fit(part)]
    stem = _fit(path.rpartition("/")[2].partition(".")[0])
    generic = _GENERIC.match(stem) is not None
    first = [folders[-1]] if generic and folders else [stem] if stem else []
    joined = "-".join([*folders, stem or "set"])[-_LONGEST_NAME:].lstrip("-._")
    return [*first, joined], (folders or [stem or "set"])[-1]


def _fit(text: str) -> str:
    return _UNSAFE.sub("_", text).strip("._")[:_LONGEST_PART]
