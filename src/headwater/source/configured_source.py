"""A source as its configuration describes it: site, catalog, store, push sets, and which paths its sets take.

It is what a source that publishes and one that only serves have in common. State folder: `catalog.sqlite`,
`documents/`, `versions/`, `oai/`, `lock`; where the catalog is elsewhere, `catalog-elsewhere` says where.
"""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from headwater.catalog import catalog_url
from headwater.catalog.content import ContentReader
from headwater.catalog.interface import Catalog, Limits, SetState, Upsert
from headwater.errors import UsageFault
from headwater.files.file_copies import free_octets
from headwater.files.folder_marks import TREE_MARK, mark_folder
from headwater.ingest.content import ContentRoot, FileContentReader
from headwater.ingest.recording import NOTHING_KEPT, KeptChanges
from headwater.progress import Listener, of_set, silent
from headwater.publish.added_links import AddedLinks
from headwater.publish.publisher import Publisher
from headwater.publish.site import SOURCE_DESCRIPTION, Site
from headwater.retry import LONGEST_WAIT_SECONDS
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.hubs_and_tokens import BadToken
from headwater.source.leadership import StateUnusable
from headwater.source.set_folders import (
    copy_folders,
    path_filters,
    refuse_overlap_of_copies,
    refuse_overlap_of_datasets,
    scan_settings,
)
from headwater.spec.records import sha256_of
from headwater.storage.durable import replace_file
from headwater.storage.folder_store import FolderStore, write_faults
from headwater.versions.history import History, has_history
from headwater.versions.predecessors import Predecessors
from headwater.versions.store import VersionStore

if TYPE_CHECKING:
    from headwater.ingest.folder.walk import Folder
    from headwater.ingest.harvested import Harvester
    from headwater.ingest.push.feed import Feed
    from headwater.publish.oai_index import OaiIndex
    from headwater.source.health import PushTarget
    from headwater.source.published_feed import Follower


# The push sets: feeds, targets and tasks from their configuration

INDEX_PATIENCE_SECONDS = 3.0
"""How long one look at an index is tried: the next one comes soon enough, and publishing waits meanwhile."""


class PushSets:
    """The push sets among `sets`; nothing is made on disk when there are none."""

    def __init__(
        self, sets: Iterable[SetConfig], site: Site, catalog: Catalog, state: Path, clock: Callable[[], dt.datetime]
    ) -> None:
        self._configs = {one.name: one for one in sets if one.feed is not None}
        self.tell: Callable[[str], None] = lambda _name: None  # told of a set in which something was recorded
        self.by_set: dict[str, Feed] = {}
        self._targets: dict[str, PushTarget] = {}
        if self._configs:
            from headwater.ingest.deletion_guard import DeletionGuard
            from headwater.ingest.push.feed import Feed
            from headwater.ingest.push.ingest_state import refuse_old_memory
            from headwater.source.health import PushTarget

            refuse_old_memory(state)
            for name, one in self._configs.items():
                feed = self.by_set[name] = Feed(catalog, name, one.locations(site.resource_prefix(name)), clock)
                feed.guard = DeletionGuard(catalog, name, one.max_delete, clock)
                try:
                    tokens = one.tokens()
                except BadToken as fault:
                    fault.where = f"{fault.where} of set {name!r}" if fault.where else f"set {name!r}"
                    raise
                self._targets[name] = PushTarget(
                    feed=feed,
                    tokens=tokens,
                    resource_sets=frozenset((one.resource_sets or (name,)) if one.feed == "dit" else ()),
                    news=lambda name=name: self.tell(name),  # type: ignore[misc]
                )

    @property
    def closed(self) -> list[str]:
        """The sets that nobody can announce to by HTTP, and that follow no index."""
        empty = (name for name, target in self._targets.items() if target.tokens.is_empty)
        return [one for one in empty if self._configs[one].index is None and not self._configs[one].is_harvested]

    def followers(self, listener: Listener, stop: Callable[[], bool]) -> dict[str, Callable[[], Follower]]:
        """What reads the index or repository of each set with one, made when it is called. Raises UsageFault."""
        followed = [one for one in self._configs.values() if one.index is not None or one.is_harvested]
        if not followed:
            return {}
        from headwater.ingest.dit.follower import DitFollower
        from headwater.ingest.dit.index import index_at, index_credentials

        credentials = index_credentials(os.environ, [one.index for one in followed if one.index is not None])

        def follower(config: SetConfig) -> Follower:
            feed, names = self.by_set[config.name], frozenset(config.resource_sets or (config.name,))
            if config.is_harvested:
                return harvester(config, feed, listener, stop)
            index = index_at(str(config.index), listener, credentials, patience_seconds=INDEX_PATIENCE_SECONDS)
            return DitFollower(feed, index, names, listener=listener, stop=stop)

        return {one.name: partial(follower, one) for one in followed}

    def targets(self) -> dict[str, PushTarget]:
        """The sets as targets of push."""
        return self._targets


