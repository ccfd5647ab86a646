"""A source of many sets: which documents a run asks for, and what it remembers of the sets it did not look at.

DST-A6, DST-A7, DST-C1, DST-C5, DST-F10, RS-SD-05, RS-SD-09, RS-DST-09, AMB-53.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest
from click import Command
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headwater.cli.audit import command as audit_command
from headwater.cli.sync import command as sync_command
from headwater.progress import Notice, Progress
from headwater.storage.database import Database
from headwater.storage.transaction import Transaction
from headwater.sync.explore import ExploreReport, explore
from headwater.sync.lists.documents import SMALL_OCTETS
from headwater.sync.options import SyncOptions
from headwater.sync.reports import SyncReport
from headwater.sync.run import SyncTask, follow
from headwater.sync.sets.polling import PollInterval
from headwater.sync.sets.selection import SetNames, SetSelection, choose_sets, names_of, sole_owner, unknown_set
from headwater.transport.transport import Transport
from tests.support.copying import DONE, FINDINGS, IMPATIENT, SOURCE, USAGE, Ran, check, go, run_over, tree
from tests.support.failing import failing
from tests.support.fake_source import Handler, Reply, Site, Source, document, redirect, reset, url

WELL_KNOWN = "/.well-known/resourcesync"
COUNT = 16


def named(source: Source, *names: str) -> dict[str, Site]:
    """Sets of two files each."""
    sites = {}
    for name in names:
        site = sites[name] = Site(source, name)
        site.put("a.txt", name.encode())
        site.put("b.txt", b"b")
        site.publish()
    describe(source, *names)
    return sites


def describe(source: Source, *names: str, path: str = WELL_KNOWN, capability: str | None = "capabilitylist") -> None:
    entries = [url(f"{source.base}/{name}/capabilitylist.xml", capability=capability) for name in names]
    source.pages[path] = Reply(document(entries, capability="description"))


def index(source: Source, *pages: str) -> None:
    entries = [url(f"{source.base}{page}", tag="sitemap", capability="description") for page in pages]
    source.pages[WELL_KNOWN] = Reply(document(entries, "sitemapindex", capability="description"))


def names(count: int = COUNT) -> list[str]:
    return [f"p{n:02}" for n in range(count)]


@pytest.fixture
def many(source: Source) -> dict[str, Site]:
    sites = named(source, *names())
    source.forget()
    return sites


def slowly() -> float:
    """A clock by which nothing takes long, however busy the machine is."""
    return time.monotonic() / 1000


UNHURRIED = msgspec.structs.replace(IMPATIENT, monotonic=slowly, first_backoff_seconds=1e-5)


def asked(source: Source) -> list[str]:
    """The Capability Lists and descriptions that were asked for since the last time, sorted: many go at a time."""
    found = [
        path
        for path in source.requests()
        if "capabilitylist" in path or path.startswith(("/.well", "/new/.well", "/d"))
    ]
    source.forget()
    return sorted(found)


def sets_of(ran: Ran) -> list[str]:
    assert ran.report is not None, ran.error
    return [one.name for one in ran.report.sets]


# what the Source Description tells


@pytest.mark.parametrize("said", ["p07", "{base}/p07/capabilitylist.xml"], ids=["name", "uri"])
@pytest.mark.parametrize("capability", ["capabilitylist", None], ids=["stated", "DST-A6"])
def test_one_set_of_many_is_copied_without_looking_at_the_others(
    said: str, capability: str | None, source: Source, many: dict[str, Site], dest: Path
) -> None:
    """DST-A6: Source Description, its Capability List, its two lists: four documents, and two from then on."""
    describe(source, *names(), capability=capability)
    said = said.format(base=source.base)
    ran = go(source.base, dest, sets=(said,))
    assert (ran.status, sets_of(ran), ran.report and ran.report.requests) == (DONE, ["p07"], 4)
    assert asked(source) == [WELL_KNOWN, "/p07/capabilitylist.xml"]
    assert sorted(tree(dest)) == ["p07/a.txt", "p07/b.txt"]
    again = go(source.base, dest, sets=(said,))
    assert (again.status, sets_of(again), again.report and again.report.requests) == (DONE, ["p07"], 2)
    assert asked(source) == [WELL_KNOWN]
    audited = check(source.base, dest, sets=(said,))
    assert (audited.verdict, audited.requests, [one.name for one in audited.sets]) == ("in sync", 4, ["p07"])


def also(source: Source, name: str, canonical: str) -> str:
    """The entry of another form of a set: lists for old harvesters, with the `canonical` link (RFC 6596)."""
    link = f'<rs:ln rel="canonical" href="{source.base}/{canonical}/capabilitylist.xml"/>'
    return url(f"{source.base}/{name}/capabilitylist.xml", links=link, capability="capabilitylist")


@pytest.mark.parametrize("sets", [(), ("p00", "p01")], ids=["all", "wanted"])
def test_a_set_that_is_shown_in_two_forms_is_copied_once(sets: tuple[str, ...], source: Source, dest: Path) -> None:
    """Only where the form that is meant is named beside it, and where it is another than the entry itself."""
    named(source, "p00", "p01", "p02")
    own = url(f"{source.base}/p00/capabilitylist.xml", capability="capabilitylist")
    entries = [also(source, "p02", "p00"), own, also(source, "p01", "p01")]
    source.pages[WELL_KNOWN] = Reply(document(entries, capability="description"))
    assert sets_of(go(source.base, dest, sets=sets)) == ["p00", "p01"]


def test_another_form_of_a_set_that_is_not_named_is_copied(source: Source, dest: Path) -> None:
    named(source, "p00", "p01")
    source.pages[WELL_KNOWN] = Reply(document([also(source, "p01", "p00")], capability="description"))
    assert sets_of(go(source.base, dest)) == ["p01"]


def test_what_is_no_capability_list_is_not_chosen_as_one(source: Source, many: dict[str, Site], dest: Path) -> None:
    """DST-A7: where something else is listed, all Capability Lists are read."""
    entries = [url(f"{source.base}/{name}/capabilitylist.xml", capability="capabilitylist") for name in names()]
    entries.append(url(f"{source.base}/other/list.xml", capability="resourcelist"))
    source.pages[WELL_KNOWN] = Reply(document(entries, capability="description"))
    assert sets_of(go(source.base, dest, sets=("p03",))) == ["p03"]
    assert len([path for path in asked(source) if "capabilitylist" in path]) == COUNT


def test_an_audit_without_state_looks_at_the_wanted_set_alone(
    source: Source, many: dict[str, Site], dest: Path
) -> None:
    """The folder is the set's, as when everything is read."""
    (dest / "p03").mkdir(parents=True)
    for name, body in many["p03"].files.items():
        (dest / "p03" / name).write_bytes(body)
    audited = check(source.base, dest, sets=("p03",))
    assert (audited.verdict, audited.sets[0].same, audited.sets[0].folder) == ("in sync", 2, "p03")
    assert asked(source) == [WELL_KNOWN, "/p03/capabilitylist.xml"]


