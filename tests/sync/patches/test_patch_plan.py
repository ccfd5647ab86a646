"""Which pending changes are done by patches, as a table (DST-S1)."""

from __future__ import annotations

import hashlib

import msgspec
import pytest

from headwater.patches import LARGEST
from headwater.rdf import N_QUADS_DIFF
from headwater.spec.kinds import PATCH
from headwater.spec.records import Link
from headwater.sync.transfer.patching import MOST_STEPS, PendingChange, planned_patches
from headwater.sync.transfer.work_queue import PatchAttempt, encode_attempts


def digest(number: int) -> str:
    return f"sha-256:{hashlib.sha256(b'%d' % number).hexdigest()}"


def change(
    number: int, kind: str = "updated", *, patch: int | None = 10, length: int | None = 1_000, has_hash: bool = True
) -> PendingChange:
    """The change that leaves state `number`; its patch has so many octets (-1: not stated; None: there is none)."""
    stated = None if patch is None or patch < 0 else patch
    link = Link(rel=PATCH, href=f"http://s/{number}", type="application/json-patch+json", length=stated)
    links = None if patch is None else msgspec.json.encode([link]).decode()
    return PendingChange(kind, number, digest(number) if has_hash else None, length, links)


ONE, TWO, THREE = change(1), change(2), change(3)
TABLE: dict[str, tuple[int, bool, list[PendingChange], list[int] | None]] = {
    "one": (0, True, [ONE], [1]),
    "in order": (0, True, [ONE, TWO, THREE], [1, 2, 3]),
    "from a state that a change tells of": (1, False, [ONE, TWO, THREE], [2, 3]),
    "from the last time that it was so": (1, True, [ONE, TWO, change(1), THREE], [3]),
    "from an unknown state": (9, False, [ONE], None),
    "one is missing": (0, True, [ONE, change(2, patch=None), THREE], None),
    "one was created": (0, True, [change(1, "created"), TWO], None),
    "after it was created": (1, True, [change(1, "created"), TWO], [2]),
    "one has no hash": (0, True, [change(1, has_hash=False), TWO], [1, 2]),
    "the last has no hash": (0, True, [ONE, change(2, has_hash=False)], None),
    "after a deletion": (0, True, [change(1, "deleted", has_hash=False), TWO], None),
    "as many octets": (0, True, [change(1, patch=500), change(2, patch=500)], None),
    "just fewer": (0, True, [change(1, patch=500), change(2, patch=499)], [1, 2]),
    "no length of the patch": (0, True, [change(1, patch=-1)], [1]),
    "no length of one of two": (0, True, [ONE, change(2, patch=-1)], None),
    "no length of the resource": (0, True, [change(1, length=None)], [1]),
    "told twice by lists that overlap": (0, True, [ONE, ONE, TWO], [1, 2]),
    "too many": (0, True, [change(n, length=9_999) for n in range(1, MOST_STEPS + 2)], None),
    "nothing after it": (1, True, [ONE], None),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLE)
def test_what_is_done_by_patches(name: str) -> None:
    held, is_previous, pending, expected = TABLE[name]
    found = planned_patches(digest(held), 500, pending, lambda _uri: None, is_previous=is_previous)
    assert ([int(one.href[9:]) for one in found.steps] if found else None) == expected
    if found is not None:
        assert found.base == digest(held)
        assert msgspec.json.decode(encode_attempts((found,)) or "", type=tuple[PatchAttempt, ...]) == (found,)


def test_a_dataset_has_no_limit_but_its_octets() -> None:
    """Ten changes a second are followed by their patches: the whole is newer than any list by the time it has come."""
    for patch, count, octets, expected in (
        (10, 500, 5_001, 500),
        (10, 500, 5_000, None),
        (-1, 21, 5_000, None),
        (10, 500, 1 << 40, 500),
    ):
        some = [change(n, patch=patch, length=octets) for n in range(1, count + 1)]
        some = [
            one._replace(links=(one.links or "").replace("application/json-patch+json", N_QUADS_DIFF)) for one in some
        ]
        found = planned_patches(digest(0), octets, some, lambda _uri: None, is_previous=True)
        assert (len(found.steps) if found else None) == expected


def test_neither_outside_the_scope_nor_onto_a_large_copy() -> None:
    """DST-S12: the guard is asked for each patch."""
    assert planned_patches(digest(0), 500, [ONE], lambda _uri: "no", is_previous=True) is None
    assert planned_patches(digest(0), LARGEST + 1, [ONE], lambda _uri: None, is_previous=True) is None
