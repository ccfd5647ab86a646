"""The health report of a source, with its status (200 or 503), and the protocols by which others know a source.

All is well when every set's documents are served, and none has failed for a while to be brought up to date: with a full
disk all that was published is served, and nothing that happens is told. A push set without a record waits for its
provider, which is no fault of the source.
"""

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec

from headwater.catalog.content import ContentReader, RecordedResource
from headwater.catalog.interface import Catalog, SetState, ahead_seconds
from headwater.errors import HeadwaterError, StoreFault
from headwater.ingest.deletion_guard import set_problems
from headwater.ingest.push.feed import Feed
from headwater.publish.publication_state import PublicationState, decode_publication
from headwater.publish.site import Site
from headwater.source.hubs_and_tokens import AccessTokens
from headwater.source.set_health import fault_words
from headwater.storage.folder_store import FolderStore

FAILING_SECONDS = 10.0  # what fails no longer than this is not told as unwell: it is tried again at once


class ServableSource(Protocol):
    """The source behind the face. What may ask the catalog is not called in the event loop."""

    site: Site  # what the source looks like from outside
    catalog: Catalog  # what it holds
    store: FolderStore  # where its documents lie
    push_names: frozenset[str] = frozenset()
    """The sets that a provider feeds: until it does, there is nothing to show of them."""
    copied_names: frozenset[str] = frozenset()
    """The sets that publish copies: of their files nothing is sent but octets known to be the recorded ones."""

    changing_names: frozenset[str] = frozenset()
    """The sets whose settings may at any time no longer take a file that they take now."""

    def is_published(self, name: str, state: SetState | None = None) -> bool:
        """Whether the set's documents may be shown; `state`: what the catalog holds of it, where that is known."""
        ...

    def is_site_published(self) -> bool:
        """Whether the Source Description may be shown."""
        ...

    def has_room(self) -> bool:
        """Whether something can be written wherever a source writes."""
        return True

    def health(self) -> Mapping[str, object]:
        """What the source says of itself: last scan, last publication, errors."""
        ...

    def is_known_published(self, name: str | None) -> bool:
        """Whether that is known of a set, or (None) of the Source Description, without asking the catalog."""
        ...

    def takes(self, name: str, relative: bytes) -> bool:
        """Whether the set's settings take a file at this path."""
        _ = name, relative
        return True


class ContentProvider(ContentReader, Protocol):
    """Whoever has the octets of resources that lie in no files, and what the catalog records of them."""

    def find(self, set_name: str, relative: str) -> RecordedResource | None:
        """A resource as the catalog holds it, or a later state than is published; None: there is none."""
        ...


class PushTarget(msgspec.Struct, frozen=True, kw_only=True):
    """One set. `resource_sets` are its names in DIT documents, `news` is called when something was recorded."""

    feed: Feed
    tokens: AccessTokens
    resource_sets: frozenset[str] = frozenset()
    news: Callable[[], None] = lambda: None