def test_more_sets_later(source: Source, many: dict[str, Site], dest: Path) -> None:
    """What was not looked at is found when it is wanted, though the Source Description is what it was."""
    go(source.base, dest, sets=("p03",))
    source.forget()
    assert sets_of(go(source.base, dest, sets=("p05", "p03"))) == ["p03", "p05"]
    assert asked(source) == [WELL_KNOWN, "/p03/capabilitylist.xml", "/p05/capabilitylist.xml"]
    assert sets_of(go(source.base, dest, sets=("p05",))) == ["p05"]
    assert asked(source) == [WELL_KNOWN]
    everything = go(source.base, dest)
    assert (everything.status, sorted(sets_of(everything))) == (DONE, names())
    assert "DST-Q" not in everything.rules()
    assert len(asked(source)) == 1 + COUNT
    assert len(tree(dest)) == 2 * COUNT
    assert check(source.base, dest).verdict == "in sync"
    source.forget()
    assert go(source.base, dest).status == DONE
    assert asked(source) == [WELL_KNOWN]


@pytest.mark.parametrize("status", [None, 500], ids=["no connection", "an error"])
def test_more_sets_that_cannot_be_learnt_of_now(
    status: int | None, source: Source, many: dict[str, Site], dest: Path
) -> None:
    """DST-C5: those remembered are brought up to date; that the others are not even known is a fault, never silent."""
    go(source.base, dest, sets=("p03",))
    source.pages[WELL_KNOWN] = reset() if status is None else Reply(b"", status)
    assert go(source.base, dest, sets=("p03",)).status == DONE
    many["p03"].put("new.txt", b"new")
    many["p03"].publish_changes()
    everything = go(source.base, dest)
    assert (everything.status, sets_of(everything)) == (SOURCE, ["p03"])
    assert "p03/new.txt" in tree(dest)
    other = go(source.base, dest, sets=("p05",))
    assert (other.status, other.report) == (SOURCE, None)
    describe(source, *names())
    assert go(source.base, dest).status == DONE


def test_a_known_set_of_a_description_that_has_changed(source: Source, many: dict[str, Site], dest: Path) -> None:
    """RS-DST-09: the others keep what is remembered of them; a run without a choice settles all."""
    go(source.base, dest)
    describe(source, *names()[:-1])
    source.forget()
    ran = go(source.base, dest, sets=("p03",))
    assert (ran.status, sets_of(ran), ran.rules()) == (DONE, ["p03"], set())
    assert asked(source) == [WELL_KNOWN, "/p03/capabilitylist.xml"]
    whole = go(source.base, dest)
    assert (whole.status, sets_of(whole), whole.rules()) == (DONE, names()[:-1], {"DST-Q"})


