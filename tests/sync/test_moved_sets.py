"""A source that moves takes the base of the copy's names along, and nobody else can make it seem to (DST-F10)."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest

from headwater import publish_folder
from headwater.progress import Notice, Progress
from headwater.sync.options import SyncOptions
from headwater.transport.access import SignInCredentials
from headwater.transport.transport import Transport
from tests.support.copying import DONE, FAILED, IMPATIENT, SOURCE, USAGE, Ran, check, go, run_over, tree
from tests.support.fake_source import Handler, Page, Reply, Site, Source, at, document, redirect, url
from tests.support.program import run_here

BODIES = {f"d{n % 4}/f{n}.txt": b"body %d\n" % n for n in range(30)}


class Elsewhere(dict[str, Page]):
    """Pages of a host that redirects every address to the same path at another."""

    def __init__(self, to: str, status: int = 301) -> None:
        self._to, self._status = to, status

    def get(self, path: str, _default: object = None) -> Page:
        return redirect(self._to + path, self._status)


def publish(source: Source, name: str = "set", bodies: dict[str, bytes] = BODIES) -> Site:
    """Thirty files and their changes, the same wherever this is called."""
    site = Site(source, name)
    for file, body in bodies.items():
        site.put(file, body)
    return site.publish()


@pytest.fixture
def new() -> Iterator[Source]:
    with Source() as running:
        yield running


@pytest.fixture
def copied(source: Source, dest: Path) -> Site:
    """A copy of the source at its old address."""
    site = publish(source)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == BODIES
    return site


def fetched(*sources: Source) -> list[str]:
    return [path for source in sources for path in source.requests() if "/resources/" in path]


def assert_taken_along(ran, dest: Path) -> None:
    assert ran.status == DONE, ran
    one = ran.one
    assert (one.created, one.updated, one.deleted, one.held_back, one.octets, one.held) == (0, 0, 0, 0, 0, 30)
    assert tree(dest) == BODIES


def assert_settled(url: str, dest: Path) -> None:
    """The move is over: an audit agrees, and the next run has nothing to tell."""
    audited = check(url, dest)
    assert (audited.verdict, audited.sets[0].same) == ("in sync", 30)
    again = go(url, dest)
    assert (again.status, again.rules(), again.one.octets) == (DONE, set(), 0)
    assert again.one.process in ("none", "increment")
    assert tree(dest) == BODIES


@pytest.mark.parametrize("status", [301, 308])
@pytest.mark.parametrize("address", ["old", "new"])
def test_everything_redirects_permanently(
    address: str, status: int, source: Source, new: Source, copied: Site, dest: Path
) -> None:
    publish(new)
    source.pages = Elsewhere(new.base, status)
    source.forget()
    ran = go(source.base if address == "old" else new.base, dest)
    assert_taken_along(ran, dest)
    assert "DST-F10" in ran.rules()
    named = [notice.message for notice in ran.notices if "use this address" in notice.message]
    assert len(named) == (address == "old")
    assert all(f"has moved to {new.base}/" in message for message in named)
    assert fetched(source, new) == []
    assert ran.one.base == f"{new.base}/set/resources/"
    assert_settled(source.base if address == "old" else new.base, dest)


def test_changes_go_on_at_the_new_place(source: Source, new: Source, copied: Site, dest: Path) -> None:
    """What happened there since is done under the names of the copy."""
    site = publish(new)
    site.put("d1/f1.txt", b"other\n")
    site.drop("d2/f2.txt")
    site.put("d9/new.txt", b"new\n")
    site.publish()
    source.pages = Elsewhere(new.base)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.created, ran.one.updated, ran.one.deleted) == (DONE, 1, 1, 1)
    want = BODIES | {"d1/f1.txt": b"other\n", "d9/new.txt": b"new\n"}
    del want["d2/f2.txt"]
    assert tree(dest) == want
    site.put("d3/f3.txt", b"later\n")
    site.publish_changes()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.process, ran.one.updated) == (DONE, "increment", 1)
    assert tree(dest) == want | {"d3/f3.txt": b"later\n"}
    assert check(new.base, dest).verdict == "in sync"


def test_at_the_new_address_without_a_redirect(source: Source, new: Source, copied: Site, dest: Path) -> None:
    """HW-SYN-07 names the command, and the command does it."""
    publish(new)
    source.pages.clear()
    ran = go(new.base, dest)
    assert ran.error is not None
    assert ran.error.code == "HW-SYN-07"
    assert f"headwater sync {new.base}/ {dest} --moved" in ran.error.todo
    assert tree(dest) == BODIES
    ran = go(new.base, dest, moved=True)
    assert_taken_along(ran, dest)
    assert_settled(new.base, dest)
    assert go(new.base, dest, moved=True).status == DONE


def test_a_new_base_url_at_the_old_address(source: Source, new: Source, copied: Site, dest: Path) -> None:
    """The documents at the address that is known name others elsewhere: the hashes tell that it is the same set."""
    site = publish(new)
    for path in list(source.pages):
        source.pages[path] = new.pages[path]
    ran = go(source.base, dest)
    assert_taken_along(ran, dest)
    assert_settled(source.base, dest)
    site.put("d0/f0.txt", b"later\n")
    site.publish_changes()
    assert go(source.base, dest).one.updated == 1


def test_another_path_of_the_same_host(source: Source, copied: Site, dest: Path) -> None:
    source.pages.clear()
    publish(source, "files")
    ran = go(source.base, dest)
    assert_taken_along(ran, dest)
    assert ran.one.name == "set"
    assert_settled(source.base, dest)


def test_only_the_resources_move(source: Source, new: Source, copied: Site, dest: Path) -> None:
    """A new `resource_base`: the documents stay where they are."""
    site = publish(source)
    moved = publish(new)
    site.publish_list([moved.resource(name) for name in site.files])
    site.publish_changes(site.clock, entries=[])
    ran = go(source.base, dest, allow_hosts=(new.base.removeprefix("http://"),))
    assert_taken_along(ran, dest)
    assert fetched(new) == []


def test_a_list_without_hashes(source: Source, new: Source, dest: Path) -> None:
    """`lastmod` and length stand in for a hash."""
    for where in (source, new):
        site = publish(where)
        site.publish_list([site.resource(name, hash=None) for name in site.files])
        site.publish_changes(site.clock, entries=[])
        if where is source:
            assert go(source.base, dest).status == DONE
    source.pages = Elsewhere(new.base)
    new.forget()
    assert_taken_along(go(source.base, dest), dest)
    assert fetched(new) == []


def test_several_sets(source: Source, new: Source, dest: Path) -> None:
    for where in (source, new):
        for name in ("one", "two"):
            publish(where, name, {"a.txt": name.encode(), "b.txt": b"b of " + name.encode()}).publish_description(
                "one", "two"
            )
        if where is source:
            assert go(source.base, dest).status == DONE
            before = tree(dest)
    source.pages.clear()
    assert go(new.base, dest).status == USAGE
    ran = go(new.base, dest, moved=True)
    assert ran.status == DONE
    assert ran.report is not None
    assert [(one.name, one.folder, one.octets, one.held) for one in ran.report.sets] == [
        ("one", "one", 0, 2),
        ("two", "two", 0, 2),
    ]
    assert tree(dest) == before
    assert check(new.base, dest).verdict == "in sync"


def two_sets(source: Source, **spoilt: dict[str, bytes]) -> None:
    """The sets `one` and `two`, of which some may have other content."""
    for name in ("one", "two"):
        bodies = {"a.txt": name.encode(), "b.txt": b"b of " + name.encode()}
        publish(source, name, spoilt.get(name, bodies)).publish_description("one", "two")


@pytest.mark.parametrize("wrong", ["no such set", "address of one set"])
@pytest.mark.parametrize("first", ["one", "two"])
@pytest.mark.parametrize("lists", [("resourcelist", "changelist"), ("changelist",)], ids=["lists", "changes alone"])
def test_by_the_users_word_all_sets_move_or_none(
    lists: tuple[str, ...], first: str, wrong: str, source: Source, new: Source, dest: Path
) -> None:
    """Where one set is not at the new address, neither it nor a set beside it is taken along or made."""
    two_sets(source)
    for name in ("one", "two"):
        Site(source, name).publish_capabilities(*lists)
    assert go(source.base, dest).status == DONE
    before = tree(dest)
    two_sets(new)
    publish(new, "three", {"t.txt": b"three"}).publish_description("one", "two", "three")
    for name in ("one", "two", "three"):
        Site(new, name).publish_capabilities(*lists)
    other = "two" if first == "one" else "one"
    if wrong == "no such set":
        Site(new).publish_description(other, "three")
    start = f"{new.base}/{other}/capabilitylist.xml" if wrong == "address of one set" else new.base
    for _ in range(2):
        ran = go(start, dest, moved=True)
        assert (ran.status, ran.report) == (SOURCE, None), "no set was dealt with"
        assert first in str(ran.error)
        assert tree(dest) == before
    assert fetched(new) == []
    again = go(source.base, dest)
    assert again.report is not None
    assert (again.status, again.rules(), [one.name for one in again.report.sets]) == (DONE, set(), ["one", "two"])
    two_sets(new)
    for name in ("one", "two"):
        Site(new, name).publish_capabilities(*lists)
    assert go(new.base, dest, moved=True).status == DONE
    assert tree(dest) == before


def test_the_sets_that_are_named_may_move_without_the_others(source: Source, new: Source, dest: Path) -> None:
    two_sets(source)
    assert go(source.base, dest).status == DONE
    before = tree(dest)
    two_sets(new, two={"x.txt": b"of another source"})
    ran = go(new.base, dest, moved=True, sets=("one",))
    assert ran.status == DONE
    assert ran.one.base == f"{new.base}/one/resources/"
    assert go(new.base, dest, moved=True, sets=("two",)).status == SOURCE
    assert tree(dest) == before
    assert fetched(new) == []


def test_a_set_given_up_before_the_move_is_not_asked_for(source: Source, new: Source, dest: Path) -> None:
    two_sets(source)
    assert go(source.base, dest).status == DONE
    Site(source).publish_description("one")
    assert go(source.base, dest).status == DONE
    two_sets(new)
    Site(new).publish_description("one")
    before = tree(dest)
    assert go(new.base, dest, moved=True).status == DONE
    assert tree(dest) == before


def test_only_a_change_list(source: Source, new: Source, dest: Path) -> None:
    """Without a Resource List the changes are read again."""
    for where in (source, new):
        publish(where).publish_capabilities("changelist")
        if where is source:
            assert go(source.base, dest).status == DONE
    source.pages = Elsewhere(new.base)
    ran = go(source.base, dest)
    assert_taken_along(ran, dest)
    assert fetched(new) == []
    assert check(source.base, dest).sets[0].verdict == "undetermined"
    assert go(source.base, dest).rules() == set()


def test_an_audit_between_the_move_and_the_next_run(source: Source, new: Source, copied: Site, dest: Path) -> None:
    publish(new)
    source.pages = Elsewhere(new.base)
    audited = check(source.base, dest)
    assert (audited.verdict, audited.sets[0].same, audited.sets[0].missing) == ("in sync", 30, 0)


def test_a_base_that_is_named_each_time(source: Source, new: Source, dest: Path) -> None:
    """Who names a base by an option in a timer need not change it when the source moves; a third one is refused."""
    publish(source)
    old = f"{source.base}/set/resources/"
    assert go(source.base, dest, base=old).status == DONE
    publish(new)
    source.pages = Elsewhere(new.base)
    for base in (old, old, f"{new.base}/set/resources/"):
        assert go(source.base, dest, base=base).status == DONE
        assert tree(dest) == BODIES
    assert go(source.base, dest, base=f"{new.base}/other/").status == USAGE


def test_files_that_changed_folders_have_not_moved(source: Source, copied: Site, dest: Path) -> None:
    """All files in another folder of the same source: new names, as the source has them."""
    for name in list(copied.files):
        copied.drop(name)
    for name, body in BODIES.items():
        copied.put(f"below/{name}", body)
    copied.publish_list()
    copied.publish_changes(copied.clock, entries=[])
    ran = go(source.base, dest, max_delete=1.0)
    assert ran.status == DONE
    assert tree(dest) == {f"below/{name}": body for name, body in BODIES.items()}


def test_what_failed_before_is_tried_at_the_new_place(source: Source, new: Source, dest: Path) -> None:
    publish(source)
    del source.pages["/set/resources/d1/f1.txt"]
    assert go(source.base, dest).status == FAILED
    publish(new)
    source.pages = Elsewhere(new.base)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.created, ran.one.failed) == (DONE, 1, 0)
    assert tree(dest) == BODIES
    assert fetched(new) == ["/set/resources/d1/f1.txt"]


# behind a token


def behind_a_token(pages: dict[str, Page]) -> dict[str, Page]:
    def guarded(page: Page) -> Page:
        def answer(handler: Handler) -> Reply | None:
            if handler.headers.get("Authorization") != "Bearer secret":
                return Reply(b"", 401, {"WWW-Authenticate": "Bearer"})
            return page(handler) if callable(page) else page

        return answer

    return {path: guarded(page) for path, page in pages.items()}


def go_as(url: str, dest: Path, **options: object) -> Ran:
    """`go` by somebody who has a token for the address given."""
    options |= {"authorization": "Bearer secret"}
    return go(
        url, dest, msgspec.structs.replace(IMPATIENT, credentials=SignInCredentials(url, "Bearer secret")), **options
    )


@pytest.mark.parametrize("way", ["redirect", "new base URL"])
def test_behind_a_token(way: str, source: Source, new: Source, dest: Path) -> None:
    """The token is withheld from another origin, which is said, with the command that names it to us."""
    publish(source)
    source.pages = behind_a_token(source.pages)
    assert go_as(source.base, dest).status == DONE
    publish(new)
    source.pages = Elsewhere(new.base) if way == "redirect" else dict(behind_a_token(new.pages))
    new.pages = behind_a_token(new.pages)
    for _ in range(2):
        ran = go_as(source.base, dest)
        assert ran.status == SOURCE
        assert ran.report is not None
        assert f"headwater sync {new.base}/ {dest} --moved" in str(ran.report.faults)
        assert tree(dest) == BODIES
    assert not any("Authorization" in headers for _, headers in new.log)
    assert_taken_along(go_as(new.base, dest, moved=True), dest)
    assert fetched(new) == []
    again = go_as(new.base, dest)
    assert (again.status, again.rules(), again.one.octets) == (DONE, set(), 0)


# with what may not be fetched, or cannot be read


def test_the_resources_move_to_a_host_that_is_not_allowed(
    source: Source, new: Source, copied: Site, dest: Path
) -> None:
    """DST-S12: they are refused and told, nothing is deleted, and nothing is transferred once they are allowed."""
    site = publish(new)
    with Source() as cdn:
        away = publish(cdn)
        site.publish_list([away.resource(name) for name in site.files])
        site.publish_changes(site.clock, entries=[])
        source.pages = Elsewhere(new.base)
        for _ in range(2):
            ran = go(source.base, dest)
            assert (ran.status, ran.one.refused, ran.one.deleted, ran.one.held_back) == (FAILED, 30, 0, 0)
            assert tree(dest) == BODIES
        assert_taken_along(go(source.base, dest, allow_hosts=(cdn.base.removeprefix("http://"),)), dest)
        assert fetched(cdn) == []


def test_a_list_that_cannot_be_read_whole_is_told_as_that(
    source: Source, new: Source, copied: Site, dest: Path
) -> None:
    """Nobody can say whether the same is there: nothing is changed, and the next run finds out."""
    site = publish(new)
    parts = [url(f"{site.root}/{name}.xml", tag="sitemap") for name in ("part1", "part2")]
    names = list(site.files)
    for name, some in (("part1", names[:10]), ("part2", names[10:])):
        entries = [site.resource(one) for one in some]
        new.pages[f"/set/{name}.xml"] = Reply(document(entries, capability="resourcelist", at=at(site.clock)))
    second = new.pages.pop("/set/part2.xml")
    index = document(parts, root="sitemapindex", capability="resourcelist", at=at(site.clock))
    new.pages["/set/resourcelist.xml"] = Reply(index)
    source.pages = Elsewhere(new.base)
    ran = go(source.base, dest)
    assert (ran.status, "incomplete" in str(ran.one.fault)) == (SOURCE, True)
    assert tree(dest) == BODIES
    new.pages["/set/part2.xml"] = second
    assert_taken_along(go(source.base, dest), dest)


# the address of a set


@pytest.mark.parametrize("lists", [("resourcelist", "changelist"), ("resourcelist",)], ids=["both", "no changes"])
def test_the_address_of_a_capability_list_redirects(
    lists: tuple[str, ...], source: Source, new: Source, dest: Path
) -> None:
    """No Source Description tells of it: the redirect of what is polled does."""
    publish(source).publish_capabilities(*lists)
    start = f"{source.base}/set/capabilitylist.xml"
    assert go(start, dest).status == DONE
    site = publish(new)
    site.put("d1/f1.txt", b"other\n")
    site.publish().publish_capabilities(*lists)
    source.pages = Elsewhere(new.base)
    ran = go(start, dest)
    assert (ran.status, ran.one.created, ran.one.updated, ran.one.deleted) == (DONE, 0, 1, 0)
    assert "DST-F10" in ran.rules()
    assert tree(dest) == BODIES | {"d1/f1.txt": b"other\n"}
    assert fetched(new) == ["/set/resources/d1/f1.txt"]
    assert check(start, dest).verdict == "in sync"
    again = go(start, dest)
    assert (again.status, again.rules()) == (DONE, set())


# nobody else


@pytest.mark.parametrize("held", [5, 30])
def test_a_permanent_redirect_to_other_content(held: int, source: Source, new: Source, dest: Path) -> None:
    """Nothing is copied, replaced or deleted, however often; afterwards everything goes on."""
    bodies = {f"f{n}.txt": b"body %d\n" % n for n in range(held)}
    site = publish(source, bodies=bodies)
    assert go(source.base, dest).status == DONE
    publish(new, bodies={name: b"evil " + body for name, body in bodies.items()})
    pages = source.pages
    source.pages = Elsewhere(new.base)
    for _ in range(3):
        ran = go(source.base, dest)
        assert ran.status == SOURCE
        assert "HW-SYN-14" in str(ran.one.fault) or "other content" in str(ran.one.fault)
        assert tree(dest) == bodies
    assert fetched(new) == []
    source.pages = pages
    site.put("f1.txt", b"later\n")
    site.publish_changes()
    ran = go(source.base, dest)
    assert (ran.status, ran.one.updated) == (DONE, 1)
    assert tree(dest) == bodies | {"f1.txt": b"later\n"}


@pytest.mark.parametrize("same", [0, 1], ids=["nothing is the same", "one file is the same"])
@pytest.mark.parametrize("sets", [("one",), ("one", "two")], ids=["alone", "of two"])
def test_what_is_advised_where_a_set_has_other_content_helps(
    sets: tuple[str, ...], same: int, source: Source, new: Source, dest: Path
) -> None:
    """The operator has changed much at the time of the move: the command that is told brings the copy there."""
    bodies = {f"f{n}.txt": b"body %d\n" % n for n in range(4)}
    changed = {name: body if n < same else b"new " + body for n, (name, body) in enumerate(bodies.items())}
    for place, first in ((source, bodies), (new, changed)):
        for name in sets:
            publish(place, name, first if name == "one" else bodies).publish_description(*sets)
    assert go(source.base, dest).status == DONE
    source.pages = Elsewhere(new.base)
    ran = go(source.base, dest)
    assert ran.status == SOURCE
    told = next(one.message for one in ran.notices if "other content" in one.message)
    for command in told.partition(", run: ")[2].split("; "):
        assert run_here(*shlex.split(command)[1:]).returncode == DONE
    assert (go(source.base, dest).status, check(new.base, dest).verdict) == (DONE, "in sync")
    folder = dest if len(sets) == 1 else dest / "one"
    assert tree(folder) == changed


def test_an_empty_place_is_no_new_place(source: Source, new: Source, copied: Site, dest: Path) -> None:
    Site(new).publish()
    source.pages = Elsewhere(new.base)
    for moved in (False, True):
        assert go(source.base, dest, moved=moved).status == SOURCE
        assert tree(dest) == BODIES


@pytest.mark.parametrize("status", [301, 302])
def test_a_captive_portal_moves_nothing(status: int, source: Source, new: Source, copied: Site, dest: Path) -> None:
    page = Reply(b"<!DOCTYPE html><html><head><title>Sign in</title></head></html>")
    new.pages = {f"{path}": page for path in source.pages}
    pages = source.pages
    source.pages = Elsewhere(new.base, status)
    assert go(source.base, dest).status != DONE
    assert tree(dest) == BODIES
    source.pages = pages
    assert go(source.base, dest).status == DONE


@pytest.mark.parametrize("same", [True, False])
def test_a_temporary_redirect_is_no_move(same: bool, source: Source, new: Source, copied: Site, dest: Path) -> None:
    bodies = BODIES if same else {name: b"x" + body for name, body in BODIES.items()}
    publish(new, bodies=bodies)
    pages = source.pages
    source.pages = Elsewhere(new.base, 302)
    ran = go(source.base, dest)
    assert ran.status != DONE
    assert tree(dest) == BODIES
    source.pages = pages
    assert_settled(source.base, dest)


def test_the_word_of_the_user_is_not_enough_for_another_source(
    source: Source, new: Source, copied: Site, dest: Path
) -> None:
    publish(new, bodies={name: b"other " + body for name, body in BODIES.items()})
    for _ in range(2):
        ran = go(new.base, dest, moved=True)
        assert ran.status == SOURCE
        assert "another source" in str(ran.one.fault)
        assert tree(dest) == BODIES
    assert_settled(source.base, dest)


def test_deletions_after_a_move_are_guarded(source: Source, new: Source, copied: Site, dest: Path) -> None:
    """DST-B4: what is listed at the new place no more needs consent, if it is much."""
    site = publish(new, bodies=dict(list(BODIES.items())[:16]))
    site.clock = 40.0
    site.publish()
    source.pages = Elsewhere(new.base)
    ran = go(source.base, dest)
    assert (ran.status, ran.one.deleted, ran.one.held_back, ran.one.octets) == (FAILED, 0, 14, 0)
    assert tree(dest) == BODIES


# killed


class Killed(BaseException):
    """Stands for kill -9."""


@pytest.mark.parametrize("notice", range(3))
def test_killed_while_it_moves(notice: int, source: Source, new: Source, copied: Site, dest: Path) -> None:
    """The next run goes on, whether what is held had been taken along or not."""
    publish(new)
    source.pages = Elsewhere(new.base)
    count = 0

    def listen(event: Notice | Progress) -> None:
        nonlocal count
        if (isinstance(event, Notice) and event.rule == "DST-F10") or isinstance(event, Progress):
            count += 1
            if count > notice:
                raise Killed

    with Transport(IMPATIENT) as wire, pytest.raises(Killed):
        run_over(wire, source.base, dest, listener=listen)
    assert tree(dest) == BODIES
    assert_taken_along(go(source.base, dest), dest)
    assert_settled(source.base, dest)


def test_killed_at_any_commit_of_a_move(
    source: Source, new: Source, copied: Site, dest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every state that a run leaves between two transactions leads to the same end, by the user's word too."""
    from headwater.storage.database import Database

    publish(new)
    source.pages.clear()
    write = Database.write
    for cut in range(1, 200):
        shutil.rmtree(tmp_path / "cut", ignore_errors=True)
        shutil.copytree(dest, tmp_path / "cut")
        left = [cut]

        def cut_off(database, left=left):
            left[0] -= 1
            if left[0] < 0:
                raise Killed
            return write(database)

        monkeypatch.setattr(Database, "write", cut_off)
        try:
            with Transport(IMPATIENT) as wire:
                run_over(wire, new.base, tmp_path / "cut", SyncOptions(moved=True))
            break
        except Killed:
            pass
        finally:
            monkeypatch.setattr(Database, "write", write)
        assert tree(tmp_path / "cut") == BODIES
        ran = go(new.base, tmp_path / "cut", moved=True)
        assert_taken_along(ran, tmp_path / "cut")
    else:
        pytest.fail("the run never came to its end")
    assert cut > 5
    assert_settled(new.base, tmp_path / "cut")