def report(source: ServableSource) -> tuple[int, bytes]:
    """Status and JSON body: 200 when what was published is served and kept current, else 503.

    `ready`: every set is published, or is new, and the source names them. `well`: that, no set has been failing for
    longer than FAILING_SECONDS, what happens can be recorded, also where another process does, and nobody has to look
    at something: a folder that is away, other deletions held back, unreadable files, versions that could not be kept.
    That alone, and a set that was never published, take nothing away from the others.
    """
    states = {state.name: state for state in source.catalog.sets()}
    told = source.health()
    working = {one.get("name"): one for one in records(told.get("sets"))}
    waiting = waits(source, states)
    notes = {name: decode_publication(state.notes) for name, state in states.items()}
    problems = set_problems(source.catalog)
    held = {one.set: one.reason for one in problems.held_back}
    lost = {one.set: one.count for one in problems.lost_versions}
    closed = {one.set: one.files for one in problems.unreadable}
    sets = [
        {
            **working.get(one.name, {}),
            "held_back": held.get(one.name) or working.get(one.name, {}).get("held_back"),
            "unreadable_files": closed.get(one.name, 0),
            "lost_versions": lost.get(one.name, 0),
            "name": one.name,
            "ready": shows(source, one.name, states),
            **(_counts(states[one.name], notes[one.name]) if one.name in states else {}),
            "waiting": one.name in waiting,
        }
        for one in source.site.sets
    ]
    is_named = source.is_site_published() or all(one["waiting"] for one in sets)
    new = {one.name for one in source.site.sets if one.name not in states or notes[one.name].is_first}
    ready = is_named and all(one["ready"] or one["waiting"] or one["name"] in new for one in sets)
    failing = set()
    for one in sets:  # where the clock was set back since it began to fail, nobody knows for how long: it has
        if isinstance(since := one.get("failing_since"), str):
            seconds = (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(since)).total_seconds()
            failing |= {one["name"]} if not 0 <= seconds < FAILING_SECONDS else set()
    if not source.has_room():
        told = {**told, "error": "a disk of the source is full", "error_code": StoreFault.code}
    troubled = any(one["held_back"] or one["unreadable_files"] or one["lost_versions"] for one in sets)
    well = ready and "error" not in told and not failing and not troubled
    body = {**told, "ready": ready, "well": well, "base_url": source.site.base_url, "sets": sets}
    return 200 if ready and "error" not in told and failing <= new else 503, _encoded(body)


def report_without_catalog(source: ServableSource, fault: HeadwaterError | None) -> tuple[int, bytes]:
    """Status and JSON body when the catalog could not be asked, for this fault, or has not answered in time (None)."""
    told = source.health()
    working = {one.get("name"): one for one in records(told.get("sets"))}
    body = {
        **told,
        "ready": False,
        "well": False,
        "base_url": source.site.base_url,
        "error": "the catalog does not answer" if fault is None else fault_words(fault),
        "error_code": None if fault is None else fault.code,
        "sets": [{"name": one.name, "ready": False, **working.get(one.name, {})} for one in source.site.sets],
    }
    return 503, _encoded(body)


def _encoded(body: Mapping[str, object]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(_public(body), order="deterministic")) + b"\n"


def _public(value: object) -> object:
    """What anybody may read: words of errors name paths, hosts and indices, and are in the log and `headwater status`.

    An error is its code, one of watching that there is one.
    """
    if isinstance(value, list):
        return [_public(one) for one in value]
    if not isinstance(value, dict):
        return value
    told = {key: _public(one) for key, one in value.items()}
    if told.get("error_code") is not None:
        told.pop("error", None)
    if "watch_error" in told:
        told["watch_error"] = told["watch_error"] is not None
    return told


def waits(source: ServableSource, states: Mapping[str, SetState]) -> frozenset[str]:
    """The sets that have nothing to show because their providers have told nothing, or not all of a first load."""
    found = ((name, states.get(name)) for name in source.push_names)
    return frozenset(name for name, state in found if state is None or state.opened_at is None)


def shows(source: ServableSource, name: str, states: Mapping[str, SetState]) -> bool:
    """Whether a set's documents may be shown, by the states of all sets: of thousands none is asked for by itself."""
    state = states.get(name)
    return state is not None and source.is_published(name, state)


def records(value: object) -> list[dict[str, object]]:
    """The objects of a list; nothing of what is none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _counts(state: SetState, note: PublicationState) -> dict[str, object]:
    return {
        "resources": state.count,
        "changes": state.last_seq,
        "last_at": state.last_at,
        "pages": state.page_count,
        "published_changes": note.open.seq,
        "resource_list_at": note.at,
        "pages_pending": len(note.pending),
        "last_look_at": note.looked_at,
        "ahead_seconds": ahead_seconds(state.last_at, dt.datetime.now(dt.UTC)),
    }