@pytest.mark.parametrize("described_anew", [False, True])
def test_a_wanted_set_that_cannot_be_read_now(
    described_anew: bool, source: Source, many: dict[str, Site], dest: Path
) -> None:
    """It is told, and brought up to date as it is remembered; the others are not looked at."""
    many["p03"].publish_capabilities("resourcelist")
    go(source.base, dest, sets=("p03",))
    source.pages["/p03/capabilitylist.xml"] = Reply(b"", 404)
    if described_anew:
        describe(source, *reversed(names()))
    many["p03"].put("c.txt", b"new")
    many["p03"].publish_list()
    source.forget()
    ran = go(source.base, dest, sets=("p03",))
    assert (ran.status, sets_of(ran)) == (SOURCE, ["p03"])
    assert "p03/c.txt" in tree(dest)
    assert set(asked(source)) == {WELL_KNOWN, "/p03/capabilitylist.xml"}
    audited = check(source.base, dest, sets=("p03",))
    assert (audited.verdict, [one.name for one in audited.sets]) == ("undetermined", ["p03"])
    assert "cannot be read: HTTP status 404" in str(audited.sets[0].reason)
    many["p03"].publish_capabilities("resourcelist", "changelist")
    assert go(source.base, dest, sets=("p03",)).status == DONE


# where only reading everything can tell


def spoil_unknown(source: Source, _sites: dict[str, Site]) -> str:
    return "p99"


def spoil_case(source: Source, _sites: dict[str, Site]) -> str:
    return "P03"


def spoil_kind(source: Source, sites: dict[str, Site]) -> str:
    entries = [url(f"{site.root}/capabilitylist.xml", capability="capabilitylist") for site in sites.values()]
    entries[9] = url(f"{sites['p09'].root}/resourcelist.xml", capability="resourcelist")
    source.pages[WELL_KNOWN] = Reply(document(entries, capability="description"))
    return "p09"


def spoil_moved(source: Source, sites: dict[str, Site]) -> str:
    source.pages["/p03/capabilitylist.xml"] = Reply(b"", 404)
    return "p03"


@pytest.mark.parametrize(
    ("spoil", "status"),
    [(spoil_unknown, USAGE), (spoil_case, USAGE), (spoil_kind, DONE), (spoil_moved, USAGE)],
    ids=["unknown", "another case", "something else is listed (DST-A7)", "cannot be read"],
)
def test_otherwise_everything_is_read_as_before(
    spoil, status: int, source: Source, many: dict[str, Site], dest: Path
) -> None:
    said = spoil(source, many)
    ran = go(source.base, dest, sets=(said,))
    assert ran.status == status
    assert len(asked(source)) >= COUNT
    if status == DONE:
        assert sets_of(ran) == [said]
    else:
        assert f"no set {said}; the sets are: p00, p01, " in str(ran.error)
        assert not dest.exists()


def test_sets_of_a_description_that_is_listed_as_a_set_are_not_lost(source: Source, dest: Path) -> None:
    """It is read early where it is said, and what it lists counts in its place."""
    sites = named(source, "rs", "other")
    describe(source, "rs", path="/nested/rs.xml")
    entries = [f"{source.base}/nested/rs.xml", f"{sites['other'].root}/capabilitylist.xml"]
    source.pages[WELL_KNOWN] = Reply(document([url(uri) for uri in entries], capability="description"))
    assert "no set nested; the sets are: rs, other" in str(go(source.base, dest, sets=("nested",)).error)
    both = go(source.base, dest, sets=("rs", "other"))
    assert (both.status, sorted(sets_of(both))) == (DONE, ["other", "rs"])
    assert sets_of(go(source.base, dest.parent / "second", sets=("rs",))) == ["rs"]


def test_names_are_those_of_the_order_in_which_sets_are_listed(source: Source, dest: Path) -> None:
    """Also where some were read early, and one of these is no set."""
    sites = named(source, "x/rs", "z/rs", "gone")
    del source.pages["/gone/capabilitylist.xml"]
    ran = go(source.base, dest, sets=("z-rs-capabilitylist", f"{sites['gone'].root}/capabilitylist.xml"))
    assert "the sets are: rs, z-rs-capabilitylist" in str(ran.error)


