"""The health report: for a load balancer a status, for a person what the source is doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from headwater.catalog.interface import Catalog, SetState
from headwater.publish.note import read_note
from headwater.publish.site import Site


class Reported(Protocol):
    """What the report is made from."""

    @property
    def site(self) -> Site:
        """What the source looks like from outside."""
        ...

    @property
    def catalog(self) -> Catalog:
        """What it holds."""
        ...

    def is_published(self, name: str, state: SetState | None = None) -> bool:
        """Whether the set's documents may be shown; `state`: what the catalog holds of it, where that is known."""
        ...

    def is_site_published(self) -> bool:
        """Whether the Source Description may be shown."""
        ...

    def health(self) -> Mapping[str, object]:
        """What the source says of itself: last scan, last publication, errors."""
        ...


def report(source: Reported) -> tuple[int, bytes]:
    """Status and JSON body: 200 when every set is published and the source names them, else 503."""
    states = {state.name: state for state in source.catalog.sets()}
    told = source.health()
    working = {one.get("name"): one for one in records(told.get("sets"))}
    sets = [
        {**working.get(one.name, {}), **_set(one.name, states.get(one.name), shows(source, one.name, states))}
        for one in source.site.sets
    ]
    ready = source.is_site_published() and all(bool(one["ready"]) for one in sets)
    body = {**told, "ready": ready, "base_url": source.site.base_url, "sets": sets}
    return 200 if ready else 503, msgspec.json.format(msgspec.json.encode(body, order="deterministic")) + b"\n"


def shows(source: Reported, name: str, states: Mapping[str, SetState]) -> bool:
    """Whether a set's documents may be shown, by the states of all sets: of thousands none is asked for by itself."""
    state = states.get(name)
    return state is not None and source.is_published(name, state)


def records(value: object) -> list[dict[str, object]]:
    """The objects of a list; nothing of what is none."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _set(name: str, state: SetState | None, ready: bool) -> dict[str, object]:
    if state is None:
        return {"name": name, "ready": False}
    note = read_note(state.notes)
    return {
        "name": name,
        "ready": ready,
        "resources": state.count,
        "changes": state.last_seq,
        "last_at": state.last_at,
        "pages": state.page_count,
        "published_changes": note.open.seq,
        "resource_list_at": note.at,
        "pages_pending": len(note.pending),
    }
