"""A state of the past without a hash: what `loc` has by now is taken for it only where all changes since are told."""

from __future__ import annotations

from pathlib import Path

from tests.support.copying import DONE, FAILED, go, tree
from tests.support.fake_source import Source, at, url
from tests.sync.past.history import History


class _WithTimes(History):
    """Of each resource a list states when it was modified, and no more."""

    def entry(self, name: str, body: bytes) -> str:
        when = next(when for when, one in self.states[name] if one == body)
        return url(self.site.uri(name), lastmod=at(when))


def test_what_may_have_changed_untold_is_not_taken_as_it_is(source: Source, tmp_path: Path) -> None:
    past = _WithTimes(source, hashes=False)
    past.put(1, "a", b"one")
    past.snapshot(10, "/archive/first.xml")
    past.put(20, "a", b"two")
    past.snapshot(90)
    ran = go(past.publish(), tmp_path / "copy", at=at(10))
    assert (ran.status, tree(tmp_path / "copy")) == (FAILED, {})


def test_what_all_changes_leave_as_it_was_is_taken(source: Source, tmp_path: Path) -> None:
    past = _WithTimes(source, hashes=False)
    past.put(1, "a", b"one")
    past.put(20, "b", b"two")
    past.snapshot(90)
    past.changelist(0, None)
    ran = go(past.publish(), tmp_path / "copy", at=at(10))
    assert (ran.status, tree(tmp_path / "copy")) == (DONE, {"a": b"one"})
