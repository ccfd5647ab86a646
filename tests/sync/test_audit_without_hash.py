"""The audit of a copy of a source that lists no hash: what its Change List tells decides where length and time may not.

DST-Q.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.copying import DONE, FAILED, check, go, tree
from tests.support.fake_source import Reply, Site, Source

STATED = pytest.mark.parametrize(
    "left",
    [{"hash": None}, {"hash": None, "length": None}, {"hash": "crc32:12345678"}],
    ids=["a length", "nothing", "a hash of another kind"],
)
HELD, NEW = b"body 1\n", b"BODY 1\n"


def publish(site: Site, left: dict[str, Any]) -> None:
    """Both lists, with no hash that can be computed."""
    site.publish_list([site.resource(name, **left) for name in site.files], when=10)
    site.publish_changes(10, entries=[site.change(*one, **left) for one in site.changes if one[0] > 10])


@pytest.fixture
def copied(left: dict[str, Any], source: Source, site: Site, dest: Path) -> Path:
    """A copy of before a change to other octets of the same length."""
    site.clock = 20
    publish(site, left)
    assert go(source.base, dest).status == DONE
    assert check(source.base, dest).verdict == "in sync"
    site.put("f1.txt", NEW)
    site.put("f2.txt", b"another")
    return dest


@STATED
def test_a_change_that_was_not_done_is_a_difference(
    left: dict[str, Any], source: Source, site: Site, copied: Path
) -> None:
    site.publish_changes(10, entries=[site.change(*one, **left) for one in site.changes if one[0] > 10])
    found = check(source.base, copied)
    assert (found.verdict, found.sets[0].different) == ("not in sync", 2)
    reasons = {one.path: one.reason for one in found.sets[0].findings}
    assert reasons["f1.txt"] == "its last change was not done, and no hash that can be computed is listed"
    assert go(source.base, copied).status == DONE
    assert tree(copied) == dict(site.files)
    assert check(source.base, copied).verdict == "in sync"


@STATED
def test_a_change_that_failed_is_a_difference(left: dict[str, Any], source: Source, site: Site, copied: Path) -> None:
    site.publish_changes(10, entries=[site.change(*one, **left) for one in site.changes if one[0] > 10])
    right = source.pages["/set/resources/f1.txt"]
    source.pages["/set/resources/f1.txt"] = Reply(b"", 404)
    assert go(source.base, copied).status == FAILED
    found = check(source.base, copied)
    assert (found.verdict, found.sets[0].different) == ("not in sync", 1)
    source.pages["/set/resources/f1.txt"] = right
    assert go(source.base, copied).status == DONE
    assert check(source.base, copied).verdict == "in sync"


@STATED
def test_a_change_to_what_is_held_is_none(left: dict[str, Any], source: Source, site: Site, copied: Path) -> None:
    """What a run has asked for and found to be what is held is done."""
    site.put("f1.txt", HELD)
    site.publish_changes(10, entries=[site.change(*one, **left) for one in site.changes if one[0] > 10])
    assert go(source.base, copied).status == DONE
    assert check(source.base, copied).verdict == "in sync"
