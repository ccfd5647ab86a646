"""The sets of copies, by the names under which a source publishes them, and the folders of their files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from contextlib import closing, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar

from headwater.copy_state import FOLDER, STATE
from headwater.errors import HeadwaterError, UsageFault
from headwater.publish.site import RESERVED
from headwater.source.config import SetConfig

_UNFIT = re.compile("[^a-z0-9._-]+")
_LONGEST_NAME = 60
_SHOWN = 10


class UnknownCopySet(UsageFault):
    """The copy has no set of this name, neither its own name nor the one under which it would be published."""

    code: ClassVar[str] = "HW-CFG-09"


def has_copy(folder: Path) -> bool:
    """Whether the folder is a copy that a destination has made."""
    return (folder / FOLDER / STATE).is_file()


def published_names(copy: Path, wanted: str | None) -> dict[str, str]:
    """The sets of a copy that are to be published, all or the one that is `wanted`; none where there is no copy yet.

    Raises UnknownCopySet, and faults of the copy's state.
    """
    names = names_in_copy(copy)
    found = {ours: theirs for ours, theirs in names.items() if wanted is None or wanted in (ours, theirs)}
    if names and not found:
        meant = get_close_matches(str(wanted), [*names, *names.values()], 1)
        hint = f"Did you mean {meant[0]}? " if meant else ""
        has = ", ".join(list(names)[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
        raise UnknownCopySet(f"the copy has no set {wanted!r}", where=str(copy), advice=f"{hint}The copy has {has}.")
    return found


def names_in_copy(copy: Path) -> dict[str, str]:
    """The names of a copy's sets, by the names that sets of a source may have. Raises faults of the copy's state."""
    from headwater.copy_state import CopyStateReader, copied_sets

    if not has_copy(copy):
        return {}
    state = CopyStateReader(copy)
    try:
        with state.read() as t:
            names = [one.name for one in copied_sets(t)]
    finally:
        state.close()
    found: dict[str, str] = {}
    for name in names:
        plain = _UNFIT.sub("-", name.lower()).strip("-._")[:_LONGEST_NAME] or "set"
        free = (plain if number == 1 else f"{plain}-{number}" for number in itertools.count(1))
        found[next(one for one in free if one not in found and one not in RESERVED)] = name
    return found


def copy_folders(sets: Iterable[SetConfig]) -> dict[str, str]:
    """The folder within its copy of each set that publishes one, as the copy's state says; while that is not known, "".

    With that come a reader of databases and the intake, which sets that publish no copies do not need.
    """
    by_copy: dict[str, list[SetConfig]] = {}
    for one in sets:
        if one.copy is not None:
            by_copy.setdefault(one.copy, []).append(one)
    if not by_copy:
        return {}
    from headwater.copy_state import CopyStateReader, copied_sets
    from headwater.ingest.copy_intake import chosen

    found: dict[str, str] = {}
    for copy, some in by_copy.items():
        found |= {one.name: "" for one in some}
        with suppress(HeadwaterError), closing(CopyStateReader(Path(copy))) as state, state.read() as t:
            held = copied_sets(t)  # where it cannot be read, the set says so as long as that lasts
            for one in some:
                copied = chosen(held, one.copy_set, one.name, None)
                found[one.name] = copied.folder if copied is not None else ""
    return found