# sets that are told by what they list


def rename_set(source: Source, old: str, new: str, bodies: dict[str, bytes]) -> None:
    source.pages = {path: page for path, page in source.pages.items() if not path.startswith(f"/{old}/")}
    publish(source, new, bodies)


def test_another_name_and_nearly_all_of_the_content(source: Source, copied: Site, dest: Path) -> None:
    """The only set of a source under another name at the same host: it is the same if nearly all is the same."""
    rename_set(source, "set", "other", dict(list(BODIES.items())[:29]) | {"new.txt": b"new"})
    ran = go(source.base, dest)
    assert (ran.status, ran.one.name, ran.one.created, ran.one.deleted, ran.one.octets) == (DONE, "set", 1, 1, 3)


def test_another_name_and_half_of_the_content_is_another_set(source: Source, copied: Site, dest: Path) -> None:
    """The volume of another year does not take the place of the last one."""
    rename_set(source, "set", "other", dict(list(BODIES.items())[:15]) | {f"n{n}.txt": b"%d" % n for n in range(15)})
    ran = go(source.base, dest)
    assert ran.status == DONE
    assert {name: body for name, body in tree(dest).items() if not name.startswith("other/")} == BODIES
    assert (dest / "other/n1.txt").exists()


def test_sets_under_other_names_by_the_users_word(source: Source, new: Source, dest: Path) -> None:
    """Which is which the user says, one after another."""
    contents = {"one": {"a.txt": b"a", "b.txt": b"b"}, "two": {"c.txt": b"c", "d.txt": b"d"}}
    for name, bodies in contents.items():
        publish(source, name, bodies).publish_description(*contents)
    assert go(source.base, dest).status == DONE
    before = tree(dest)
    for name, other in (("two", "x"), ("one", "y")):
        publish(new, other, contents[name]).publish_description("x", "y")
    assert go(new.base, dest, moved=True).status == SOURCE
    for name, other in (("two", "x"), ("one", "y")):
        ran = go(f"{new.base}/{other}/capabilitylist.xml", dest, moved=True, sets=(name,))
        assert (ran.status, ran.one.name, ran.one.octets) == (DONE, name, 0)
    assert go(new.base, dest).status == DONE
    assert tree(dest) == before


