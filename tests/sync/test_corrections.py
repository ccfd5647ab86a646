"""What a source has told wrongly and then tells rightly: the next run catches up, whichever document has been mended.

RS-CL-05, RS-TIME-08, DST-B2, DST-B4, DST-C1, DST-C4, DST-F3, DST-F6, DST-F12, DST-V, AMB-20, AMB-35, AMB-65, AMB-87.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from email.utils import format_datetime as http_date
from pathlib import Path
from typing import Any

import pytest

from tests.support.copying import DONE, FAILED, SOURCE, UNDETERMINED, check, go, tree
from tests.support.fake_source import Handler, Reply, Site, Source, at, document, sha, url
from tests.support.waiting import START

ALL = {f"f{n}.txt": b"body %d\n" % n for n in range(5)}
WRONG = sha(b"wrong")


def mistaken(site: Site) -> list[str]:
    """The Resource List's entries, of which one states a hash that no file has."""
    return [site.resource(name, **({"hash": WRONG} if name == "f1.txt" else {})) for name in site.files]


@pytest.mark.parametrize("later", [0, 5], ids=["the same at", "a newer at"])
@pytest.mark.parametrize("changes", [True, False], ids=["with changes", "lists only"])
def test_a_mended_list_settles_a_failure(later: int, changes: bool, source: Source, site: Site, dest: Path) -> None:
    """DST-F3, DST-F6: where only changes are polled, the list is asked again as long as it may have been wrong."""
    if not changes:
        site.publish_capabilities("resourcelist")
    when = site.clock
    site.publish_list(mistaken(site), when=when)
    assert go(source.base, dest).status == FAILED
    assert go(source.base, dest).status == FAILED
    site.publish_list(when=when + later)
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert tree(dest) == ALL
    assert ran.one.failures == []
    assert check(source.base, dest).verdict == "in sync"


def test_a_second_try_is_judged_like_the_first(source: Source, site: Site, dest: Path) -> None:
    """DST-5.3, DST-V: `Last-Modified` after the listed `lastmod`, but before the list's `at`, excuses no wrong hash."""
    site.publish_list(mistaken(site))
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed) == (FAILED, 0)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.newer_than_listed) == (FAILED, 0)
    assert tree(dest) == {name: body for name, body in ALL.items() if name != "f1.txt"}


def test_an_unchanged_list_is_only_asked_conditionally(source: Source, site: Site, dest: Path) -> None:
    """DST-C1, DST-F6: a failure that stays costs one small question a run, and only where a list can settle it."""
    site.publish_list(mistaken(site))
    assert go(source.base, dest).status == FAILED
    source.forget()
    assert go(source.base, dest).status == FAILED
    asked = [headers for path, headers in source.log if path == "/set/resourcelist.xml"]
    assert len(asked) == 1
    assert "If-None-Match" in asked[0]
    source.reply("/set/resources/f1.txt").status = 500
    go(source.base, dest)
    source.forget()
    assert go(source.base, dest).status == FAILED
    assert source.requests("/set/resourcelist.xml") == []


def test_a_list_that_cannot_be_asked_changes_nothing(source: Source, site: Site, dest: Path) -> None:
    """DST-B2: what is only asked in addition is told when it fails, and makes nothing worse."""
    site.publish_list(mistaken(site))
    assert go(source.base, dest).status == FAILED
    site.serve("/set/resourcelist.xml", b"<urlset")
    ran = go(source.base, dest)
    assert ran.status == FAILED
    assert len(tree(dest)) == 4


def test_a_list_that_drops_a_dead_resource_settles_it(source: Source, site: Site, dest: Path) -> None:
    """DST-F3: a newer list confirms what a 404 could only suggest."""
    gone = site.resource("f1.txt")
    del site.files["f1.txt"], source.pages["/set/resources/f1.txt"]
    site.publish_list([gone, *(site.resource(name) for name in site.files)])
    assert go(source.base, dest).status == FAILED
    site.publish_list(when=site.clock + 1)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("more", [False, True], ids=["the change alone", "with another after it"])
def test_a_mended_change_settles_a_failure(more: bool, source: Source, site: Site, dest: Path) -> None:
    """DST-F6, AMB-87: a change at or before T that is told otherwise by now is done as it is told."""
    go(source.base, dest)
    site.put("f1.txt", b"one, new")
    if more:
        site.put("f2.txt", b"two, new")
    site.publish_changes(10)
    right = source.reply("/set/changelist.xml").body
    site.serve("/set/changelist.xml", right.replace(sha(b"one, new").encode(), WRONG.encode()))
    assert go(source.base, dest).status == FAILED
    assert tree(dest)["f1.txt"] == ALL["f1.txt"]
    site.serve("/set/changelist.xml", right)
    if not more:  # what was done last is not told any more
        assert go(source.base, dest).status == UNDETERMINED
        site.publish_list()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"