def harvester(
    config: SetConfig,
    feed: Feed,
    listener: Listener = silent,
    stop: Callable[[], bool] = lambda: False,
    longest_wait_seconds: float = LONGEST_WAIT_SECONDS,
) -> Harvester:
    """What reads the repository of a set. Raises UsageFault, also where its records are in another folder."""
    root, hear = Path(config.resource_root or ""), of_set(listener, config.name)
    if not root.is_dir() and any(one.name == feed.name and one.count for one in feed.catalog.sets()):
        raise UsageFault(
            "the records that were harvested are in another folder",
            where=f"{config.name}: {root}",
            advice="Keep `to` and `state` as they were then, or give this configuration a state of its own.",
        )
    if config.feed == "oai":
        from headwater.ingest.oai.harvester import OaiHarvester, OaiLists

        lists = OaiLists(
            url=config.url or "",
            prefixes=config.prefixes,
            sets=config.sets,
            metadata_only=config.record == "metadata",
            content=config.content,
            compare_seconds=config.compare_seconds,
        )
        return OaiHarvester(feed, root, lists, listener=hear, stop=stop, longest_wait_seconds=longest_wait_seconds)
    from headwater.ingest.dspace.harvester import DSpaceHarvester
    from headwater.ingest.dspace.repository import Repository

    password, url, seconds = os.environ.get(config.password_env or "", ""), config.url or "", config.compare_seconds
    if config.user is not None and not password:
        raise UsageFault("user needs a password: password_env names no variable that has one", where=config.name)
    account = None if config.user is None else (config.user, password)
    repository = Repository(url, config.contact, account, stop=stop, longest_wait_seconds=longest_wait_seconds)
    return DSpaceHarvester(feed, root, repository, bundles=config.bundles, compare_seconds=seconds, listener=hear)


# The source

CATALOG = "catalog.sqlite"
DOCUMENTS = "documents"
VERSIONS = "versions"
OAI = "oai"
LITTLE_ROOM = 1 << 20
_ELSEWHERE = "catalog-elsewhere"
_LONG_BASE = f"http://{'x' * 60}.example"
"""Where no base URL is configured: at least as long as that of our own address."""

Self = TypeVar("Self", bound="ConfiguredSource")


def utc_now() -> dt.datetime:
    """The clock of a driver."""
    return dt.datetime.now(dt.UTC)


def open_catalog(config: SourceConfig, listener: Listener = silent) -> Catalog:
    """The catalog that the configuration names. Raises the catalog's StoreFaults."""
    sets = config.site(_LONG_BASE).sets
    limits = Limits(
        page_entries=config.page_entries,
        segment_entries=config.segment_entries,
        octets_of_sets={one.name: (one.links.document_octets, one.segment_octets) for one in sets},
    )
    place = config.catalog or Path(config.state) / CATALOG
    credentials = catalog_url.credentials_from(os.environ)
    return catalog_url.open_catalog(place, limits, credentials=credentials, listener=listener)


def written_folders(config: SourceConfig) -> list[Path]:
    """Where a source writes: the folders of its state, its documents, and its catalog where that is a file."""
    folders = [Path(config.state), Path(config.documents or config.to or config.state)]
    place = None if config.catalog is None else catalog_url.place_of(config.catalog)
    return [*folders, place.parent] if isinstance(place, Path) else folders


def full_folders(folders: Iterable[Path]) -> dict[str, int]:
    """Those of the folders on whose disks less than LITTLE_ROOM octets are free, and how many are.

    A file system that is read-only, or does not tell its size, is none of them.
    """
    found = {}
    for folder in folders:
        with suppress(OSError):
            if (free := free_octets(folder)) < LITTLE_ROOM and not os.statvfs(folder).f_flag & os.ST_RDONLY:
                found[str(folder)] = free
    return found