def test_an_old_host_that_is_gone_moves_no_set_without_a_word(source: Source, new: Source, dest: Path) -> None:
    names = [f"s{n}" for n in range(8)]
    for where in (source, new):
        for name in names:
            publish(where, name, {"a.txt": name.encode()})
        Site(where, "s0").publish_description(*names)
        if where is source:
            assert go(source.base, dest).status == DONE
    source.pages = {f"/{name}/capabilitylist.xml": Reply(script=lambda _handler: None) for name in names}
    assert go(new.base, dest).status == USAGE
    ran = go(new.base, dest, moved=True)
    assert ran.status == DONE
    assert ran.report is not None
    assert [one.octets for one in ran.report.sets] == [0] * 8


def test_a_list_on_a_foreign_host_is_not_looked_at(source: Source, new: Source, copied: Site, dest: Path) -> None:
    """DST-S12: to find out whether sets are alike nothing is asked of hosts that are not those of the documents."""
    with Source() as inner:
        publish(inner)
        entries = [url(f"{inner.base}/set/resourcelist.xml", capability="resourcelist")]
        source.pages["/files/capabilitylist.xml"] = Reply(document(entries, capability="capabilitylist"))
        entries = [url(f"{source.base}/files/capabilitylist.xml", capability="capabilitylist")]
        source.pages["/.well-known/resourcesync"] = Reply(document(entries, capability="description"))
        go(source.base, dest)
        assert inner.requests() == []
    assert {name: body for name, body in tree(dest).items() if name in BODIES} == BODIES


