"""The status of one resource in a source: since when it is listed and in which documents, or by which rule it is not.

The rules are asked where they are: the scanner looks at the one path, the selection names its pattern. What has no
configuration beside it (a static tree, a state folder) knows what is listed, and no rules.
"""

import datetime as dt
import os
from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from headwater.catalog.interface import Catalog, Change, Resource, SetState
from headwater.files import hashing
from headwater.files.patterns import Selection
from headwater.ingest.deletion_guard import set_problems
from headwater.ingest.folder.comparison import Candidate
from headwater.ingest.folder.file_events import unreadable
from headwater.ingest.folder.scanner import FolderScanner
from headwater.ingest.folder.walk import Folder, PathFilter, above, path_of, quote
from headwater.progress import Notice
from headwater.publish import site
from headwater.publish.publication_state import decode_publication, published_base_url
from headwater.source.config import SourceConfig
from headwater.source.configured_source import VERSIONS, ConfiguredSource, kept_changes, utc_now
from headwater.spec.records import ChangeKind
from headwater.spec.times import to_microseconds
from headwater.spec.uris import normalise
from headwater.sync.copied_resource import ResourceStatus
from headwater.versions.history import History, has_history
from headwater.versions.store import VersionStore

_ROWS: Final = 10_000
_PAST: Final = 100


def resource_status(catalog: Catalog, config: SourceConfig | None, asked: str) -> list[ResourceStatus]:
    """How a URI, or a path, stands in each set that it may belong to; none where no set has it or could have it.

    Raises the configuration's and the catalog's errors.
    """
    states = {one.name: one for one in catalog.sets()}
    base_url = ((config and config.base_url) or published_base_url(states.values()) or "http://localhost").rstrip("/")
    source = None if config is None else ConfiguredSource(msgspec.structs.replace(config, base_url=base_url))
    roots = {} if source is None else {name: os.fsencode(root) for name, root in source.roots.items()}
    names, found = list(states) if config is None else [one.name for one in config.sets], list[ResourceStatus]()
    for name, uri in dict.fromkeys(_places(names, roots, asked)):
        prefix = f"{base_url}/{name}/resources/" if source is None else source.site.resource_prefix(name)
        resource = catalog.get(name, [uri]).get(uri) if name in states else None
        if "://" in uri and resource is None:
            if not normalise(uri).startswith(prefix):
                continue
            uri = normalise(uri).removeprefix(prefix)
            resource = catalog.get(name, [uri]).get(uri) if name in states else None
        one = ResourceStatus(set=name, uri=uri if "://" in uri else prefix + uri, found=resource is not None)
        if name in roots and "://" not in uri:
            one.path = os.fsdecode(os.path.join(roots[name], path_of(uri)))
        if name in states:
            _add_record(one, catalog, states[name], uri, resource, base_url)
        if source is not None and (folder := source.folder_of(name)) is not None:
            one.reasons += _in_folder(source, catalog, name, folder, path_of(uri), is_listed=one.found)
        elif not one.found:
            what = "it was deleted" if one.change else "the set does not have it"
            what += "; name the configuration as PLACE, to be told by which rule" if config is None else ""
            one.reasons.append(Notice("deleted" if one.change else "unknown", what))
        found.append(one)
    here = [one for one in found if one.found or one.change or (one.path and os.path.lexists(one.path))]
    return here or (found if len(found) == 1 or os.path.isabs(asked) else [])


def _places(names: list[str], roots: dict[str, bytes], asked: str) -> list[tuple[str, str]]:
    """The sets that a URI, or the relative URI of a path, may belong to."""
    if "://" in asked:
        return [(name, asked) for name in names]
    path, relative = os.fsencode(os.path.abspath(asked)), quote(os.fsencode(os.path.normpath(asked)))
    both = ((name, form(root)) for name, root in roots.items() for form in (os.path.abspath, os.path.realpath))
    forms = [(name, os.path.join(root, b"")) for name, root in both]
    inside = [(name, quote(path[len(form) :])) for name, form in forms if path.startswith(form)]
    inside = inside or [(name, relative) for name in names if not os.path.isabs(asked)]
    spelled = [(one, relative.removeprefix(f"{one}/")) for one in names if relative.startswith(f"{one}/")]
    return inside + spelled if len(names) > 1 else inside


