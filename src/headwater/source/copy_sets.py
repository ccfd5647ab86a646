"""The sets of a source that publish copies: makes intakes and tasks from their configuration."""

from __future__ import annotations

import datetime as dt
import itertools
import re
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from headwater.catalog.interface import Catalog
from headwater.copies.schema import FOLDER, STATE
from headwater.errors import UsageFault
from headwater.progress import Listener
from headwater.publish.site import RESERVED, Site
from headwater.source.config import SetConfig

if TYPE_CHECKING:  # what folders alone do not need is imported where it is used: that is a part of a start
    from headwater.ingest.copy.intake import CopyIntake
    from headwater.source.published_copy import CopyTask
    from headwater.source.scheduler import Scheduler
    from headwater.source.worker import SetWorker, SourceContext


_UNFIT = re.compile("[^a-z0-9._-]+")
_LONGEST_NAME = 60
_SHOWN = 10


class UnknownCopySet(UsageFault):
    """The copy has no set of this name, neither its own name nor the one under which it would be published."""

    code: ClassVar[str] = "HW-CFG-09"


class CopySets:
    """Those among `sets` that publish a copy. `roots` are the folders that their files lie below."""

    def __init__(self, sets: Iterable[SetConfig], site: Site) -> None:
        self._site = site
        self._configs = {one.name: one for one in sets if one.copy is not None}
        self._folders: dict[str, str] = {}
        if self._configs:
            self._folders = _folders(self._configs.values())
        self.roots = {name: str(Path(str(one.copy)) / self._folders[name]) for name, one in self._configs.items()}

    def intakes(
        self, catalog: Catalog, clock: Callable[[], dt.datetime], listener: Listener, stop: Callable[[], bool]
    ) -> dict[str, CopyIntake]:
        """The intake of each set."""
        if not self._configs:
            return {}
        from headwater.ingest.copy.intake import CopyIntake, CopyPlace

        found = {}
        for name, one in self._configs.items():
            place = CopyPlace(
                name=name,
                root=Path(str(one.copy)),
                folder=self._folders[name],
                wanted=one.copy_set,
                base_url=self._site.base_url,
                prefix=self._site.resource_prefix(name),
            )
            found[name] = CopyIntake(catalog, place, clock, listener, stop)
        return found

    def workers(
        self, context: SourceContext, intakes: dict[str, CopyIntake], stop: Callable[[], bool]
    ) -> list[SetWorker]:
        """Who keeps the sets current."""
        if not intakes:
            return []
        from headwater.source.published_copy import PublishedCopy
        from headwater.source.worker import SetWorker

        for intake in intakes.values():
            intake.may_record = context.may_record
        return [SetWorker(context, PublishedCopy(context, intake), stop) for intake in intakes.values()]

    def schedule(self, sets: Iterable[SetWorker], scheduler: Scheduler, listener: Listener) -> list[CopyTask]:
        """Have this scheduler keep the sets current: a task for each copy, to be closed when the scheduler has ended.

        Nothing is there to be done without sets that publish copies.
        """
        by_copy: dict[str, list[SetWorker]] = {}
        for one in sets:
            by_copy.setdefault(str(self._configs[one.name].copy), []).append(one)
        if not by_copy:
            return []
        from headwater.source.published_copy import CopyTask

        tasks = [CopyTask(Path(copy), some, listener) for copy, some in by_copy.items()]
        for task in tasks:
            scheduler.add(task)
        return tasks

    def copy_of(self, name: str) -> Path:
        """The folder of the copy that a set publishes."""
        return Path(str(self._configs[name].copy))


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
    from headwater.copies.copy_state import CopyStateReader, copied_sets

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


def _folders(configs: Iterable[SetConfig]) -> dict[str, str]:
    """The folder of each set within its copy, as the copy's state says; the copy's own where that is not known yet."""
    from headwater.copies.copy_state import CopyStateReader, copied_sets
    from headwater.errors import HeadwaterError
    from headwater.ingest.copy.intake import chosen

    found: dict[str, str] = {}
    by_copy: dict[str, list[SetConfig]] = {}
    for one in configs:
        by_copy.setdefault(str(one.copy), []).append(one)
    for copy, some in by_copy.items():
        found |= {one.name: "" for one in some}
        try:
            state = CopyStateReader(copy)
        except HeadwaterError:  # the set says so as long as it lasts
            continue
        try:
            with state.read() as t:
                held = copied_sets(t)
            for one in some:
                copied = chosen(held, one.copy_set, one.name, None)
                found[one.name] = copied.folder if copied is not None else ""
        except HeadwaterError:
            continue
        finally:
            state.close()
    return found
