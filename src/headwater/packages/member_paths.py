"""Names of members: which member a manifest's `path` means, which names are refused, and which collide."""

import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import unquote_to_bytes

from headwater.packages.faults import BadPath, PackageLimits, PackageTooLarge, shown

MANIFEST = "manifest.xml"
"""The member that every package must have at its root (RS-RDM-01, RS-CDM-01)."""

HERE = "./"
"""How names may begin in a package of a whole folder; they mean the same without it."""

MOST_SEGMENTS = 100
"""A name with more is an attack on whoever makes folders of it."""

_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\\]|^[A-Za-z]:|^/|(?:^|/)\.{0,2}(?=/|$)")
"""Control characters and back-slashes anywhere; a drive letter or a slash in front; a segment that is empty, `.` or
`..` (RS-EXT-07, DST-P3)."""

is_plain = re.compile(r"(?:[A-Za-z0-9_-][\w.-]*/)*[A-Za-z0-9_-][\w.-]*\Z", re.ASCII).match
"""Whether nothing of a name has to be looked at more closely, but for the number of its segments, as with most."""

_CLIMBS = re.compile(r"(?:^|[/\\])\.\.(?:[/\\]|$)")


def possible_names(path: str) -> tuple[str, ...]:
    """The names of the member that a manifest's `path` may mean, in this order: the literal one, which is it with one
    leading slash, or `./`, less (DST-P3), then the percent-decoded one where it is another and as safe (AMB-36). Raises
    BadPath when the literal one is refused."""
    name = path[1:] if path.startswith("/") else path.removeprefix(HERE)
    check_name(name)
    try:
        decoded = unquote_to_bytes(name).decode()
        check_name(decoded)
    except (UnicodeDecodeError, BadPath):
        return (name,)
    return (name,) if decoded == name else (name, decoded)


def check_name(name: str) -> None:
    """Refuse a name that is no plain relative path of a file. Raises BadPath."""
    if is_plain(name) and name.count("/") < MOST_SEGMENTS:
        return
    if _UNSAFE.search(name) or name.count("/") >= MOST_SEGMENTS:
        raise BadPath(f"the name {shown(name)} is refused")
    if not name.isascii() and _CLIMBS.search(unicodedata.normalize("NFKC", name)):
        raise BadPath(f"the name {shown(name)} is refused: normalised, it leads upwards")


def folded(name: str) -> str:
    """What two names have in common that are one on a file system that normalises Unicode or ignores case."""
    if name.isascii():
        return name.lower()
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", name).casefold())


class MemberNames:
    """The names of one package: no two may be one after Unicode normalisation or case folding, and no file may be a
    folder of another (DST-P3). What it remembers is bounded by the limits."""

    def __init__(self, limits: PackageLimits | None = None) -> None:
        self._limits = limits or PackageLimits()
        self._files: set[str] = set()
        self._folders: set[str] = set()
        self._octets = 0

    def __len__(self) -> int:
        """How many files there are."""
        return len(self._files)

    def add(self, name: str) -> None:
        """Take the name of a file in. Raises BadPath when it is refused or collides, PackageTooLarge."""
        check_name(name)
        key = folded(name)
        if key in self._files or key in self._folders:
            raise BadPath(f"{shown(name)} is the name of another member, or differs by case or normalisation only")
        if (parent := key.rpartition("/")[0]) and parent not in self._folders:
            self._remember(self._folders, self._new_folders(key, name))
        self._remember(self._files, (key,))

    def add_folder(self, name: str) -> None:
        """Take the name of a folder in, without its last slash; it may come several times. Raises as `add` does."""
        check_name(name)
        self._remember(self._folders, self._new_folders(f"{folded(name)}/", name))

    def _new_folders(self, key: str, name: str) -> list[str]:
        new: list[str] = []
        parent = key.rpartition("/")[0]
        while parent and parent not in self._folders:
            if parent in self._files:
                raise BadPath(f"{shown(name)} is, or lies in, a folder that is a file")
            new.append(parent)
            parent = parent.rpartition("/")[0]
        return new

    def _remember(self, names: set[str], keys: Sequence[str]) -> None:
        self._octets += sum(map(len, keys))
        if self._octets > self._limits.names_octets:
            raise PackageTooLarge(f"names and folders of more than {self._limits.names_octets:,} characters")
        names.update(keys)
        if len(names) > self._limits.members:
            raise PackageTooLarge(f"more than {self._limits.members:,} members or folders")