def test_two_that_could_come_by_a_name(source: Source, dest: Path) -> None:
    """The first that is a set has it: that is not told by the Source Description."""
    sites = named(source, "x/rs", "y/rs", "z/rs")
    del source.pages["/x/rs/capabilitylist.xml"]
    ran = go(source.base, dest, sets=("rs",))
    assert ran.report is not None
    assert [one.capability_list for one in ran.report.sets] == [f"{sites['y/rs'].root}/capabilitylist.xml"]
    source.forget()
    other = go(source.base, dest.parent / "other", sets=("z-rs-capabilitylist",))
    assert (other.status, sets_of(other)) == (DONE, ["z-rs-capabilitylist"])
    assert asked(source) == [WELL_KNOWN, "/z/rs/capabilitylist.xml"]
    uri = f"{source.base}/x/rs/capabilitylist.xml"
    assert go(source.base, dest.parent / "third", sets=(uri,)).status == USAGE


def test_a_set_that_may_have_moved_is_looked_for_among_all(source: Source, many: dict[str, Site], dest: Path) -> None:
    """DST-F10: the remembered set keeps its name and its files; the address alone would make it a new one."""
    go(source.base, dest, sets=("p03",))
    source.pages["/elsewhere/capabilitylist.xml"] = source.pages["/p03/capabilitylist.xml"]
    source.pages["/p03/capabilitylist.xml"] = redirect("/elsewhere/capabilitylist.xml", 301)
    describe(source, *(name for name in names() if name != "p03"), "elsewhere")
    for said in ("elsewhere", "p03", f"{source.base}/elsewhere/capabilitylist.xml"):
        ran = go(source.base, dest, sets=(said,))
        assert (ran.status, said) == (USAGE if said == "elsewhere" else DONE, said)
        if ran.report is not None:
            assert [(one.name, one.folder, one.created) for one in ran.report.sets] == [("p03", "p03", 0)]


def test_a_permanent_redirect_is_remembered_when_it_is_gone(source: Source, many: dict[str, Site], dest: Path) -> None:
    """DST-F10: Source Description and Capability Lists are read where they were last seen to have moved to."""
    pages = source.pages
    for path in (WELL_KNOWN, "/p03/capabilitylist.xml", "/p04/capabilitylist.xml"):
        pages[f"/new{path}"] = pages[path]
        pages[path] = redirect(f"/new{path}", 302 if "p04" in path else 301)
    assert go(source.base, dest).status == DONE
    for path in (WELL_KNOWN, "/p03/capabilitylist.xml", "/p04/capabilitylist.xml"):
        del pages[path]
    Site(source, "new").publish()
    del pages[WELL_KNOWN]
    describe(source, *names(), "new", path=f"/new{WELL_KNOWN}")
    ran = go(source.base, dest)
    assert ran.report is not None
    assert (ran.status, sorted(sets_of(ran))) == (SOURCE, ["new", *names()])
    assert [fault.partition(": ")[0] for fault in ran.report.faults] == [f"{source.base}/p04/capabilitylist.xml"]
    audited = check(source.base, dest)
    assert {one.name: one.verdict for one in audited.sets if one.verdict != "in sync"} == {"p04": "undetermined"}
    source.forget()
    assert go(source.base, dest).status == SOURCE
    assert {WELL_KNOWN, f"/new{WELL_KNOWN}", "/p04/capabilitylist.xml"} <= set(asked(source))


# an index of Source Descriptions (RS-SD-09, AMB-53)


def indexed(source: Source) -> None:
    describe(source, *names()[:10], path="/d1.xml")
    describe(source, *names()[10:], path="/d2.xml")
    index(source, "/d1.xml", "/d2.xml")


def test_one_set_by_an_index(source: Source, many: dict[str, Site], dest: Path) -> None:
    indexed(source)
    assert sets_of(go(source.base, dest, sets=("p15",))) == ["p15"]
    assert asked(source) == [WELL_KNOWN, "/d1.xml", "/d2.xml", "/p15/capabilitylist.xml"]
    assert go(source.base, dest, sets=("p15",)).status == DONE
    assert asked(source) == [WELL_KNOWN, "/d1.xml", "/d2.xml"]
    del source.pages["/d1.xml"]
    assert go(source.base, dest.parent / "other", sets=("p15",)).status == SOURCE


def test_a_new_set_in_a_description_of_an_index_is_seen(source: Source, many: dict[str, Site], dest: Path) -> None:
    """RS-SD-09: the index stays what it is; each Source Description is asked for conditionally."""
    indexed(source)
    assert go(source.base, dest).status == DONE
    source.forget()
    assert go(source.base, dest).status == DONE
    assert asked(source) == [WELL_KNOWN, "/d1.xml", "/d2.xml"]
    Site(source, "new").publish()
    describe(source, *names()[10:], "new", path="/d2.xml")
    index(source, "/d1.xml", "/d2.xml")
    ran = go(source.base, dest)
    assert (ran.status, sets_of(ran)[-1]) == (DONE, "new")
    assert asked(source).count("/d2.xml") == 2
    source.pages["/d2.xml"] = Reply(b"", 410)
    unchanged = go(source.base, dest)
    assert (unchanged.status, sets_of(unchanged), unchanged.rules()) == (DONE, [*names(), "new"], {"DST-C5"})
    index(source, "/d2.xml", "/d1.xml")
    changed = go(source.base, dest)
    assert (changed.status, sets_of(changed), changed.rules()) == (SOURCE, [*names(), "new"], {"DST-A6"})