def note_catalog(config: SourceConfig) -> None:
    """Leave a note in the state folder where the catalog is, if it is not in there: an old one may be left behind.

    Raises StateUnusable.
    """
    state = Path(config.state)
    note, place = state / _ELSEWHERE, config.catalog
    try:
        if place is None or os.path.realpath(place.removeprefix("sqlite:")) == os.path.realpath(state / CATALOG):
            note.unlink(missing_ok=True)
        elif catalog_elsewhere(state) != (told := catalog_url.shown(place)):
            replace_file(note, [os.fsencode(f"{told}\n")], f".{_ELSEWHERE}-")
    except OSError as cause:
        raise StateUnusable(f"cannot be used for state: {cause.strerror}", where=str(note)) from cause


def catalog_elsewhere(state: Path) -> str | None:
    """Where the catalog of a state folder is, without a password; None: in it, as far as is known.

    Raises StateUnusable where there is a note that cannot be read.
    """
    note = state / _ELSEWHERE
    try:
        return os.fsdecode(note.read_bytes()).strip() or None
    except FileNotFoundError:
        return None
    except OSError as cause:
        raise StateUnusable(f"cannot be read: {cause.strerror}", where=str(note)) from cause


class ConfiguredSource:
    """A source before anything is done with it. A context manager: what it has opened is given up with it.

    Raises the configuration's errors.
    """

    catalog: Catalog
    store: FolderStore
    publisher: Publisher
    push_sets: PushSets

    def __init__(self, config: SourceConfig) -> None:
        self.config = config
        self.site = config.site()
        self._state = Path(config.state)
        refuse_overlap_of_copies(config)
        scanned = [one for one in config.sets if one.files]
        self._folders = {one.name: scan_settings(one, self.site, config) for one in scanned}
        refuse_overlap_of_datasets(config)
        self.copy_folders = copy_folders(config.sets)  # the folder within its copy of each set that publishes one
        roots = {one.name: Path(one.root) for one in config.sets if one.root}
        self.roots = {name: str(root / self.copy_folders.get(name, "")) for name, root in roots.items()}
        """The folders whose files are served as the sets' resources."""
        self.copied_names = frozenset(self.copy_folders)
        self._paths = path_filters(config, self._folders, self.roots)
        self.changing_names = frozenset(name for name, one in self._folders.items() if not one.selection.is_fixed)
        self.push_names = frozenset(one.name for one in config.sets if one.feed is not None)

    def _open(self, clock: Callable[[], dt.datetime], listener: Listener) -> None:
        """Open catalog and store; the state folder is there. Raises the catalog's errors."""
        self.catalog = open_catalog(self.config, listener)
        self.push_sets = PushSets(self.config.sets, self.site, self.catalog, self._state, clock)
        # What a killed process left half-written stays for now: it may be what the leader is writing, who sweeps it.
        if self.config.to is not None:
            tree = Path(self.config.to)
            self.store = FolderStore(tree, foreign=frozenset({"resources", self._state.name}), clean=False)
            with write_faults(tree):
                mark_folder(tree, TREE_MARK)
        else:
            self.store = FolderStore(Path(self.config.documents or self._state / DOCUMENTS), clean=False)
        noted = [one.name for one in self.config.sets if one.versions]
        self.histories = {name: History(self.catalog, name, self.versions.has) for name in noted}
        for one in self.config.sets:
            if one.feed is not None:
                self.push_sets.by_set[one.name].keep_versions(self.kept_of(one), self.contents, listener)

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    @property
    def is_ours(self) -> bool:
        """Whether this process may publish: else the one that does writes the Source Description last."""
        return False

    def is_published(self, name: str, state: SetState | None = None) -> bool:
        """Whether the set's documents may be shown; `state`: what the catalog holds of it, where that is known."""
        documents = self.publisher.site_documents
        if self.is_ours:
            return documents.is_published(name, state)
        return self.is_site_published() and documents.has_documents(name, state)

    def is_site_published(self) -> bool:
        """Whether the Source Description may be shown."""
        if self.is_ours:
            return self.publisher.site_documents.is_site_published()
        return self.store.stat(SOURCE_DESCRIPTION) is not None

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        documents = self.publisher.site_documents
        if self.is_ours:
            return documents.is_known_published(name)
        return self.is_site_published() and (name is None or documents.is_known_whole(name))

    def has_room(self) -> bool:
        """Whether something can be written wherever a source writes."""
        return not full_folders(written_folders(self.config))

    def folder_of(self, name: str) -> Folder | None:
        """How the folder of a set is scanned; None where it has none."""
        return self._folders.get(name)

    def takes(self, name: str, relative: bytes) -> bool:
        """Whether the set's settings take a file at this path; what they no longer take is not served either."""
        return name in self._paths and self._paths[name].takes(relative)

    @cached_property
    def contents(self) -> ContentReader:
        """The content of the sets' resources, as far as it lies in files."""
        return FileContentReader(
            {
                one.name: ContentRoot(
                    prefix=self.site.resource_prefix(one.name),
                    folder=self.roots.get(one.name),
                    paths=self._paths.get(one.name),
                    is_scanned=one.feed is None,  # of a copy, too, the notes are signatures
                )
                for one in self.config.sets
            }
        )

    @cached_property
    def versions(self) -> VersionStore:
        """The octets of changes, of sets with Change Dumps or patches; nothing is made on disk while there are none."""
        return VersionStore(self._state / VERSIONS)

    def oai_indexes(self) -> dict[str, OaiIndex]:
        """The indexes of the sets that answer OAI-PMH; whoever asks for them closes them."""
        from headwater.publish.oai_index import IndexedSet, OaiIndex

        return {
            one.name: OaiIndex(
                self._state / OAI / one.name,
                IndexedSet(
                    name=one.name,
                    admin=one.oai_admin or "",
                    url_prefix=self.site.resource_prefix(one.name),
                    catalog=self.catalog,
                    rules=self.site.settings(one.name).links,
                    links=AddedLinks(self.site, self.site.settings(one.name), self.catalog),
                    contents=self.contents,
                    prefixes=one.prefixes if one.feed == "oai" else (),
                    records_stand_alone=one.is_harvested or any("*" in rule.content for rule in one.described),
                    takes=partial(self.takes, one.name) if one.name in self.changing_names else None,
                ),
            )
            for one in self.config.sets
            if one.oai
        }

    @property
    def has_versions(self) -> bool:
        """Whether changes of some set are kept as versions: of Change Dumps, patches, or for their own sake."""
        return any(one.change_dump or one.patch or one.versions for one in self.config.sets)

    def kept_of(self, config: SetConfig) -> KeptChanges:
        """How a set keeps its changes."""
        return kept_changes(config, self.versions if self.has_versions else None, self.histories.get(config.name))

    def close(self) -> None:
        """Give up the files."""
        if self.has_versions:
            self.versions.close()
        self.catalog.close()


