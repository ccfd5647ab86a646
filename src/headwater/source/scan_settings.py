"""How the folders of sets are scanned, and which of their paths belong to the sets: ours are left out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from headwater.catalog import catalog_url
from headwater.copy_state import FOLDER, STATE
from headwater.errors import UsageFault
from headwater.files.file_copies import ALGORITHM as VERSION_ALGORITHM
from headwater.files.folder_marks import is_state, is_tree
from headwater.files.patterns import Selection
from headwater.ingest.folder.walk import CanonicalHashes, Folder, PathFilter, above
from headwater.publish.site import Site
from headwater.source.config import SetConfig, SourceConfig
from headwater.spec.hashes import HASHLIB


class FolderOverlap(UsageFault):
    """A folder to read and a folder to write are the same, or one is wrongly inside the other."""

    code: ClassVar[str] = "HW-OWN-03"


class UnknownHash(UsageFault):
    """Headwater cannot compute this digest."""

    code: ClassVar[str] = "HW-OWN-04"


_OF_A_TREE = "Name the folder that it was made of; the output itself is shown by any web server."


class StaticTree(msgspec.Struct, frozen=True):
    """A static tree: documents and resources below `folder`; `mode` is link, copy, or None for no resources."""

    folder: Path
    mode: str | None


def scan_settings(config: SetConfig, site: Site, tree: StaticTree | None, whole: SourceConfig) -> Folder:
    """How the set's folder is scanned, what is ours left out. Raises FolderOverlap, UnknownHash, BadPattern."""
    if unknown := next((name for name in config.hashes if name not in HASHLIB), None):
        raise UnknownHash(f"unknown hash: {unknown!r}", where=config.name)
    root = os.path.realpath(os.fsencode(config.files))
    ours = [os.path.realpath(os.fsencode(one)) for one in (whole.state, whole.documents) if one is not None]
    place = None
    if tree is not None:
        ours.append(os.path.realpath(os.fsencode(tree.folder)))
        if tree.mode is not None:
            place = os.path.join(ours[-1], os.fsencode(config.name), b"resources")
            if root == place or root.startswith(place + b"/"):
                raise FolderOverlap("the folder is where its own files would be placed", where=config.files)
    _refuse_state(root, ours, config.files)
    return Folder(
        root=os.fsencode(config.files),
        selection=Selection(config.include, config.exclude, hidden=config.hidden),
        algorithms=_algorithms(config),
        max_delete=config.max_delete,
        avoid=(*(one for one in ours if one.startswith(root.rstrip(b"/") + b"/")), *own_files(whole)),
        base_url=site.base_url,
        place=place,
        place_mode=(tree.mode if tree is not None else None) or "link",
        uri_prefix_length=len(site.resource_prefix(config.name)),
        settle_seconds=config.settle_seconds,
        canonical=_canonical_hashes(config, site),
    )


def own_files(config: SourceConfig) -> list[bytes]:
    """The real paths of the files that a source needs itself, and never publishes."""
    notify, hub = config.notify, config.hub
    found = [config.configuration, *(one.token_file for one in config.sets)]
    found += [path for one in (notify, hub) if one is not None for path in (one.token_file, one.authorities)]
    found += [] if hub is None else [hub.state]
    catalog = catalog_url.place_of(config.catalog or str(Path(config.state) / "catalog.sqlite"))
    if isinstance(catalog, Path):
        found += [f"{catalog}{end}" for end in ("", "-wal", "-shm", "-journal")]
    return [os.path.realpath(os.fsencode(one)) for one in found if one is not None]


def _canonical_hashes(config: SetConfig, site: Site) -> CanonicalHashes | None:
    if config.canonical_hash is None:
        return None
    return CanonicalHashes(prefix=site.resource_prefix(config.name), replaces=config.canonical_hash == "instead")


def _algorithms(config: SetConfig) -> tuple[str, ...]:
    """The digests to state; octets of changes are found by their SHA-256, and old harvesters know MD5 alone."""
    algorithms = config.hashes
    if config.classic and "md5" not in algorithms:
        algorithms = ("md5", *algorithms)
    needs_sha256 = config.change_dump or config.patch or config.versions or config.canonical_hash is not None
    if needs_sha256 and VERSION_ALGORITHM not in algorithms:
        algorithms = (*algorithms, VERSION_ALGORITHM)
    return algorithms


class _PushPathFilter(PathFilter):
    """The paths of a push set, whose folder no scan looks at, which would leave out the states of all commands."""

    def __init__(self, root: bytes, selection: Selection, avoid: Iterable[bytes]) -> None:
        super().__init__(root, selection, avoid)
        self._root = root

    def takes(self, relative: bytes) -> bool:
        """Whether it may be served: as the settings say, and no state lies there."""
        return super().takes(relative) and not any(is_state(self._root + b"/" + one) for one in above(relative))


def refuse_copy(tree: StaticTree) -> None:
    """See that the output is no copy, whose next audit would find our documents in it. Raises FolderOverlap."""
    if (tree.folder / FOLDER / STATE).is_file():
        advice = "Name a folder of its own with --to; --copy publishes a copy."
        raise FolderOverlap("the output is a copy that `headwater sync` keeps", where=str(tree.folder), advice=advice)


def refuse_overlap_of_datasets(config: SourceConfig, tree: StaticTree | None) -> None:
    """See that no dataset is made of what we write ourselves. Raises FolderOverlap."""
    ours = [config.state, config.documents, None if tree is None else str(tree.folder)]
    folders = [os.path.join(os.path.realpath(one), "") for one in ours if one is not None]
    for one in config.sets:
        made_of = one.dataset or one.oxigraph
        path = os.path.join(os.path.realpath(made_of or os.devnull), "")
        if any(path.startswith(other) or other.startswith(path) for other in folders):
            raise FolderOverlap("what the dataset is made of overlaps with the state or the output", where=made_of)


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
        if not one.is_scanned and (root := roots.get(one.name)) is not None:
            _refuse_state(os.path.realpath(os.fsencode(root)), ours, root)
            kind = PathFilter if one.copy is not None else _PushPathFilter
            found[one.name] = kind(os.fsencode(root), Selection(), ours)
    return found