# polls of everything


def test_a_description_that_has_changed_costs_conditional_requests(
    source: Source, many: dict[str, Site], dest: Path
) -> None:
    """DST-C1: Capability Lists that are what they were are not sent again, and what they offered holds."""
    go(source.base, dest)
    many["p04"].publish_capabilities("resourcelist")
    Site(source, "new").publish()
    describe(source, *names(), "new")
    source.forget()
    ran = go(source.base, dest)
    assert (ran.status, sets_of(ran)) == (DONE, [*names(), "new"])
    conditional = [path for path, headers in source.log if "capabilitylist" in path and "If-None-Match" in headers]
    assert len(conditional) == COUNT + 1  # all that were known, and the one without a Change List as every time
    assert ran.report is not None
    assert ran.report.sets[4].process == "none"
    assert len(asked(source)) == 1 + COUNT + 2


def test_a_capability_list_that_cannot_be_read_is_found_once_it_is_there(
    source: Source, many: dict[str, Site], dest: Path
) -> None:
    """DST-A6: the others are asked for conditionally as long as it cannot be read."""
    page = source.pages.pop("/p05/capabilitylist.xml")
    for _ in range(2):
        source.forget()
        ran = go(source.base, dest)
        assert (ran.status, len(sets_of(ran))) == (SOURCE, COUNT - 1)
    plain = [path for path, headers in source.log if "capabilitylist" in path and "If-None-Match" not in headers]
    assert plain == ["/p05/capabilitylist.xml"]
    source.pages["/p05/capabilitylist.xml"] = page
    assert go(source.base, dest).status == DONE
    assert len(tree(dest)) == 2 * COUNT
    source.forget()
    assert go(source.base, dest).status == DONE
    assert asked(source) == [WELL_KNOWN]


def test_all_are_read_with_progress_and_in_their_order(source: Source, many: dict[str, Site], dest: Path) -> None:
    """Many at a time; what is no small document is looked at by itself."""
    padding = "<!--" + "x" * SMALL_OCTETS + "-->"
    page = source.reply("/p01/capabilitylist.xml")
    source.pages["/p01/capabilitylist.xml"] = Reply(page.body + padding.encode())
    events: list[Progress | Notice] = []
    with Transport(IMPATIENT) as wire:
        report = run_over(wire, source.base, dest, listener=events.append)
    assert [one.name for one in report.sets] == names()
    assert Progress("reading sets", COUNT, COUNT) in events