@pytest.mark.parametrize("more", [False, True], ids=["the changes alone", "with another after them"])
@pytest.mark.parametrize("wrong", ["updated", "unknown"])
def test_a_deletion_that_was_told_as_another_change(
    wrong: str, more: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-F6, AMB-87: an entry without hash and length is the same but for `change`, and settles the failure."""
    go(source.base, dest)
    site.drop("f1.txt")
    site.put("f2.txt", b"two, new")
    site.publish_changes(10)
    right = source.reply("/set/changelist.xml").body
    site.serve("/set/changelist.xml", right.replace(b'"deleted"', f'"{wrong}"'.encode()))
    assert go(source.base, dest).status == FAILED
    assert tree(dest) == {**ALL, "f2.txt": b"two, new"}
    site.serve("/set/changelist.xml", right)
    if more:
        site.put("f3.txt", b"three, new")
        site.publish_changes(10)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failures, ran.one.deleted) == (DONE, [], 1)
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"


# lists that stand upside down, or in themselves


def newest_first(told: list[Any]) -> list[Any]:
    return told[::-1]


def grouped_by_kind(told: list[Any]) -> list[Any]:
    return sorted(told, key=lambda one: ["created", "updated", "deleted"].index(one[1]))


@pytest.mark.parametrize("order", [newest_first, grouped_by_kind])
def test_a_list_in_another_order_than_that_of_time(
    order: Callable[[list[Any]], list[Any]], source: Source, site: Site, dest: Path
) -> None:
    """RS-CL-05, DST-C10: times that fall are not followed; a Resource List that is as late as all of them decides."""
    go(source.base, dest)
    held = tree(dest)
    site.drop("f1.txt")
    site.put("f1.txt", b"one, again")
    site.put("f2.txt", b"two, new")
    site.put("g.txt", b"first")
    site.drop("g.txt")
    site.put("g.txt", b"second")
    site.put("h.txt", b"for a moment")
    site.drop("h.txt")
    told = order([one for one in site.changes if one[0] >= 10])
    site.publish_changes(10, entries=[site.change(*one) for one in told])
    for _ in range(2):
        ran = go(source.base, dest)
        assert (ran.status, tree(dest)) == (UNDETERMINED, held)
        assert "DST-C10" in ran.rules()
    assert check(source.base, dest).verdict == "undetermined"
    site.publish_list()
    for _ in range(2):
        assert go(source.base, dest).status == DONE
        assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"


def test_a_clock_that_was_set_back_is_not_followed(source: Source, site: Site, dest: Path) -> None:
    """AMB-20, DST-C10: nobody can tell it from a list out of order."""
    go(source.base, dest)
    held = tree(dest)
    site.put("f1.txt", b"one")
    site.put("f1.txt", b"one, newer")
    entries = [site.change(30, "updated", "f1.txt", b"one"), site.change(20, "updated", "f1.txt", b"one, newer")]
    site.publish_changes(10, entries=entries)
    assert go(source.base, dest).status == UNDETERMINED
    assert tree(dest) == held
    site.publish_list(when=31)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def index(site: Site, path: str, *targets: str) -> None:
    entries = [url(f"{site.root}/{target}", tag="sitemap", **{"from": at(10)}) for target in targets]
    site.serve(path, document(entries, "sitemapindex", site.up(), capability="changelist", **{"from": at(10)}))


def test_a_change_list_index_that_lists_itself(source: Source, site: Site, dest: Path) -> None:
    """AMB-65: a loop is told; nothing was read, so nothing is passed in silence."""
    go(source.base, dest)
    site.put("f1.txt", b"one, new")
    index(site, "/set/changelist.xml", "changelist.xml")
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    assert ran.one.fault is not None
    assert "lists itself" in ran.one.fault
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


def test_a_change_list_index_in_an_index(source: Source, site: Site, dest: Path) -> None:
    """AMB-65: one extra level is read, a second one is not."""
    go(source.base, dest)
    site.put("f1.txt", b"one, new")
    site.publish_changes(10)
    site.serve("/set/part.xml", source.reply("/set/changelist.xml").body)
    index(site, "/set/inner.xml", "part.xml")
    index(site, "/set/changelist.xml", "inner.xml")
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    site.put("f2.txt", b"two, new")
    site.publish_changes(10)
    site.serve("/set/part.xml", source.reply("/set/changelist.xml").body)
    index(site, "/set/innermost.xml", "part.xml")
    index(site, "/set/inner.xml", "innermost.xml")
    index(site, "/set/changelist.xml", "inner.xml")
    assert go(source.base, dest.with_name("another")).status == SOURCE


# sources that are set back


def keep_short(site: Site) -> None:
    site.publish_changes(10, entries=[])


def keep_other(site: Site) -> None:
    site.put("h.txt", b"after the restoration")
    site.publish_changes(10, entries=[site.change(*site.changes[-1])])


@pytest.mark.parametrize("restored", [keep_short, keep_other], ids=["no changes since", "with changes since"])
def test_a_source_restored_from_a_backup(
    restored: Callable[[Site], None], source: Source, site: Site, dest: Path
) -> None:
    """DST-C10: changes told no more are noticed; a Resource List decides, where the source does not serve more."""
    go(source.base, dest)
    before = dict(site.files)
    site.put("f1.txt", b"lost in the accident")
    site.put("g.txt", b"lost, too")
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    site.files = dict(before)
    for name, body in before.items():
        site.put(name, body, change=False)
    restored(site)
    ran = go(source.base, dest)
    assert ran.status == UNDETERMINED
    assert "DST-C10" in ran.rules()
    assert "g.txt" in tree(dest)
    assert go(source.base, dest).status == UNDETERMINED
    site.publish_list(when=site.clock + 5)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"
    source.forget()
    assert go(source.base, dest).status == DONE
    assert source.requests("/set/resourcelist.xml") == []


def test_what_was_held_back_is_listed_again(source: Source, site: Site, dest: Path) -> None:
    """DST-B4: deletions that a newer list takes back are not done first, not even with consent, and not told."""
    site.publish_changes(site.clock + 90)
    go(source.base, dest)
    files = dict(site.files)
    site.clock += 50
    site.publish_list([])
    assert go(source.base, dest).status in (FAILED, UNDETERMINED)
    assert tree(dest) == files
    site.clock += 50
    site.publish_list()
    site.publish_changes(site.clock - 2)
    source.forget()
    ran = go(source.base, dest, max_delete=1.0)
    assert ran.status == DONE
    assert ran.one.held_back == 0
    assert (ran.one.deleted, ran.one.created) == (0, 0)
    assert tree(dest) == files
    assert [path for path in source.requests() if "/resources/" in path] == []


def test_hashes_that_are_listed_only_later(source: Source, site: Site, dest: Path) -> None:
    """DST-V: what was taken without a hash is hashed by an audit when the list has one by now."""
    bare = [url(site.uri(name), at(0), length=len(body)) for name, body in site.files.items()]
    site.publish_list(bare)
    assert go(source.base, dest).status == DONE
    site.publish_list()
    assert check(source.base, dest).verdict == "in sync"
    (dest / "f1.txt").write_bytes(b"Body 1\n")
    found = check(source.base, dest)
    assert (found.verdict, found.sets[0].different) == ("not in sync", 1)


# validators that tell too little


def dated(source: Source, path: str, modified: dt.datetime, answered: dt.datetime) -> None:
    """The page without an ETag, as a server that knows only seconds, and asks no more, answers."""
    body = source.reply(path).body
    headers = {"Last-Modified": http_date(modified, usegmt=True), "Content-Length": str(len(body))}

    def answer(handler: Handler) -> Reply:
        unchanged = handler.headers.get("If-Modified-Since") == headers["Last-Modified"]
        lines = [b"HTTP/1.1 304 X" if unchanged else b"HTTP/1.1 200 X", b"Connection: close"]
        lines += [f"{name}: {value}".encode() for name, value in headers.items()]
        lines.append(b"Date: " + http_date(answered, usegmt=True).encode())
        whole = b"\r\n".join(lines) + b"\r\n\r\n" + (b"" if unchanged else body)
        return Reply(script=lambda raw: raw.send(whole))

    source.pages[path] = answer


@pytest.mark.parametrize(("age", "asked_for"), [(0, False), (1, False), (2, True)])
def test_a_change_within_the_second_of_an_answer(
    age: int, asked_for: bool, source: Source, site: Site, dest: Path
) -> None:
    """DST-C1, RFC 9110 8.8.2.2: a date that what comes next may have too is no reason to believe a 304."""
    go(source.base, dest)
    modified = START + dt.timedelta(days=1)
    answered = modified + dt.timedelta(seconds=age)
    site.put("f1.txt", b"one")
    site.publish_changes(10)
    dated(source, "/set/changelist.xml", modified, answered)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)
    source.forget()
    site.put("f1.txt", b"one, once more")
    site.publish_changes(10)
    dated(source, "/set/changelist.xml", modified, answered)
    assert go(source.base, dest).status == DONE
    (headers,) = [headers for path, headers in source.log if path == "/set/changelist.xml"]
    assert ("If-Modified-Since" in headers) == asked_for
    if not asked_for:
        assert tree(dest) == dict(site.files)


def test_a_digest_that_cannot_be_computed_tells_of_another_state(source: Source, site: Site, dest: Path) -> None:
    """Of the same length, within the second that `lastmod` states: all that tells is another hash (DST-V)."""

    def publish(when: float) -> None:
        entries = [url(site.uri(n), at(0), hash=f"blake3:{b.hex()}", length=len(b)) for n, b in site.files.items()]
        site.publish_list(entries, when=when)

    site.publish_capabilities("resourcelist")
    publish(10)
    assert go(source.base, dest).status == DONE
    site.put("f2.txt", b"body X\n")
    publish(20)
    source.forget()
    assert go(source.base, dest).status == DONE
    assert tree(dest)["f2.txt"] == b"body X\n"
    assert [path for path in source.requests() if "/resources/" in path] == ["/set/resources/f2.txt"]


ELSEWHERE = {
    "no address of the web": "file:///srv/list.xml",
    "a host out of scope": "http://192.0.2.1/list.xml",
    "a document of another kind": "{root}/capabilitylist.xml",
}


def misname(source: Source, site: Site, name: str, wrong: str) -> Reply:
    """Have the Capability List name a list where it is not; returns the right one."""
    right = source.reply("/set/capabilitylist.xml")
    place = ELSEWHERE[wrong].format(root=site.root)
    source.pages["/set/capabilitylist.xml"] = Reply(right.body.replace(f"{site.root}/{name}".encode(), place.encode()))
    return right


@pytest.mark.parametrize("wrong", ELSEWHERE)
def test_a_mended_address_of_a_change_list(wrong: str, source: Source, site: Site, dest: Path) -> None:
    """DST-A7, DST-C5: the Capability List is asked as soon as what it had named cannot be used, not a day later."""
    right = misname(source, site, "changelist.xml", wrong)
    assert go(source.base, dest).status == SOURCE
    source.pages["/set/capabilitylist.xml"] = right
    site.put("g.txt", b"created")
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == dict(site.files)


@pytest.mark.parametrize("wrong", ELSEWHERE)
def test_a_mended_address_of_a_resource_list(wrong: str, source: Source, site: Site, dest: Path) -> None:
    """DST-A7, DST-C5: the same of a Resource List that a baseline needs."""
    assert go(source.base, dest).status == DONE
    right = misname(source, site, "resourcelist.xml", wrong)
    page = source.reply("/.well-known/resourcesync")
    source.pages["/.well-known/resourcesync"] = Reply(page.body + b"\n")  # so that the Capability List is read
    assert go(source.base, dest, baseline=True).status == SOURCE
    source.pages["/set/capabilitylist.xml"] = right
    assert go(source.base, dest, baseline=True).status == DONE
    assert tree(dest) == ALL


@pytest.mark.parametrize("option", ["baseline", "repair"])
def test_a_baseline_whose_changes_could_not_be_read(option: str, source: Source, site: Site, dest: Path) -> None:
    """DST-5.3: the next run reads the changes after an older Resource List again, which settle what is gone by now."""
    site.put("gone.txt", b"soon")
    site.publish_list()
    site.drop("gone.txt")
    site.put("last.txt", b"later than that")
    site.publish_changes(10)
    assert go(source.base, dest).status == DONE
    page = source.reply("/set/changelist.xml")
    source.pages["/set/changelist.xml"] = Reply(b"", 503)
    wanted: dict[str, Any] = {option: True}
    assert go(source.base, dest, **wanted).status == SOURCE
    source.pages["/set/changelist.xml"] = page
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failures) == (DONE, [])
    assert tree(dest) == dict(site.files)
    source.forget()
    assert go(source.base, dest).status == DONE
    assert source.requests() == ["/.well-known/resourcesync", "/set/changelist.xml"]  # and once is enough


def test_an_older_list_that_settles_a_failure_brings_no_other(source: Source, site: Site, dest: Path) -> None:
    """DST-5.3, DST-F6: what came and went between two runs may be in a Resource List that is read for a failure."""
    go(source.base, dest)
    site.put("brief.txt", b"soon gone")
    site.publish_list()
    site.drop("brief.txt")
    site.put("f1.txt", b"one, new")
    site.publish_changes(10)
    page = source.pages.pop("/set/resources/f1.txt")
    ran = go(source.base, dest)
    assert [failure.uri for failure in ran.one.failures] == [site.uri("f1.txt")]
    source.pages["/set/resources/f1.txt"] = page
    ran = go(source.base, dest)
    assert (ran.status, ran.one.failures) == (DONE, [])
    assert tree(dest) == dict(site.files)
    assert check(source.base, dest).verdict == "in sync"
