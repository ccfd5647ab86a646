"""What the scope refuses: never taken for a deletion, never for a copy that is complete (DST-S12, DST-B4, DST-Q)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.cli import run
from tests.support.copying import DONE, FAILED, UNDETERMINED, Ran, check, go, tree
from tests.support.fake_source import Reply, Site, Source, at, document, sha, url

FILES = {f"f{number}.txt": b"body %d\n" % number for number in range(5)}
FAR = b"elsewhere"


@pytest.fixture
def cdn() -> Iterator[Source]:
    """Another host, which has the same files."""
    with Source() as other:
        for name, body in FILES.items():
            other.pages[f"/{name}"] = Reply(body)
        yield other


@pytest.fixture
def lists(site: Site) -> Site:
    """A source of Resource Lists alone, so that every run compares with them."""
    site.publish_capabilities("resourcelist")
    return site


def host_of(source: Source) -> str:
    return source.base.removeprefix("http://")


def far(cdn: Source, *names: str) -> list[str]:
    """Entries of files that lie on the other host."""
    return [url(f"{cdn.base}/{name}", hash=sha(FILES[name]), length=len(FILES[name])) for name in names]


def told(ran: Ran) -> str:
    return "\n".join(notice.message for notice in ran.notices)


def test_what_moves_to_another_host_is_not_deleted(source: Source, lists: Site, cdn: Source, dest: Path) -> None:
    """Of five resources two move to a host that is not asked: what is held stays, and nobody calls it in sync."""
    assert go(source.base, dest).status == DONE
    lists.publish_list([*(lists.resource(name) for name in list(FILES)[:3]), *far(cdn, "f3.txt", "f4.txt")], when=20)
    for _ in range(2):
        ran = go(source.base, dest)
        assert (ran.status, ran.one.deleted, ran.one.held_back, ran.one.refused) == (FAILED, 0, 0, 2)
        assert tree(dest) == FILES
        assert f"--allow-host {host_of(cdn)}" in told(ran)
        assert "--max-delete" not in told(ran)
    proof = check(source.base, dest)
    assert (proof.exit_status, proof.verdict, proof.sets[0].refused) == (UNDETERMINED, "undetermined", 2)
    assert cdn.requests() == []
    ran = go(source.base, dest, allow_hosts=(host_of(cdn),))
    assert (ran.status, ran.one.deleted, ran.one.created, ran.one.refused) == (DONE, 2, 2, 0)
    assert check(source.base, dest).verdict == "in sync"


def test_a_source_that_moves_altogether_loses_nothing(source: Source, lists: Site, cdn: Source, dest: Path) -> None:
    """Every resource on another host: not even with consent is anything deleted, and no consent is advised."""
    assert go(source.base, dest).status == DONE
    lists.publish_list(far(cdn, *FILES), when=20)
    for consent in (None, 1.0):
        ran = go(source.base, dest, max_delete=consent)
        assert (ran.status, ran.one.deleted, ran.one.refused, tree(dest)) == (FAILED, 0, 5, FILES)
        assert "--max-delete" not in told(ran)


def test_what_was_held_back_waits_while_entries_are_refused(
    source: Source, lists: Site, cdn: Source, dest: Path
) -> None:
    """Nobody can tell whether what an earlier list had deleted is among what is refused now."""
    assert go(source.base, dest).status == DONE
    lists.publish_list([], when=20)
    assert go(source.base, dest).one.held_back == 5
    lists.publish_list(far(cdn, *FILES), when=30)
    ran = go(source.base, dest, max_delete=1.0)
    assert (ran.status, ran.one.deleted, ran.one.held_back, tree(dest)) == (FAILED, 0, 5, FILES)
    ran = go(source.base, dest, max_delete=1.0, skip_hosts=(host_of(cdn),))
    assert (ran.status, ran.one.deleted, tree(dest)) == (DONE, 5, {})


def test_nothing_but_refused_is_no_success(source: Source, site: Site, cdn: Source, dest: Path) -> None:
    """An empty folder is not in sync with a source all of whose resources are refused; nor in the second run."""
    site.publish_list(far(cdn, *FILES))
    for _ in range(2):
        ran = go(source.base, dest)
        assert (ran.status, ran.one.held, ran.one.refused) == (FAILED, 0, 5)
        assert "DST-S12" in ran.rules()
    proof = check(source.base, dest)
    assert (proof.exit_status, proof.sets[0].verdict, proof.sets[0].refused) == (UNDETERMINED, "undetermined", 5)
    assert proof.sets[0].reason is not None
    assert "5 refused" in proof.sets[0].reason
    other = dest.parent / "by another tool"
    other.mkdir()
    assert check(source.base, other).exit_status == UNDETERMINED
    assert check(source.base, other, skip_hosts=(host_of(cdn),)).exit_status == DONE


def test_a_dry_run_tells_it_too(source: Source, site: Site, cdn: Source, dest: Path) -> None:
    site.publish_list(far(cdn, "f1.txt"))
    ran = go(source.base, dest, dry_run=True)
    assert (ran.status, ran.one.refused) == (FAILED, 1)


@pytest.mark.parametrize("choice", [{"skip_hosts": ("HOST",)}, {"exclude": ("http://HOST/*",)}], ids=str)
def test_a_choice_is_no_refusal(
    choice: dict[str, tuple[str, ...]], source: Source, lists: Site, cdn: Source, dest: Path
) -> None:
    """What the user leaves out himself is told, changes no status, and lets a list be whole."""
    options: dict[str, Any] = {name: tuple(v.replace("HOST", host_of(cdn)) for v in vs) for name, vs in choice.items()}
    lists.publish_list([*(lists.resource(name) for name in FILES), *far(cdn, "f4.txt")])
    ran = go(source.base, dest, **options)
    assert (ran.status, ran.one.refused, ran.one.left_out) == (DONE, 0, 1)
    assert "DST-S12" not in ran.rules()
    lists.publish_list([*(lists.resource(name) for name in list(FILES)[:4]), *far(cdn, "f4.txt")], when=20)
    ran = go(source.base, dest, **options)
    assert (ran.status, ran.one.deleted) == (DONE, 1)
    proof = check(source.base, dest)
    assert (proof.verdict, proof.sets[0].left_out, proof.sets[0].refused) == ("in sync", 1, 0)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.refused) == (FAILED, 1)


def test_a_choice_that_malformed_entries_do_not_break(source: Source, site: Site, dest: Path) -> None:
    """`--exclude` is asked of whatever is listed, also of what is no URI at all."""
    hostile = ["http://[::1/x", "ftp://h/x", "x" * 40_000, "http://h:99999/x", "javascript:1", "http://u:p@h/"]
    site.publish_list([*(url(loc) for loc in hostile), *(site.resource(name) for name in FILES)])
    ran = go(source.base, dest, exclude=("ftp://**",))
    assert (ran.status, ran.one.refused, ran.one.left_out) == (FAILED, 5, 1)
    assert tree(dest) == FILES


def test_changes_on_another_host_are_remembered_until_settled(
    source: Source, site: Site, cdn: Source, dest: Path
) -> None:
    """A refused change counts in every later run, until a deletion, another host or a choice settles it."""
    assert go(source.base, dest).status == DONE
    new = url(f"{cdn.base}/f1.txt", change="created", datetime=at(20), hash=sha(FILES["f1.txt"]))
    also = url(f"{cdn.base}/f2.txt", change="created", datetime=at(21), hash=sha(FILES["f2.txt"]))
    site.publish_changes(10, entries=[new, also])
    for _ in range(2):
        ran = go(source.base, dest)
        assert (ran.status, ran.one.refused, ran.one.created) == (FAILED, 2, 0)
    assert check(source.base, dest).exit_status == UNDETERMINED
    gone = url(f"{cdn.base}/f1.txt", change="deleted", datetime=at(22))
    site.publish_changes(10, entries=[new, also, gone])
    assert (go(source.base, dest).one.refused, check(source.base, dest).sets[0].refused) == (1, 1)
    ran = go(source.base, dest, skip_hosts=(host_of(cdn),))
    assert (ran.status, ran.one.refused, ran.one.left_out) == (DONE, 0, 1)
    ran = go(source.base, dest, allow_hosts=(host_of(cdn),))
    assert (ran.status, ran.one.refused, ran.one.created) == (DONE, 0, 1)
    assert check(source.base, dest).verdict == "in sync"


@pytest.mark.parametrize("said", [{"allow_hosts": ("HOST",)}, {"any_host": True}, {"skip_hosts": ("HOST",)}], ids=str)
def test_an_audit_obeys_its_own_options(
    said: dict[str, Any], source: Source, lists: Site, cdn: Source, dest: Path
) -> None:
    """Beside what the last run has chosen: a host that it refused is let in, or left out."""
    entries = [*map(lists.resource, FILES)][:3] + far(cdn, "f3.txt", "f4.txt")
    lists.publish_list(entries)
    assert go(source.base, dest).status == FAILED
    assert check(source.base, dest).verdict == "undetermined"
    options = {name: (host_of(cdn),) if value == ("HOST",) else value for name, value in said.items()}
    one = check(source.base, dest, **options).sets[0]
    counts = (one.verdict, one.same, one.missing, one.refused, one.left_out)
    assert counts == (("in sync", 3, 0, 0, 2) if "skip_hosts" in said else ("not in sync", 3, 2, 0, 0))


def test_consent_is_not_advised_where_changes_lead_elsewhere(
    source: Source, site: Site, cdn: Source, dest: Path
) -> None:
    """A source that moves by changes: everything here is deleted, everything there refused."""
    assert go(source.base, dest).status == DONE
    moved = [site.change(20, "deleted", name) for name in FILES]
    moved += [url(f"{cdn.base}/{name}", change="created", datetime=at(21)) for name in FILES]
    site.publish_changes(10, entries=moved)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.deleted, ran.one.held_back, tree(dest)) == (FAILED, 0, 5, FILES)
    assert "--max-delete" not in told(ran)
    assert f"--allow-host {host_of(cdn)}" in told(ran)


def test_what_was_allowed_once_stays(source: Source, site: Site, cdn: Source, dest: Path) -> None:
    """Copies of a host that is not allowed any more are kept, and are no files too many."""
    site.publish_list([*(site.resource(name) for name in FILES), *far(cdn, "f1.txt")])
    assert go(source.base, dest, any_host=True).status == DONE
    before = tree(dest)
    assert len(before) == 6
    ran = go(source.base, dest)
    assert (ran.status, ran.one.refused, ran.one.deleted, tree(dest)) == (FAILED, 1, 0, before)
    proof = check(source.base, dest)
    assert (proof.exit_status, proof.sets[0].extra) == (UNDETERMINED, 0)


def test_what_is_held_and_deleted_elsewhere_stays_and_is_told(
    source: Source, site: Site, cdn: Source, dest: Path
) -> None:
    """A host that is not allowed any more deletes nothing, and the copy is not called complete meanwhile."""
    site.publish_list([*(site.resource(name) for name in FILES), *far(cdn, "f1.txt")])
    assert go(source.base, dest, any_host=True).status == DONE
    site.publish_changes(10, entries=[url(f"{cdn.base}/f1.txt", change="deleted", datetime=at(20))])
    ran = go(source.base, dest)
    assert (ran.status, ran.one.refused, len(tree(dest))) == (FAILED, 1, 6)
    assert check(source.base, dest).exit_status == UNDETERMINED
    ran = go(source.base, dest, any_host=True)
    assert (ran.status, ran.one.refused, ran.one.deleted, len(tree(dest))) == (DONE, 0, 1, 5)


def test_it_is_told_once_for_each_cause(source: Source, site: Site, cdn: Source, dest: Path) -> None:
    """However many they are: one sentence for the hosts, one for each other reason, each with an example of its own."""
    strange = ["ftp://h/x", "ftp://h/y", "http://u:p@h/", "http://[::1/x"]
    hosts = [f"http://h{number}.example/x" for number in range(6)]
    entries = [*far(cdn, *FILES), *map(url, strange), *map(url, hosts), "<url></url>", "<url></url>"]
    site.publish_list([*(site.resource(name) for name in FILES), *entries])
    ran = go(source.base, dest)
    assert (ran.one.refused, ran.one.skipped) == (15, 2)
    said = [(" ".join(notice.message.split()[:4]), notice.where) for notice in ran.notices if notice.rule == "DST-S12"]
    assert said == [
        ("11 resources are refused:", f"{cdn.base}/f0.txt"),
        ("1 resource is refused:", "http://[::1/x"),
        ("2 resources are refused:", "ftp://h/x"),
        ("1 resource is refused:", "http://u:p@h/"),
    ]
    assert f"on {host_of(cdn)}, h0.example, h1.example, h2.example and other hosts" in told(ran)
    assert "2 entries cannot be used" in told(ran)


def test_a_list_with_skipped_entries_is_not_whole(source: Source, lists: Site, dest: Path) -> None:
    """DST-F5: an entry without `loc` may be anything, so what is missing in its list may be there."""
    assert go(source.base, dest).status == DONE
    some = [lists.resource(name) for name in list(FILES)[:4]]
    lists.publish_list(["<url></url>", *some], when=20)
    for _ in range(2):
        ran = go(source.base, dest, max_delete=1.0)
        assert (ran.status, ran.one.deleted, ran.one.skipped, tree(dest)) == (FAILED, 0, 1, FILES)
    proof = check(source.base, dest)
    assert (proof.exit_status, proof.sets[0].skipped) == (UNDETERMINED, 1)
    lists.publish_list(some, when=30)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.deleted, ran.one.skipped) == (DONE, 1, 0)


def test_an_index_with_skipped_entries_is_not_whole(lists: Site, source: Source, dest: Path) -> None:
    """DST-F5: an entry of an index that names no component may be any."""
    assert go(source.base, dest).status == DONE
    lists.publish_list([lists.resource(name) for name in list(FILES)[:4]], when=20)
    source.pages["/set/part.xml"] = source.pages["/set/resourcelist.xml"]
    parts = ["<sitemap></sitemap>", url(f"{lists.root}/part.xml", tag="sitemap")]
    index = document(parts, "sitemapindex", lists.up(), capability="resourcelist", at=at(20))
    lists.serve("/set/resourcelist.xml", index)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.deleted, ran.one.skipped, tree(dest)) == (FAILED, 0, 1, FILES)


def test_the_commands_tell_it(
    source: Source, site: Site, cdn: Source, dest: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A person reads it in the line of the set, at both commands; the option is there at both."""
    site.publish_list([*(site.resource(name) for name in FILES), *far(cdn, "f1.txt")])
    assert run(["sync", source.base, str(dest)]) == FAILED
    said = capsys.readouterr()
    assert "1 refused" in said.out
    assert f"--allow-host {host_of(cdn)}" in said.err
    assert run(["audit", source.base, str(dest)]) == UNDETERMINED
    assert "set: undetermined; 5 same, " in (out := capsys.readouterr().out)
    assert "1 refused" in out.splitlines()[0]
    assert run(["sync", "--skip-host", host_of(cdn), source.base, str(dest)]) == DONE
    assert "1 left out" in capsys.readouterr().out
    assert run(["audit", "--skip-host", host_of(cdn), source.base, str(dest)]) == DONE
    assert "1 left out" in capsys.readouterr().out


def test_a_change_that_was_skipped_is_remembered(source: Source, site: Site, dest: Path) -> None:
    """DST-F5: the position passes it, the status tells it, until the list is mended."""
    assert go(source.base, dest).status == DONE
    site.put("f1.txt", b"another")
    site.publish_changes(10, entries=["<url></url>", site.change(20, "updated", "f1.txt", b"another")])
    for _ in range(2):
        ran = go(source.base, dest)
        assert (ran.status, ran.one.skipped, tree(dest)["f1.txt"]) == (FAILED, 1, b"another")
    site.publish_changes(10, entries=[site.change(20, "updated", "f1.txt", b"another")])
    assert (go(source.base, dest).status, check(source.base, dest).verdict) == (DONE, "in sync")