def test_a_set_that_has_not_changed_costs_one_transaction(
    source: Source, many: dict[str, Site], dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of thousands of sets that are polled each would otherwise wait for the writer several times."""
    go(source.base, dest)
    write, count = Database.write, 0

    def counted(database: Database, *, durable: bool = False) -> AbstractContextManager[Transaction]:
        nonlocal count
        count += 1
        return write(database, durable=durable)

    monkeypatch.setattr(Database, "write", counted)
    assert go(source.base, dest).status == DONE
    assert count <= COUNT + 6  # and those of the run itself


def test_polls_are_sent_many_at_a_time_and_each_once(source: Source, many: dict[str, Site], dest: Path) -> None:
    """DST-C1: the conditional requests of the sets do not wait for each other; what has changed is not asked twice."""
    go(source.base, dest)
    many["p03"].put("new.txt", b"new")
    many["p03"].publish_changes()
    meeting, flying, most = threading.Condition(), [0], [0]

    def meet(path: str):
        reply = source.reply(path)

        def answer(_handler: Handler) -> Reply:
            with meeting:
                flying[0] += 1
                most[0] = max(most[0], flying[0])
                meeting.notify_all()
                if not meeting.wait_for(lambda: most[0] >= 4, timeout=30):
                    most[0] = 1_000  # they come one after another: none needs to wait any more
                flying[0] -= 1
            return reply

        return answer

    for name in names():
        source.pages[f"/{name}/changelist.xml"] = meet(f"/{name}/changelist.xml")
    source.forget()
    ran = go(source.base, dest, UNHURRIED)
    assert (ran.status, sets_of(ran)) == (DONE, names())
    assert ran.report is not None
    assert [one.name for one in ran.report.sets if one.created] == ["p03"]
    assert (ran.report.requests, 4 <= most[0] <= COUNT) == (1 + COUNT, True)
    assert all(source.requests(f"/{name}/changelist.xml") == [f"/{name}/changelist.xml"] for name in names())


def test_sets_without_a_change_list_are_polled_once_too(source: Source, many: dict[str, Site], dest: Path) -> None:
    """DST-B1: Capability List and Resource List of each, conditionally, and nothing twice, whatever has changed."""
    for site in many.values():
        site.publish_capabilities("resourcelist")
    go(source.base, dest)
    many["p03"].put("new.txt", b"new")
    many["p03"].publish_list()
    many["p05"].publish_capabilities("resourcelist", "changelist")
    source.forget()
    ran = go(source.base, dest, UNHURRIED)
    assert ran.report is not None
    assert {one.name: one.process for one in ran.report.sets if one.process != "none"} == {
        "p03": "baseline",
        "p05": "increment",
    }
    lists = [f"/{name}/{file}.xml" for name in names() for file in ("capabilitylist", "resourcelist")]
    wanted = sorted([WELL_KNOWN, *lists, "/p03/resources/new.txt", "/p05/changelist.xml"])
    assert sorted(source.requests()) == wanted


def test_an_answer_that_has_waited_too_long_is_asked_for_anew(
    source: Source, many: dict[str, Site], dest: Path
) -> None:
    """A set is brought to its present, also where the one before it took long."""
    go(source.base, dest)
    many["p03"].put("new.txt", b"new")
    many["p03"].publish_changes()
    page, late = source.reply("/p03/resources/new.txt"), [0.0]

    def slow(_handler: Handler) -> Reply:
        late[0] = 3600.0
        return page

    source.pages["/p03/resources/new.txt"] = slow
    source.forget()
    options = msgspec.structs.replace(IMPATIENT, monotonic=lambda: slowly() + late[0])
    assert go(source.base, dest, options).status == DONE
    counts = [len(source.requests(f"/{name}/changelist.xml")) for name in names()]
    assert counts == [1] * 4 + [2] * (COUNT - 4)


@pytest.mark.parametrize(("status", "tries"), [(503, 3), (403, 1), (200, 1)])
def test_a_poll_that_fails_fails_once(
    status: int, tries: int, source: Source, many: dict[str, Site], dest: Path
) -> None:
    """DST-F1, DST-F4: tried as often as always; the other sets are not harmed. A large list is read as a stream."""
    go(source.base, dest)
    many["p03"].put("new.txt", b"new")
    many["p03"].publish_changes()
    large = source.reply("/p03/changelist.xml").body + b"<!--" + b"x" * SMALL_OCTETS + b"-->"
    source.pages["/p03/changelist.xml"] = Reply(large, status)
    source.forget()
    ran = go(source.base, dest, UNHURRIED)
    assert ran.report is not None
    assert [one.name for one in ran.report.sets if one.exit_status] == ([] if status == 200 else ["p03"])
    assert len(source.requests("/p03/changelist.xml")) == tries + (status == 200)
    assert ("p03/new.txt" in tree(dest)) == (status == 200)


# names


IDENTITIES = st.lists(
    st.sampled_from(["a", "b", "rs", "a-2", "rs-2", "Rs"]).flatmap(
        lambda last: st.sampled_from(["a", "b", "rs"]).map(lambda first: f"http://h/{first}/{last}/capabilitylist.xml")
    ),
    unique=True,
    max_size=8,
)


@given(IDENTITIES, st.data())
def test_what_is_chosen_early_is_what_reading_everything_gives(listed: list[str], data: st.DataObject) -> None:
    """Whichever of the addresses turn out to be sets: nobody else ever has the name that decided."""
    said = data.draw(st.sampled_from([*names_of(listed), "a", "rs", "a-2", "a-rs", "zzz"]))
    chosen = choose_sets(listed, SetSelection((said,)))
    sets = [uri for uri in listed if data.draw(st.booleans())]
    by_name = dict(zip(names_of(sets), sets, strict=True))
    if chosen is not None and said in by_name:
        assert chosen == {by_name[said]: said}
    if chosen is None and sets == listed and said in by_name:
        assert sole_owner(said, listed) is None


@pytest.mark.parametrize(
    ("identities", "expected"),
    [
        (["http://h/a/capabilitylist.xml", "http://h/b/caps.xml"], ["a", "b"]),
        (["http://h/x/rs/index.xml", "http://h/y/rs/index.xml"], ["rs", "y-rs-index"]),
        (["http://h/cl?s=1", "http://h/cl?s=2", "http://h/cl?s=3"], ["cl", "cl-2", "cl-3"]),
        (["http://h/A/capabilitylist.xml", "http://g/a/capabilitylist.xml"], ["A", "a-capabilitylist"]),
        (["http://h/capabilitylist.xml"], ["h"]),
        (["http://h/"], ["set"]),
    ],
)
def test_names(identities: Sequence[str], expected: Sequence[str]) -> None:
    assert names_of(identities) == expected


def test_names_fit_a_folder_and_many_alike_are_named_soon() -> None:
    deep = [f"http://{n}.h/" + "/".join(["long" * 20] * 20) + "/caps.xml" for n in range(3)]
    assert max(map(len, names_of(deep))) <= 255
    assert len(set(names_of(deep))) == 3
    alike = [f"http://h/caps.xml?set={n}" for n in range(20_000)]
    assert names_of(alike)[-1] == "caps-20000"
    taken = SetNames(names_of(alike))
    assert [taken.free("caps") for _ in range(3)] == ["caps-20001", "caps-20002", "caps-20003"]


# a look at what is offered


def probe(url: str, most: int) -> ExploreReport:
    with Transport(IMPATIENT) as wire:
        return explore(url, most=most, transport=wire)


def test_a_look_at_a_source_of_many_sets_is_bounded(source: Source, many: dict[str, Site]) -> None:
    """So many sets are opened as asked for, and the others are counted; nothing of them is read."""
    found = probe(source.base, 3)
    assert (found.exit_status, found.sets, len(found.tree.children), found.tree.left_out) == (0, COUNT, 3, COUNT - 3)
    assert {path for path in asked(source) if "/p" in path} == {f"/p{n:02}/capabilitylist.xml" for n in range(3)}
    indexed(source)
    found = probe(source.base, 12)
    assert (found.sets, len(found.tree.children), found.tree.left_out) == (COUNT, 12, 4)
    assert [child.name for child in found.tree.children] == names()[:12]


@pytest.mark.parametrize("said", ["p15", "{base}/p15/capabilitylist.xml"], ids=["name", "uri"])
def test_a_look_at_one_set_of_many(said: str, source: Source, many: dict[str, Site]) -> None:
    wanted = SyncOptions(sets=(said.format(base=source.base),))
    with Transport(IMPATIENT) as wire:
        found = explore(source.base, wanted, most=1, transport=wire)
    assert ([child.name for child in found.tree.children], found.sets, found.tree.left_out) == (["p15"], COUNT, 0)
    assert {path for path in asked(source) if "/p" in path} == {"/p15/capabilitylist.xml"}


def test_a_look_at_a_set_that_is_not_there(source: Source, many: dict[str, Site]) -> None:
    """It is an error, as for `sync` and `audit`, not an empty tree."""
    with (
        Transport(IMPATIENT) as wire,
        failing("HW-SYN-06", match=r"no set p99; the sets are: p00, .*p15 "),
    ):
        explore(source.base, SyncOptions(sets=("p00", "p99")), transport=wire)


def test_an_audit_does_not_pass_over_a_set_that_is_not_there(source: Source, many: dict[str, Site], dest: Path) -> None:
    """One that is there beside it is no excuse; the names told are bounded."""
    go(source.base, dest, sets=("p00",))
    with failing("HW-SYN-06", match="no set p99"):
        check(source.base, dest, sets=("p00", "p99"))
    names_told = str(unknown_set({"x"}, [f"s{n}" for n in range(4123)], "u"))
    assert " s48, s49 and 4,073 more (u)" in names_told


# what is wanted and no longer offered; ways that do not end


def test_a_wanted_set_that_is_no_longer_offered(source: Source, many: dict[str, Site], dest: Path) -> None:
    """DST-Q: the source's fault and not the caller's, so that a service that follows goes on; what is held stays."""
    go(source.base, dest, sets=("p03", "p05"))
    describe(source, *(name for name in names() if name != "p03"))
    for said in ("p03", f"{source.base}/p03/capabilitylist.xml"):
        many["p05"].put(f"{len(said)}.txt", b"new")
        many["p05"].publish_changes()
        ran = go(source.base, dest, sets=(said, "p05"))
        assert (ran.status, sets_of(ran)) == (SOURCE, ["p05"])
        assert ran.report is not None
        assert [fault for fault in ran.report.faults if "no longer offers the set p03" in fault]
        assert f"p05/{len(said)}.txt" in tree(dest)
    assert "p03/a.txt" in tree(dest)
    assert go(source.base, dest, sets=("p03", "p99")).status == USAGE
    describe(source, *names())
    assert go(source.base, dest, sets=("p03", "p05")).status == DONE


def page(*hrefs: str) -> Reply:
    links = "".join(f'<link rel="resourcesync" href="{href}">' for href in hrefs)
    return Reply(f"<html><head>{links}</head></html>".encode(), headers={"Content-Type": "text/html"})


@pytest.mark.parametrize(
    ("width", "most"), [(1, 16), (3, 110), (400, 110)], ids=["a chain", "a tree", "a page of many links"]
)
def test_pages_that_lead_to_pages_without_end(width: int, most: int, source: Source, dest: Path) -> None:
    """DST-A4: a bounded number of steps from page to page, and of links of each."""

    class Endless(dict[str, object]):
        def get(self, path: str, default: object = None) -> object:
            known = super().get(path, default)
            if known is not None or not path.startswith("/page"):
                return known
            return page(*(f"{path}-{n}" for n in range(width)))

    source.pages = Endless(source.pages)  # type: ignore[assignment]
    ran = go(f"{source.base}/page", dest)
    assert (ran.status, len(source.requests()) <= most) == (SOURCE, True), len(source.requests())
    source.pages["/page-0-0"] = page(f"{source.base}{WELL_KNOWN}")
    named(source, "one")
    assert go(f"{source.base}/page", dest).status == DONE


def test_a_list_beside_its_own_capability_list_is_no_second_set(source: Source, dest: Path) -> None:
    """DST-A7: a Resource List that is listed as a Capability List leads to the set that was found already."""
    sites = named(source, "one", "two")
    entries = [
        url(f"{sites[name].root}/{file}.xml", capability="capabilitylist")
        for name, file in (("one", "capabilitylist"), ("one", "resourcelist"), ("two", "capabilitylist"))
    ]
    source.pages[WELL_KNOWN] = Reply(document(entries, capability="description"))
    ran = go(source.base, dest)
    assert (ran.status, sets_of(ran)) == (DONE, ["one", "two"])
    assert "DST-A7" in ran.rules()
    assert sorted(tree(dest)) == ["one/a.txt", "one/b.txt", "two/a.txt", "two/b.txt"]


def test_a_description_without_a_set_says_so(source: Source, dest: Path) -> None:
    """RS-SD-05: not that nothing was there."""
    describe(source)
    ran = go(source.base, dest)
    assert (ran.status, ran.error and ran.error.code) == (SOURCE, "HW-SYN-05")
    assert "lists no set" in str(ran.error)


def told(command: Command, source: Source, dest: Path, status: int = DONE) -> list[str]:
    result = CliRunner().invoke(command, [source.base, str(dest)], standalone_mode=False)
    assert (result.return_value, result.exception) == (status, None)
    return result.stdout.splitlines()


def test_what_is_told_of_many_sets_is_bounded(source: Source, dest: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets with something to tell come by name, up to a hundred (here five); all others are one line."""
    for module in ("run_output", "audit"):
        monkeypatch.setattr(sys.modules[f"headwater.cli.{module}"], "_MOST_SETS", 5)
    sites = {}
    for name in names(8):
        site = sites[name] = Site(source, name)
        site.put("a.txt", name.encode())
        site.publish()
    describe(source, *sites)
    first = told(sync_command, source, dest)
    rest = first[5].partition("; compared")[0]
    assert (len(first), first[4][:4], rest) == (7, "p04:", "3 more sets: 3 created; 3 files held")
    assert told(sync_command, source, dest)[0] == "8 sets: nothing to do; 8 files held"
    sites["p07"].put("b.txt", b"new")
    sites["p07"].publish_changes()
    lines = told(sync_command, source, dest)
    assert (lines[0][:14], lines[1]) == ("p07: 1 created", "7 more sets: nothing to do; 7 files held")
    sites["p07"].publish_list()
    (dest / "p07" / "b.txt").unlink()
    lines = told(audit_command, source, dest, FINDINGS)
    assert lines[0].startswith("p07: not in sync; 1 same, 1 missing")
    assert lines[-2].startswith("7 more sets: in sync; 7 same, 0 missing")


# a service that follows


@pytest.mark.parametrize("broken", ["capabilitylist", "changelist"])
def test_one_broken_set_does_not_make_the_others_wait(
    broken: str, source: Source, many: dict[str, Site], dest: Path
) -> None:
    """DST-F1, DST-F2: polls come as often as asked for; longer and longer waits are for a source that fails as a whole.

    Twenty polls would take nine minutes with those.
    """
    describe(source, "p00", "p01", "p02")
    go(source.base, dest)
    source.pages[f"/p01/{broken}.xml"] = Reply(b"", 403)
    if broken == "capabilitylist":
        describe(source, "p02", "p01", "p00")  # so that it is looked at again
    polls: list[SyncReport] = []
    ended = threading.Event()

    def tell(report: SyncReport) -> None:
        polls.append(report)
        if len(polls) == 20:
            ended.set()

    watch = threading.Timer(240, ended.set)
    watch.start()
    follow(SyncTask(url=source.base, destination=dest), PollInterval(0.02), tell, stop=ended)
    watch.cancel()
    assert len(polls) == 20
    assert {one.exit_status for one in polls} == {SOURCE}