def kept_changes(config: SetConfig | None, store: VersionStore | None, history: History | None) -> KeptChanges:
    """What a set keeps as it is configured; without a configuration only a history that goes on."""
    patch, is_dumped = (config.patch, config.change_dump) if config is not None else ((), False)
    if not (patch or is_dumped or history is not None):
        return NOTHING_KEPT
    predecessors = Predecessors(patch) if patch else None
    keeps_all = is_dumped or history is not None
    return KeptChanges(store=store, predecessors=predecessors, history=history, keeps_all=keeps_all)


def keep_versions(
    feed: Feed, config: SetConfig | None, store: VersionStore, root: str | None, listener: Listener
) -> None:
    """Have the feed of a command keep the octets of its changes, of files below `root`.

    Without a configuration a history that the catalog has goes on; without a root its octets are noted as not kept.
    """
    has_versions = bool(config.versions) if config is not None else feed.name in has_history(feed.catalog)
    kept = kept_changes(config, store, History(feed.catalog, feed.name, store.has) if has_versions else None)
    contents = FileContentReader({feed.name: ContentRoot(prefix=feed.locations.prefix, folder=root)})
    feed.keep_versions(kept, contents, listener)
    if root is None and kept.store is not None:
        feed.keep = lambda events: {sha256_of(one.metadata.hash) for one in events if isinstance(one, Upsert)}