# back again


def test_who_answered_once_does_not_keep_the_copy(source: Source, new: Source, dest: Path) -> None:
    """Somebody in between redirected once to a mirror of the same content: the address given goes on being asked."""
    site = publish(source)
    start = f"{source.base}/set/capabilitylist.xml"
    assert go(start, dest).status == DONE
    mirror = publish(new)
    mirror.put("d1/f1.txt", b"evil\n")
    mirror.publish_changes()
    pages = source.pages
    source.pages = Elsewhere(new.base)
    go(start, dest)
    source.pages = pages
    site.put("d1/f1.txt", b"good\n")
    site.clock = 50.0
    site.publish()
    ran = go(start, dest)
    assert ran.status == DONE
    assert tree(dest) == BODIES | {"d1/f1.txt": b"good\n"}
    new.forget()
    assert go(start, dest).status == DONE
    assert new.requests() == []


@pytest.mark.parametrize("reply", [Reply(b"", 404), Reply(b"<html/>")], ids=["gone", "a web page"])
def test_a_list_that_cannot_be_used_moves_no_set(reply: Reply, source: Source, dest: Path) -> None:
    """DST-F10: the Capability List is asked where the list is; what it redirects to is compared with the copy first."""
    site = publish(source)
    assert go(source.base, dest).status == DONE
    publish(source, "other", {name: b"evil " + body for name, body in BODIES.items()}).publish_description("set")
    pages = dict(source.pages)
    source.pages["/set/changelist.xml"] = reply
    source.pages["/set/capabilitylist.xml"] = redirect(f"{source.base}/other/capabilitylist.xml", 301)
    assert go(source.base, dest).status == SOURCE
    assert tree(dest) == BODIES
    source.pages = pages
    site.put("d1/f1.txt", b"good\n")
    site.publish_changes()
    source.forget()
    assert go(source.base, dest).status == DONE
    assert tree(dest) == BODIES | {"d1/f1.txt": b"good\n"}
    assert not [path for path in source.requests() if path.startswith("/other/")]


