"""The folders of sets: how they are scanned, with which digests; whose paths are whose; what sets a copy has."""

import itertools
import os
import re
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import ClassVar

from headwater.catalog import catalog_url
from headwater.copy_state import FOLDER, STATE, CopyStateReader, copied_sets
from headwater.errors import HeadwaterError, UsageFault
from headwater.files.file_copies import ALGORITHM as VERSION_ALGORITHM
from headwater.files.file_copies import LINK
from headwater.files.folder_marks import is_state, is_tree
from headwater.files.media_types import MediaTypes
from headwater.files.patterns import RereadSelection, Selection
from headwater.ingest.folder.walk import CanonicalHashes, Folder, PathFilter, above
from headwater.publish.site import RESERVED, Site
from headwater.source.config import SetConfig, SourceConfig
from headwater.spec.records import HASHLIB

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
        hint = "".join(f"Did you mean {one}? " for one in get_close_matches(str(wanted), [*names, *names.values()], 1))
        has = ", ".join(list(names)[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
        raise UnknownCopySet(f"the copy has no set {wanted!r}", where=str(copy), advice=f"{hint}The copy has {has}.")
    return found


def names_in_copy(copy: Path) -> dict[str, str]:
    """The names of a copy's sets, by the names that sets of a source may have. Raises faults of the copy's state."""
    if not has_copy(copy):
        return {}
    with closing(CopyStateReader(copy)) as state, state.read() as t:
        names = [one.name for one in copied_sets(t)]
    found: dict[str, str] = {}
    for name in names:
        found[free_name(name, found)] = name
    return found


def free_name(name: str, taken: Container[str]) -> str:
    """The name, as a set may have it, or the first with a number that is neither `taken` nor reserved."""
    plain = plain_name(name)
    free = (plain if number == 1 else f"{plain}-{number}" for number in itertools.count(1))
    return next(one for one in free if one not in taken and one not in RESERVED)


def plain_name(name: str) -> str:
    """The name in the characters that names of sets have."""
    return _UNFIT.sub("-", name.lower()).strip("-._")[:_LONGEST_NAME] or "set"


def copy_folders(sets: Iterable[SetConfig]) -> dict[str, str]:
    """The folder within its copy of each set that publishes one, as the copy's state says; while that is not known, "".

    With that comes the intake, which sets that publish no copies do not need.
    """
    by_copy: dict[str, list[SetConfig]] = {}
    for one in sets:
        if one.copy is not None:
            by_copy.setdefault(one.copy, []).append(one)
    if not by_copy:
        return {}
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


# Folders that are scanned: ours are left out


class FolderOverlap(UsageFault):
    """A folder to read and a folder to write are the same, or one is wrongly inside the other."""

    code: ClassVar[str] = "HW-OWN-03"


class UnknownHash(UsageFault):
    """Headwater cannot compute this digest."""

    code: ClassVar[str] = "HW-OWN-04"


_OF_A_TREE = "Name the folder that it was made from. Any web server can show the output itself."


def scan_settings(config: SetConfig, site: Site, whole: SourceConfig) -> Folder:
    """How the set's folder is scanned, what is ours left out. Raises FolderOverlap, UnknownHash, BadPattern."""
    if unknown := next((name for name in config.hashes if name not in HASHLIB), None):
        raise UnknownHash(f"unknown hash: {unknown!r}", where=config.name)
    root = os.path.realpath(os.fsencode(config.files))
    written = (whole.state, whole.documents, whole.to)
    ours = [os.path.realpath(os.fsencode(one)) for one in written if one is not None]
    place = whole.place_of(config)
    if place is not None and (root == place or root.startswith(place + b"/")):
        raise FolderOverlap("the folder is where its own files would be placed", where=config.files)
    _refuse_state(root, ours, config.files)
    # Octets of changes are found by their SHA-256, and old harvesters know MD5 alone.
    algorithms, canonical = config.hashes, None
    if config.classic and "md5" not in algorithms:
        algorithms = ("md5", *algorithms)
    needs_sha256 = config.change_dump or config.patch or config.versions or config.canonical_hash is not None
    if needs_sha256 and VERSION_ALGORITHM not in algorithms:
        algorithms = (*algorithms, VERSION_ALGORITHM)
    prefix = site.resource_prefix(config.name)
    if config.canonical_hash is not None:
        canonical = CanonicalHashes(prefix=prefix, replaces=config.canonical_hash == "instead")
    return Folder(
        root=os.fsencode(config.files),
        selection=_selection(config),
        algorithms=algorithms,
        max_delete=config.max_delete,
        avoid=(*(one for one in ours if one.startswith(root.rstrip(b"/") + b"/")), *own_files(whole)),
        base_url=site.base_url,
        place=place,
        place_mode=whole.resources or LINK,
        uri_prefix_length=len(prefix),
        settle_seconds=config.settle_seconds,
        canonical=canonical,
        types=MediaTypes(config.types or {}, config.types_file) if config.types or config.types_file else None,
    )


def _selection(config: SetConfig) -> Selection:
    include, exclude, marks = config.include, config.exclude, config.exclude_folders_with
    if config.exclude_file is None:
        return Selection(include, exclude, hidden=config.hidden, marks=marks)
    return RereadSelection(include, exclude, config.exclude_file, hidden=config.hidden, marks=marks)


def own_files(config: SourceConfig) -> list[bytes]:
    """The real paths of the files that a source needs itself, and never publishes."""
    notify, hub = config.notify, config.hub
    found = [config.configuration, config.log_file]
    found += [path for one in config.sets for path in (one.token_file, one.types_file, one.exclude_file)]
    found += [path for one in (notify, hub) if one is not None for path in (one.token_file, one.authorities)]
    found += [] if hub is None else [hub.state]
    catalog = catalog_url.place_of(config.catalog or str(Path(config.state) / "catalog.sqlite"))
    if isinstance(catalog, Path):
        found += [f"{catalog}{end}" for end in ("", "-wal", "-shm", "-journal")]
    return [os.path.realpath(os.fsencode(one)) for one in found if one is not None]


class _PushPathFilter(PathFilter):
    """The paths of a push set, whose folder no scan looks at, which would leave out the states of all commands."""

    def __init__(self, root: bytes, selection: Selection, avoid: Iterable[bytes]) -> None:
        super().__init__(root, selection, avoid)
        self._root = root

    def takes(self, relative: bytes) -> bool:
        """Whether it may be served: as the settings say, and no state lies there."""
        return super().takes(relative) and not any(is_state(self._root + b"/" + one) for one in above(relative))


def refuse_overlap_of_copies(config: SourceConfig) -> None:
    """See that no copy that is published and no static tree lie in each other, and that the tree is no copy, whose next
    audit would find our documents in it. Raises FolderOverlap."""
    if config.to is None:
        return
    out = Path(os.path.realpath(config.to))
    for copy in (Path(os.path.realpath(one.copy)) for one in config.sets if one.copy is not None):
        if copy == out or copy in out.parents or out in copy.parents:
            raise FolderOverlap("the copy and the output lie in each other", where=config.to)
    if (out / FOLDER / STATE).is_file():
        advice = "Name another folder with --to; --copy publishes a copy."
        raise FolderOverlap("the output is a copy that `headwater sync` keeps", where=config.to, advice=advice)


def refuse_overlap_of_datasets(config: SourceConfig) -> None:
    """See that no dataset is made of what we write ourselves. Raises FolderOverlap."""
    ours = [config.state, config.documents, config.to]
    folders = [os.path.join(os.path.realpath(one), "") for one in ours if one is not None]
    for one in config.sets:
        made_of = one.dataset or one.oxigraph
        path = os.path.join(os.path.realpath(made_of or os.devnull), "")
        if any(path.startswith(other) or other.startswith(path) for other in folders):
            raise FolderOverlap("the dataset's files overlap with the state or the output", where=made_of)


def _refuse_state(root: bytes, ours: Sequence[bytes], where: str) -> None:
    if root in ours:
        raise FolderOverlap("the folder is itself the output or the state", where=where)
    if is_state(root):
        raise FolderOverlap("the folder holds the state of a Headwater command", where=where)
    if is_tree(root):
        raise FolderOverlap("the folder is the output of `headwater publish`", where=where, advice=_OF_A_TREE)


def path_filters(
    config: SourceConfig, folders: Mapping[str, Folder], roots: Mapping[str, str]
) -> dict[str, PathFilter]:
    """Which paths of the sets' folders belong to them; of other sets all below their roots but ours, whatever is sent.

    Raises FolderOverlap.
    """
    found = {name: PathFilter(one.root, one.selection, one.avoid) for name, one in folders.items()}
    ours = [os.path.realpath(os.fsencode(one)) for one in (config.state, config.documents) if one is not None]
    ours += own_files(config)
    for one in config.sets:
        if not one.files and (root := roots.get(one.name)) is not None:
            _refuse_state(os.path.realpath(os.fsencode(root)), ours, root)
            kind = PathFilter if one.copy is not None else _PushPathFilter
            found[one.name] = kind(os.fsencode(root), Selection(), ours)
    return found