def _add_record(
    one: ResourceStatus, catalog: Catalog, state: SetState, uri: str, resource: Resource | None, base_url: str
) -> None:
    """Add what the catalog knows of a resource: its last change, its past states, and which documents have it."""
    name, publication = one.set, decode_publication(state.notes)
    for change in _changes(catalog, name, uri, state.last_seq if resource is None else resource.seq):
        if one.change is None:
            one.change, one.changed_at = change.change.value, change.at
        if change.change is not ChangeKind.UPDATED:
            one.since = change.at
            break
    if name in has_history(catalog):
        past = History(catalog, name).walk(uri, to_microseconds(utc_now()), _PAST, is_back=True)
        one.versions = sum(state.is_kept for state in islice(past, _PAST))
    if resource is None:
        one.since = None
        return
    one.hash, one.since = resource.metadata.hash, one.since or state.opened_at
    seq, number, documents, is_part = resource.seq, resource.page, list[str](), publication.indexed
    page = catalog.pages(name)[number]

    def shows(at: dt.datetime | None) -> bool:
        return at is not None and one.since is not None and one.since <= at

    if shows(page.at) and number in publication.listed:
        documents.append(site.resource_page_name(name, number) if is_part else site.resource_list_name(name))
    for segment in catalog.segments(name) if seq <= publication.open.seq else ():
        if segment.first <= seq <= segment.last and segment.number >= publication.open.first:
            part = site.change_segment_name(name, segment.number)
            documents.append(part if publication.open.indexed else site.change_list_name(name))
    dump, changes = publication.resource_dump, publication.change_dump
    packages = [
        site.resource_package_names(name, number, part, package.hash)[0]
        for packed in (dump.pages if dump is not None else ())
        if packed.number == number and shows(packed.at)
        for part, package in enumerate(packed.packages)
    ] + [
        site.change_package_names(name, package.segment, package.hash)[0]
        for package in (changes.packages if changes is not None else ())
        if package.first <= seq <= package.last
    ]
    one.documents, one.packages = ([f"{base_url}/{told}" for told in some] for some in (documents, packages))
    if not documents:
        one.reasons.append(Notice("not published", "the next publication lists it"))


def _changes(catalog: Catalog, name: str, uri: str, last: int) -> Iterator[Change]:
    """The changes of a resource up to a number, the last first."""
    while last > 0:
        after = max(0, last - _ROWS)
        yield from (one for one in reversed(catalog.changes(name, after, last - after)) if one.uri == uri)
        last = after


def _in_folder(
    source: ConfiguredSource, catalog: Catalog, name: str, folder: Folder, relative: bytes, *, is_listed: bool
) -> list[Notice]:
    """What the next look at the folder would find at a path: why it is left out, or what waits."""
    config = next(one for one in source.config.sets if one.name == name)
    heard, found = list[Any](), list[Candidate]()
    if not os.path.isdir(folder.root):
        return [Notice("missing", f"the folder of the set is not there: {os.fsdecode(folder.root)}")]
    if not is_listed and os.path.isdir(os.path.join(folder.root, relative)):
        return [Notice("unknown", "this is a folder: name a file in it")]
    with closing(VersionStore(Path(source.config.state) / VERSIONS, is_read_only=True)) as store:
        kept = kept_changes(config, store, History(catalog, name) if config.versions else None)
        FolderScanner(catalog, name, folder, utc_now, heard.append, kept=kept).survey(found.append, [relative])
    problems = set_problems(catalog, [name]).held_back  # counted by a scan of all; RS-DOC-19 is of what is published
    held = [Notice("HW-ING-21", f"deletions are held back: {one.reason}") for one in problems]
    notices = [one for one in heard if isinstance(one, Notice) and one.rule != "RS-DOC-19"]
    reasons = [one for told in notices for one in (held if told.rule == "HW-ING-21" else [told])]
    reasons += [_waiting(folder, one) for one in found if one.path]
    return reasons or ([] if is_listed and not found else [_left_out(folder, relative)])


def _waiting(folder: Folder, one: Candidate) -> Notice:
    """Why a file that is new, or may have changed, is not published as it is."""
    options = hashing.ReadOptions(settle_ns=round(folder.settle_seconds * 1e9))
    outcome, error, *_ = hashing.read_file((one.path, (), None), options)
    if outcome == hashing.UNREADABLE:
        return Notice(*unreadable(one.path, os.strerror(error))[:2])
    if outcome == hashing.UNFINISHED:
        return Notice("HW-ING-22", f"it is being written, or was less than {folder.settle_seconds:g} s ago")
    return Notice("changed" if one.known else "not published", "the next look at the folder reads the file")


def _left_out(folder: Folder, relative: bytes) -> Notice:
    """Why a walk passes over a path without a word."""
    selection = folder.selection.current()
    if (rule := selection.refusal(relative)) is not None:
        return Notice("excluded", rule)
    if not PathFilter(folder.root, Selection(marks=map(os.fsdecode, selection.marks))).takes(relative):
        return Notice("excluded", "a folder above it has a mark of exclude_folders_with")
    if not PathFilter(folder.root, folder.selection, folder.avoid).takes(relative):
        return Notice("HW-ING-15", "it is in the state or output of a Headwater command")
    parts = (part for part in [*reversed([*above(relative)]), relative])
    gone = next((one for one in parts if not os.path.lexists(os.path.join(folder.root, one))), None)
    is_dangling = not gone and not os.path.exists(os.path.join(folder.root, relative))
    state = "not there" if gone else "a link whose target is missing" if is_dangling else "there"
    return Notice("missing" if gone else "unknown", f"{os.fsdecode(gone or relative)} is {state}")