def test_a_move_and_back(source: Source, new: Source, copied: Site, dest: Path) -> None:
    pages = source.pages
    publish(new)
    source.pages = Elsewhere(new.base)
    assert_taken_along(go(source.base, dest), dest)
    source.pages, new.pages = pages, Elsewhere(source.base)
    assert_taken_along(go(source.base, dest), dest)
    assert_settled(source.base, dest)


# what Headwater itself publishes


def static_pages(folder: Path) -> dict[str, Page]:
    return {
        f"/{quote(str(path.relative_to(folder)))}": Reply(path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("way", ["redirect", "both addresses", "by hand"])
def test_another_base_url_of_a_published_folder(
    way: str, source: Source, new: Source, dest: Path, tmp_path: Path
) -> None:
    """The recipe of the manual: `diff -r` with the original holds before and after, and changes go on."""
    photos, site = tmp_path / "photos", tmp_path / "site"
    for name in ("2025/lake.jpg", "2026/hills & dales.jpg", "read me.txt", "ä/ö.txt"):
        (photos / name).parent.mkdir(parents=True, exist_ok=True)
        (photos / name).write_bytes(name.encode())
    publish_folder(photos, site, source.base, resources="copy")
    source.pages = static_pages(site)
    assert go(source.base, dest).status == DONE
    assert tree(dest) == tree(photos)
    (photos / "2025/lake.jpg").unlink()
    (photos / "new.txt").write_bytes(b"new")
    publish_folder(photos, site, new.base, resources="copy")
    new.pages = static_pages(site)
    source.pages = new.pages if way == "both addresses" else Elsewhere(new.base) if way == "redirect" else {}
    ran = go(new.base if way == "by hand" else source.base, dest, moved=way == "by hand")
    assert (ran.status, ran.one.created, ran.one.updated, ran.one.deleted, ran.one.octets) == (DONE, 1, 0, 1, 3)
    assert tree(dest) == tree(photos)
    (photos / "read me.txt").write_bytes(b"changed")
    publish_folder(photos, site, new.base, resources="copy")
    new.pages = static_pages(site)
    source.pages = new.pages if way == "both addresses" else source.pages
    ran = go(new.base, dest)
    assert (ran.status, ran.one.updated, ran.one.octets) == (DONE, 1, 7)
    assert tree(dest) == tree(photos)
    assert check(new.base, dest).verdict == "in sync"


# sources of one document


@pytest.mark.parametrize("start", ["/", "/set/resourcelist.xml"])
def test_a_resource_list_alone(start: str, source: Source, new: Source, dest: Path) -> None:
    """Found by robots.txt, or given as the address: its permanent redirect says that it has moved."""
    for where in (source, new):
        site = publish(where)
        entries = [site.resource(name) for name in site.files]
        body = document(entries, capability="resourcelist", at=at(site.clock))
        robots = f"Sitemap: {where.base}/set/resourcelist.xml\n".encode()
        resources: dict[str, Page] = {path: page for path, page in where.pages.items() if "/resources/" in path}
        where.pages = {**resources, "/set/resourcelist.xml": Reply(body), "/robots.txt": Reply(robots)}
        if where is source:
            assert go(source.base + start, dest).status == DONE
    source.pages = Elsewhere(new.base)
    ran = go(source.base + start, dest)
    assert_taken_along(ran, dest)
    assert fetched(new) == []
    audited = check(source.base + start, dest)
    assert (audited.verdict, audited.sets[0].same) == ("in sync", 30)
    assert go(source.base + start, dest).status == DONE
    assert tree(dest) == BODIES


@pytest.mark.parametrize("dated", [True, False])
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_plain_sitemap(by_hand: bool, dated: bool, source: Source, new: Source, dest: Path) -> None:
    """Nothing that it lists tells octets: after the redirect, or the user's word, the source is asked for each file."""
    for where in (source, new):
        site = publish(where)
        entries = [url(site.uri(name), at(0) if dated else None) for name in site.files]
        resources: dict[str, Page] = {path: page for path, page in where.pages.items() if "/resources/" in path}
        where.pages = {**resources, "/sitemap.xml": Reply(document(entries))}
        if where is source:
            assert go(source.base, dest, sitemap=True).status == DONE
    source.pages = {} if by_hand else Elsewhere(new.base)
    ran = go(new.base, dest, sitemap=True, moved=by_hand)
    assert (ran.status, ran.one.created, ran.one.deleted, ran.one.octets) == (DONE, 0, 0, 0)
    assert tree(dest) == BODIES
    assert go(new.base, dest, sitemap=True).status == DONE
