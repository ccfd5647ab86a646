"""The notes of the versions before changes: each by its change, however often a resource comes to the same state."""

from __future__ import annotations

import hashlib
from pathlib import Path

from headwater.catalog.interface import Metadata, NumberedChange, Upsert
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.recording import KeptChanges
from headwater.spec.records import ChangeKind
from headwater.versions.predecessors import Predecessors, row_keys
from tests.support.push_set import PREFIX, PushSet

URI = PREFIX + "a.json"


def digest(state: str) -> str:
    return hashlib.sha256(state.encode()).hexdigest()


def event(state: str) -> dict[str, object]:
    return {"path": "a.json", "sha-256": digest(state), "length": 1, "type": "application/json"}


def bases(catalog: SqliteCatalog) -> list[str]:
    """For each change the state before it, as noted."""
    names = {digest(state): state for state in "ABC"}
    changes = catalog.changes("s")
    keys, found = row_keys(changes), catalog.rows("s", row_keys(changes).values())
    return [names[found[keys[one.seq]].value.hex()] if keys[one.seq] in found else "" for one in changes]


def test_each_change_keeps_its_own_note(tmp_path: Path) -> None:
    """AMB-48: B is reached from A, then from C, before any list names either change."""
    push = PushSet(tmp_path)
    push.feed.kept = KeptChanges(predecessors=Predecessors(("json",)))
    for some in (["A"], ["B"], ["C"], ["B"], ["A", "B", "C", "B"]):
        push.later(1)
        push.events(*map(event, some))
    assert bases(push.catalog) == ["", "A", "B", "C", "B", "A", "B", "C"]
    push.close()


def test_nothing_is_noted_where_no_patch_can_be(tmp_path: Path) -> None:
    noted = Predecessors(("json",))
    of = {"hash": f"sha-256:{digest('A')}", "length": 1}
    json, other = Metadata(type="application/json", **of), Metadata(type="image/png", **of)  # type: ignore[arg-type]
    assert noted.notes([(None, Upsert(URI, json)), (other, Upsert(URI, json)), (json, Upsert(URI, json))]) is None


def test_a_deletion_takes_no_note_of_what_comes_after_it() -> None:
    """Else a patch would be made from a state that the change does not lead from."""
    states = {state: Metadata(type="application/json", hash=f"sha-256:{digest(state)}", length=1) for state in "ABC"}
    noted = Predecessors(("json",)).notes(
        [
            (states["A"], Upsert(URI, states["B"])),
            (None, Upsert(URI, states["A"])),
            (states["A"], Upsert(URI, states["C"])),
        ]
    )
    assert noted is not None
    kinds = (ChangeKind.UPDATED, ChangeKind.DELETED, ChangeKind.CREATED, ChangeKind.UPDATED)
    rows = noted([NumberedChange(seq, 0, URI, kind) for seq, kind in enumerate(kinds, 1)])
    assert [(row.key, row.value.hex()) for row in rows] == [("1", digest("A")), ("4", digest("A"))]
