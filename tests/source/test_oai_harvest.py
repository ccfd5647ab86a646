"""Repositories harvested by OAI-PMH into a set, with all that repositories do wrong; over real sockets."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.interface import Resource
from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.ingest.oai.harvester import OaiComparison, OaiHarvester, OaiLists
from headwater.ingest.push.feed import Feed
from headwater.ingest.push.resource_locations import Locations
from headwater.source.leadership import StateLock
from headwater.typed_decoding import from_json
from tests.support.fake_repository import FakeRepository, Item, Query, error, repository
from tests.support.program import Done, run_here
from tests.support.scripted_server import answer


class Harvest:
    """A configuration with the set `s` of a repository, and `headwater ingest oai` for it."""

    def __init__(self, folder: Path, repo: FakeRepository, *lines: str) -> None:
        self.repo = repo
        self.state = folder / "state"
        self.root = self.state / "harvested" / "s"
        self.config = folder / "config.toml"
        self.configure(*lines)

    def configure(self, *lines: str) -> None:
        keys = "\n".join((f'url = "{self.repo.url}"', *lines))
        text = f'state = "state"\nbase_url = "http://example.org"\n[[set]]\nname = "s"\nfeed = "oai"\n{keys}\n'
        self.config.write_text(text)

    def run(self, *arguments: str) -> Done:
        self.repo.asked.clear()
        return run_here("ingest", "oai", "--set", "s", "--config", self.config, *arguments)

    def done(self, *arguments: str, status: int = 0) -> dict[str, Any]:
        """Run it, see its exit status, and read what it says."""
        done = self.run("--json", *arguments)
        assert done.returncode == status, (done.stdout + done.stderr).decode()
        self.said = done.stderr.decode()
        return json.loads(done.stdout)  # type: ignore[no-any-return]

    def held(self) -> dict[str, Resource]:
        with closing(SqliteCatalog(self.state / "catalog.sqlite")) as catalog:
            return {one.uri: one for one in catalog.resources("s")}

    def is_as(self, repo: FakeRepository, prefix: str = "oai_dc") -> bool:
        """Whether the set has what the repository has, octet by octet."""
        expected = {
            re.sub(r":", "%3A", f"{prefix}/{one.identifier}.xml"): one.record(prefix)
            for one in repo.items.values()
            if not one.deleted and prefix in one.metadata
        }
        held = {uri: one for uri, one in self.held().items() if uri.startswith(f"{prefix}/")}
        found = {uri: (self.root / uri.replace("%3A", ":")).read_text().replace(DECLARED, "") for uri in held}
        assert found.keys() == expected.keys()
        assert found == expected
        return True


DECLARED = ' xmlns="http://www.openarchives.org/OAI/2.0/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'


def test_a_repository_is_harvested_and_followed(tmp_path: Path) -> None:
    with repository(250) as repo:
        harvest = Harvest(tmp_path, repo)
        told = harvest.done()
        assert (told["records"], told["created"], told["requests"]) == (250, 250, 4)
        assert harvest.is_as(repo)
        one = harvest.held()["oai_dc/oai%3Aexample.org%3A5.xml"].metadata
        assert (one.type, str(one.lastmod)) == ("application/xml", "2024-01-06 00:00:05+00:00")
        told = harvest.done()
        assert (told["requests"], told["created"], told["updated"], told["deleted"]) == (2, 0, 0, 0)
        newest = max(one.datestamp for one in repo.items.values())
        repo.put(3, "new title", "2024-06-01T10:00:00Z")
        repo.put(4, at="2024-06-01T10:00:01Z", deleted=True)
        repo.put(5, at="2024-06-01T10:00:02Z")  # touched: with another datestamp, so that the record is another one
        repo.put(1_000, at="2024-06-01T10:00:03Z")
        repo.now = "2024-06-02T00:00:00Z"
        told = harvest.done()
        assert (told["created"], told["updated"], told["deleted"]) == (1, 2, 1)
        assert harvest.is_as(repo)
        assert not (harvest.root / "oai_dc" / "oai:example.org:4.xml").exists()
        assert repo.queries() == [{"metadataPrefix": "oai_dc", "from": newest}]


def test_unchanged_metadata_is_no_change_whatever_its_datestamp(tmp_path: Path) -> None:
    with repository(20) as repo:
        harvest = Harvest(tmp_path, repo, 'record = "metadata"')
        harvest.done()
        for number in range(20):
            repo.put(number, at="2024-06-01T10:00:00Z")
        repo.now = "2024-06-02T00:00:00Z"
        told = harvest.done()
        assert (told["records"], told["updated"], told["unchanged"]) == (20, 0, 20)


@pytest.mark.parametrize("by_day", [False, True])
def test_the_granularity_is_obeyed(tmp_path: Path, by_day: bool) -> None:
    """IQSS/dataverse 11020."""
    with repository(by_day=by_day) as repo:
        for number in range(150):
            repo.put(number)
        harvest = Harvest(tmp_path, repo)
        assert harvest.done()["created"] == 150
        repo.put(500, at="2024-05-31T12:00:00Z" if by_day else "2024-05-31T23:59:00Z")
        told = harvest.done()
        assert (told["created"], told["deleted"]) == (1, 0)
        assert repo.queries()[0]["from"] == ("2024-01-28" if by_day else "2024-01-28T00:00:55Z")
        repo.page, repo.limit = 20, 40  # windows are divided by the granule, too
        repo.now = "2024-06-03T00:00:00Z"
        assert harvest.done("--audit")["lacking"] == 0
        assert harvest.is_as(repo)


@pytest.mark.parametrize("compare", ["", "compare_seconds = 86400"])
def test_a_run_without_news_takes_three_requests_a_prefix(tmp_path: Path, compare: str) -> None:
    with repository(500) as repo:
        harvest = Harvest(tmp_path, repo, 'prefixes = ["oai_dc", "other"]', compare)
        harvest.done()
        told = harvest.done()
        assert told["requests"] == 3
        assert (told["created"], told["updated"], told["deleted"]) == (0, 0, 0)


def test_records_of_one_item_and_sets_are_linked(tmp_path: Path) -> None:
    with repository() as repo:
        for number in range(3):
            repo.put(number, sets=("a", "b"))
        del repo.items["oai:example.org:2"].metadata["other"]
        harvest = Harvest(tmp_path, repo, 'prefixes = ["oai_dc", "other"]')
        harvest.done()

        def links(uri: str) -> list[tuple[str, str]]:
            return [(one.rel, one.href) for one in harvest.held()[uri].metadata.links]

        sets = [("collection", f"{repo.url}?verb=ListRecords&set={one}&metadataPrefix={{}}") for one in "ab"]
        dc, other = "oai_dc/oai%3Aexample.org%3A{}.xml", "other/oai%3Aexample.org%3A{}.xml"
        base = "http://example.org/s/resources/"
        told = [(rel, href.format("oai_dc")) for rel, href in sets]
        assert links(dc.format(0)) == [*told, ("alternate", base + other.format(0))]
        assert links(dc.format(2)) == told
        told = [(rel, href.format("other")) for rel, href in sets]
        assert links(other.format(0)) == [*told, ("alternate", base + dc.format(0))]
        assert harvest.done("--audit")["updated"] == 0
        repo.put(0, at="2024-06-01T00:00:00Z", deleted=True)
        repo.items["oai:example.org:1"].metadata.pop("other")
        repo.now = "2024-06-02T00:00:00Z"
        told_ = harvest.done("--audit", "--max-delete", "100%")
        assert (told_["deleted"], told_["updated"]) == (3, 1)
        assert [rel for rel, _ in links(dc.format(1))] == ["collection", "collection"]


# -- tokens, windows, answers that are spoilt


def spoilt(
    repo: FakeRepository, is_meant: Callable[[Query], bool], make: Callable[[bytes], bytes | None], times: int = 1
) -> None:
    """Spoil so many of the answers to requests of this kind."""
    left = [times]

    def spoil(query: Query, sent: bytes) -> bytes | None:
        if is_meant(query) and left[0]:
            left[0] -= 1
            return make(sent)
        return sent

    repo.spoil = spoil


def resent(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """A change of a body, with the length that fits."""
    return lambda sent: answer(change(sent.partition(b"\r\n\r\n")[2]), Content_Type="text/xml")


def offset(query: Query) -> int:
    token = query.get("resumptionToken")
    return int(token.rpartition("|")[2]) if token else 0


EMPTY = answer(b"<html><body>Unprocessable</body></html>", "422 Unprocessable Entity", Content_Type="text/html")
FOREVER = 1 << 30


@pytest.mark.parametrize(
    ("what", "times", "status"),
    [
        ("cut", 1, 0),
        ("cut", FOREVER, 3),
        ("html", FOREVER, 3),
        ("notice", FOREVER, 0),
        ("control", FOREVER, 4),
        ("broken", FOREVER, 4),
        ("latin", FOREVER, 4),
        ("empty", 1, 0),
        ("500", 1, 0),
        ("closed", 1, 0),
    ],
)
def test_spoilt_answers(tmp_path: Path, what: str, times: int, status: int) -> None:
    """eScholarship 898 (cut at 70 % of the third of five pages), findsorguk 843, and more. Never a silent loss."""
    makes: dict[str, Callable[[bytes], bytes | None]] = {
        "cut": resent(lambda body: body[: int(0.7 * len(body))]),
        "empty": resent(lambda _body: b""),
        "html": lambda _sent: answer(b"<!DOCTYPE html><html>Are you human?</html>", Content_Type="text/html"),
        "notice": resent(lambda body: body + b"\n<br /><b>Notice</b>: x"),
        "control": resent(lambda body: body.replace(b"item 25<", b"item \x0b25<")),
        "latin": resent(lambda body: body.replace(b"item 25<", b"it\xe9m 25<")),
        "broken": resent(lambda body: body.replace(b"item 25<", b"&nbsp;item 25<")),
        "500": lambda _sent: answer(b"", "500 Internal Server Error"),
        "closed": lambda _sent: None,
    }
    with repository(50, page=10, order=lambda one: int(one.identifier.rpartition(":")[2])) as repo:
        harvest = Harvest(tmp_path, repo)
        spoilt(repo, lambda query: offset(query) == 20, makes[what], times)
        done = harvest.run()
        assert done.returncode == status, done.stderr
        if status == 3:
            assert not harvest.held() or len(harvest.held()) == 20
            repo.spoil = lambda _query, sent: sent
            assert harvest.run().returncode == 0
            assert [offset(one) for one in repo.queries()] == [20, 30, 40]
        if what in ("control", "latin"):
            assert "\ufffd" in (harvest.root / "oai_dc/oai:example.org:25.xml").read_text()
            assert b"oai:example.org:25" in done.stderr
        elif what == "broken":
            assert len(harvest.held()) == 49
            assert b"oai:example.org:25" in done.stderr
        else:
            assert harvest.is_as(repo)


def test_tokens_that_expire_repeat_or_fail(tmp_path: Path) -> None:
    bad = answer(FakeRepository().document(error("badResumptionToken", "expired"), "ListRecords"))
    with repository(50, page=10) as repo:  # the run ends in the middle, and its token has expired when the next begins
        harvest = Harvest(tmp_path, repo)
        repo.spoil = lambda query, sent: None if offset(query) == 20 else sent
        assert harvest.run().returncode == 3
        spoilt(repo, lambda query: offset(query) == 20, lambda _: bad)
        assert harvest.done()["lacking"] == 0
        assert [offset(one) for one in repo.queries()] == [20, 0, 10, 20, 30, 40]
        assert harvest.is_as(repo)


@pytest.mark.parametrize("code", ["badResumptionToken", "noRecordsMatch"])
@pytest.mark.parametrize("says_size", [True, False])
@pytest.mark.parametrize("days", [1, 10])
def test_tokens_that_are_refused_twice_delete_nothing(tmp_path: Path, days: int, says_size: bool, code: str) -> None:
    """The whole list and a part of it lack as much, so that their numbers are as if all were there."""
    with repository(page=10, by_day=True, says_size=says_size, deletions="no") as repo:
        for number in range(100):
            repo.put(number, at=f"2024-05-{number % days + 1:02d}T00:00:00Z")
        harvest, tokens = Harvest(tmp_path, repo), list[str]()
        harvest.done()

        def spoil(query: Query, sent: bytes) -> bytes:
            tokens.extend([query["resumptionToken"]] if "resumptionToken" in query else [])
            is_bad = "resumptionToken" in query and len(tokens) in (9, 13)
            return answer(repo.document(error(code, "x"), "ListRecords")) if is_bad else sent

        repo.spoil = spoil
        told = harvest.done("--audit", "--max-delete", "100%", status=4 if days == 1 else 0)
        assert (told["deleted"], told["lacking"] > 0, len(harvest.held())) == (0, days == 1, 100)
        assert len(tokens) >= 13


@pytest.mark.parametrize("says_size", [True, False])
@pytest.mark.parametrize("form", ["error", "empty", "500"])
def test_the_last_page_has_a_token_that_leads_to_an_error(tmp_path: Path, says_size: bool, form: str) -> None:
    """inveniosoftware/invenio-app-rdm 2715."""
    bad = {
        "error": answer(FakeRepository().document(error("badResumptionToken", "x"), "ListRecords")),
        "empty": answer(FakeRepository().document(error("noRecordsMatch", "x"), "ListRecords")),
        "500": answer(b"", "500 Internal Server Error"),
    }[form]
    with repository(50, page=10, says_size=says_size) as repo:
        harvest = Harvest(tmp_path, repo)

        def spoil(query: Query, sent: bytes) -> bytes:
            if query.get("resumptionToken") == "end":
                return bad
            if b"<resumptionToken" in sent and re.search(rb"<resumptionToken[^>]*></resumptionToken>", sent):
                return resent(lambda body: body.replace(b"></resumptionToken>", b">end</resumptionToken>"))(sent)
            return sent

        repo.spoil = spoil
        assert harvest.run().returncode == 0
        assert harvest.is_as(repo)
        assert len(repo.asked) < 60


@pytest.mark.parametrize("kind", ["same token", "same pages", "no records"])
def test_endless_chains_end(tmp_path: Path, kind: str) -> None:
    with repository(50, page=10) as repo:
        harvest = Harvest(tmp_path, repo)

        def spoil(query: Query, sent: bytes) -> bytes:
            if offset(query) < 30:
                return sent
            if kind == "same token":
                return resent(lambda body: re.sub(rb"\|40<", b"|30<", body))(sent)
            query = {**query, "resumptionToken": "oai_dc||||30"}
            body = repo.answer(query).partition(b"\r\n\r\n")[2]
            records = b"".join(re.findall(rb"<record>.*</record>", body)) if kind == "same pages" else b""
            token = b"<resumptionToken>oai_dc||||%d</resumptionToken>" % (offset(repo.asked[-1]) + 1)
            made = b"<ListRecords>" + records + token + b"</ListRecords>"
            return resent(lambda body: re.sub(rb"<Li.*</Li\w+>", made, body))(sent)

        repo.spoil = spoil
        done = harvest.run()
        assert done.returncode == 3, done.stderr
        assert b"HW-OAI-02" in done.stderr
        assert len(repo.asked) < 300
        repo.spoil = lambda _query, sent: sent
        assert harvest.run().returncode == 0
        assert harvest.is_as(repo)


def test_a_token_that_repeats_once_is_no_end(tmp_path: Path) -> None:
    with repository(50, page=10) as repo:
        harvest = Harvest(tmp_path, repo)
        spoilt(repo, lambda query: offset(query) == 30, resent(lambda body: body.replace(b"|40<", b"|30<")))
        assert harvest.done()["lacking"] == 0
        assert harvest.is_as(repo)


@pytest.mark.parametrize("kind", ["ends", "error in the chain", "refused"])
def test_windows_are_divided_where_a_server_limits_them(tmp_path: Path, kind: str) -> None:
    with repository(page=100, limit=1_000 if kind == "ends" else None) as repo:
        for number in range(3_500):
            repo.put(number, at=f"202{number % 4}-0{number % 9 + 1}-{number % 28 + 1:02d}T00:00:{number % 60:02d}Z")
        harvest = Harvest(tmp_path, repo)
        bad = answer(repo.document(error("badArgument", "too many"), "ListRecords"))

        def spoil(query: Query, sent: bytes) -> bytes:
            size = re.search(rb'completeListSize="(\d+)"', sent)
            if kind == "error in the chain" and offset(query) >= 1_000:
                return answer(b"Result window is too large", "500 Internal Server Error")
            if kind == "refused" and size and int(size[1]) > 1_000 and query["verb"] == "ListRecords":
                return bad
            return sent

        repo.spoil = spoil
        told = harvest.done()
        assert told["lacking"] == 0
        assert harvest.is_as(repo)
        assert len(repo.asked) < 130


def test_a_size_that_is_only_an_estimate_is_found_out(tmp_path: Path) -> None:
    with repository(500, page=50) as repo:
        harvest = Harvest(tmp_path, repo)
        repo.spoil = lambda _query, sent: (
            resent(lambda body: body.replace(b'completeListSize="', b'completeListSize="1'))(sent)
            if b"completeListSize" in sent
            else sent
        )
        assert harvest.done()["lacking"] == 0
        assert len(repo.asked) < 30
        for number in range(200):
            repo.put(number, "new", "2024-06-01T10:00:00Z")
        repo.now = "2024-06-02T00:00:00Z"
        assert harvest.done()["updated"] == 200
        assert len(repo.queries()) < 20
        assert harvest.is_as(repo)


def test_a_list_that_ends_early_in_one_second_is_told(tmp_path: Path) -> None:
    """artefactual/atom 1581: equal datestamps over borders of pages, some records doubled and others missing."""
    with repository(page=100) as repo:
        for number in range(1_000):
            repo.put(number, at="2024-02-02T02:02:02Z")
        harvest = Harvest(tmp_path, repo)
        chance = random.Random(5)
        repo.order = lambda _one: chance.random()
        told = harvest.done(status=4)
        assert told["lacking"] >= 1_000 - len(harvest.held()) > 0
        assert len(repo.asked) < 30
        repo.order = lambda one: one.identifier
        assert harvest.done("--audit")["lacking"] == 0
        assert harvest.is_as(repo)


@pytest.mark.parametrize("status", ["503 Service Unavailable", "429 Too Many Requests"])
def test_a_repository_that_asks_to_wait_is_obeyed(tmp_path: Path, status: str) -> None:
    with repository(50, page=10) as repo:
        harvest = Harvest(tmp_path, repo)
        at: list[float] = []

        def spoil(query: Query, sent: bytes) -> bytes:
            at.append(time.monotonic())
            return answer(b"", status, Retry_After="2") if len(at) == 4 else sent

        repo.spoil = spoil
        assert harvest.done()["created"] == 50
        assert at[4] - at[3] >= 1.9
        assert repo.server.busiest == 1  # type: ignore[attr-defined]
        assert "OAI-PMH" in repo.server.received[0].headers["user-agent"]  # type: ignore[attr-defined]


# -- deletions, and empty answers


def test_a_set_that_is_suddenly_empty_is_held_back(tmp_path: Path) -> None:
    """IQSS/dataverse 3284: the set vanished, and the harvest was a success with 0 records."""
    with repository() as repo:
        for number in range(1_000):
            repo.put(number, sets=("a",))
        harvest = Harvest(tmp_path, repo, 'sets = ["a"]')
        harvest.done()
        items = dict(repo.items)
        repo.items.clear()
        assert harvest.run().returncode == 3
        assert harvest.run("--audit").returncode == 3
        assert harvest.run().returncode == 3
        assert len(harvest.held()) == 1_000
        repo.items |= items
        assert harvest.done()["deleted"] == 0
        repo.items.clear()
        assert harvest.done("--audit", "--max-delete", "100%")["deleted"] == 1_000
        assert harvest.held() == {}


def test_an_empty_window_may_be_an_http_error(tmp_path: Path) -> None:
    """miku/metha 39: Zenodo answers 422 and HTML where nothing is new."""
    with repository(50) as repo:
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        repo.spoil = lambda query, sent: EMPTY if "from" in query else sent
        assert harvest.run().returncode == 3  # it answers so to everything: what is new cannot be known
        for number in range(1_100):  # too many of one time to be read again
            repo.put(number, at="2024-05-01T00:00:00Z")
        repo.spoil = lambda query, sent: EMPTY if "from" in query and b"<record>" not in sent else sent
        assert harvest.done("--audit")["created"] == 1_050
        assert harvest.done()["records"] == 0
        (tmp_path / "b").mkdir()
        fresh = Harvest(tmp_path / "b", repo)
        repo.spoil = lambda query, sent: EMPTY if query["verb"] == "ListRecords" else sent
        assert fresh.run().returncode == 3


def test_an_http_error_in_a_comparison_is_no_empty_window(tmp_path: Path) -> None:
    """Of a repository that answers 422 where too much is asked for, nothing is deleted."""
    with repository(200, deletions="no") as repo:
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        repo.page = 1_000
        repo.spoil = lambda query, sent: EMPTY if sent.count(b"<record>") > 60 else sent
        told = harvest.done("--audit", "--max-delete", "100%")
        assert (told["deleted"], told["records"], told["lacking"]) == (0, 200, 0)


def test_a_comparison_of_an_older_state_may_be_under_way() -> None:
    """It does not say whether it is over: what it has not seen stays until all was read."""
    assert not from_json(b'{"number": 7, "has_gone": true}', OaiComparison).is_over


@pytest.mark.parametrize("deletions", ["no", "transient", "persistent"])
def test_what_vanishes_without_a_word_is_found_by_comparison(tmp_path: Path, deletions: str) -> None:
    with repository(100, deletions=deletions) as repo:
        harvest = Harvest(tmp_path, repo, "compare_seconds = 1")
        harvest.done()
        assert "HW-OAI-11" in harvest.said
        for number in range(5):
            del repo.items[f"oai:example.org:{number}"]
        time.sleep(1.1)
        told = harvest.done()
        assert told["deleted"] == 5
        assert harvest.is_as(repo)
        for number in range(5, 60):
            del repo.items[f"oai:example.org:{number}"]
        told = harvest.done("--audit", status=4)
        assert "too many" in told["held_back"]
        assert len(harvest.held()) == 95
        assert run_here("status", harvest.config).returncode
        assert run_here("allow-deletions", harvest.config).returncode == 0
        assert harvest.done()["deleted"] == 55  # without reading everything again
        assert harvest.is_as(repo)


def test_a_comparison_that_was_interrupted_goes_on(tmp_path: Path) -> None:
    with repository(300, page=20) as repo:
        harvest = Harvest(tmp_path, repo, 'prefixes = ["oai_dc", "other"]')
        harvest.done()
        for number in range(30):
            del repo.items[f"oai:example.org:{number}"]
        repo.spoil = lambda query, sent: (
            None if offset(query) == 100 and query["resumptionToken"][:5] == "other" else sent
        )
        assert harvest.run("--audit").returncode == 3
        assert len(harvest.held()) == 600
        repo.spoil = lambda _query, sent: sent
        told = harvest.done()
        assert (told["deleted"], len(repo.queries())) == (60, 10)  # the first list was read
        assert harvest.is_as(repo)
        assert harvest.is_as(repo, "other")


def test_mass_deletions_that_are_announced_are_held_back(tmp_path: Path) -> None:
    with repository(100) as repo:
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        for number in range(50):
            repo.put(number, at="2024-06-01T10:00:00Z", deleted=True)
        repo.now = "2024-06-02T00:00:00Z"
        done = harvest.run()
        assert (done.returncode, b"HW-ING-21" in done.stderr) == (4, True)
        assert b"HW-ING-21" not in harvest.run().stderr  # it is told once
        assert len(harvest.held()) == 100
        assert harvest.done("--max-delete", "60%")["deleted"] == 50


def test_deletions_in_the_first_harvest_are_no_event(tmp_path: Path) -> None:
    """pod4lib/aggregator 872 and 873: deletions in the first harvest, and datestamps before `from`."""
    with repository(50, page=10) as repo:
        for number in range(0, 50, 2):
            repo.put(number, deleted=True)
        harvest = Harvest(tmp_path, repo)
        told = harvest.done()
        assert (told["created"], told["deleted"]) == (25, 0)
        with closing(SqliteCatalog(harvest.state / "catalog.sqlite")) as catalog:
            assert catalog.changes("s") == []
        repo.put(1, "new", "2023-01-01T00:00:00Z")
        repo.put(3, at="2023-01-01T00:00:00Z", deleted=True)
        start = repo.answer
        repo.answer = lambda query: start({key: text for key, text in query.items() if key != "from"})  # type: ignore[method-assign]
        told = harvest.done()
        assert (told["updated"], told["deleted"]) == (1, 1)
        assert harvest.is_as(repo)


def test_records_that_are_not_in_the_order_of_time_are_all_taken(tmp_path: Path) -> None:
    """vufind-org/vufindharvest 7: the last record is not the newest one."""
    with repository(50, page=10, order=lambda one: one.identifier) as repo:
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        for hour, number in enumerate((40, 7, 99, 3)):
            repo.put(number, "new", f"2024-06-01T0{hour}:00:00Z")
            repo.now = f"2024-06-01T0{hour}:00:01Z"
            assert harvest.done()["records"] >= 1
            assert harvest.is_as(repo)


def test_a_clock_that_was_set_back_leads_to_a_comparison(tmp_path: Path) -> None:
    with repository(50) as repo:
        repo.now = "2034-06-01T00:00:00Z"
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        repo.now = "2024-06-02T00:00:00Z"
        repo.put(3, "new", "2024-06-02T00:00:00Z")
        assert harvest.done()["updated"] == 1
        assert harvest.is_as(repo)


# -- lists that change while they are read, and what comes late


@pytest.mark.parametrize("arguments", [(), ("--audit",)])
def test_a_record_that_moves_in_a_chain_hides_no_other(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    """Tokens count records: where the first one moves to the end of the list, the next page begins one too late."""
    with repository(50, page=10) as repo:
        harvest = Harvest(tmp_path, repo)
        if arguments:
            harvest.done()

        def move(sent: bytes) -> bytes:
            first = min(repo.items.values(), key=repo.order)  # type: ignore[arg-type]
            first.datestamp = "2024-05-31T23:00:00Z"
            return sent

        spoilt(repo, lambda query: offset(query) == 10, move)
        told = harvest.done(*arguments)
        assert (told["lacking"], told["deleted"]) == (0, 0)
        assert harvest.is_as(repo)


def test_an_answer_that_tells_no_time_says_nothing_of_the_clock(tmp_path: Path) -> None:
    with repository() as repo:
        for number in range(1_100):  # too many of one time to be read again
            repo.put(number, at="2024-05-01T00:00:00Z")
        now = dt.datetime.now(dt.UTC).replace(microsecond=0, tzinfo=None)
        repo.now = f"{now.isoformat()}Z"
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        repo.spoil = lambda query, sent: EMPTY if "from" in query and query["verb"] == "ListRecords" else sent
        for hours in (1, 2):
            repo.now = f"{(now + dt.timedelta(hours=hours)).isoformat()}Z"
            assert harvest.done()["records"] == 0
            assert "set back" not in harvest.said


@pytest.mark.parametrize("what", ["lacking", "unreadable"])
def test_what_did_not_come_is_asked_for_by_the_next_comparison(tmp_path: Path, what: str) -> None:
    with repository(page=10) as repo:
        for number in range(40):
            repo.put(number, at="2024-02-02T02:02:02Z")
        harvest = Harvest(tmp_path, repo, "compare_seconds = 3600")
        if what == "lacking":
            repo.limit = 30
        else:
            broken = resent(lambda body: body.replace(b"item 25<", b"&nbsp;item 25<"))
            repo.spoil = lambda query, sent: broken(sent) if query["verb"] == "ListRecords" else sent
        harvest.done(status=4)
        repo.limit, repo.spoil, repo.now = None, lambda _query, sent: sent, "2024-06-02T00:00:00Z"
        news = harvest.done()["created"]  # those of the newest datestamp
        harvest.configure("compare_seconds = 1")
        time.sleep(1.1)
        assert news + harvest.done()["created"] == 40 - (30 if what == "lacking" else 39)
        assert harvest.is_as(repo)


def test_a_list_of_nothing_but_known_records_ends(tmp_path: Path) -> None:
    with repository(50, says_size=False) as repo:
        harvest, chance = Harvest(tmp_path, repo), random.Random(1)

        def spoil(query: Query, sent: bytes) -> bytes:
            if query["verb"] != "ListRecords":
                return sent
            records = "".join(one.record("oai_dc") for one in chance.sample(list(repo.items.values()), 10))
            token = f"<resumptionToken>t{len(repo.asked)}</resumptionToken>"
            return answer(repo.document(f"<ListRecords>{records}{token}</ListRecords>", "ListRecords"))

        repo.spoil = spoil
        done = harvest.run()
        assert (done.returncode, b"HW-OAI-02" in done.stderr) == (3, True)
        assert len(repo.asked) < 400


@pytest.mark.parametrize("kind", ["no list", "no records", "error beside records"])
def test_a_chain_that_breaks_off_without_a_size_is_no_end(tmp_path: Path, kind: str) -> None:
    with repository(50, page=10, says_size=False) as repo:
        harvest = Harvest(tmp_path, repo)
        makes = {
            "no list": lambda _sent: answer(repo.document("", "ListRecords")),
            "no records": lambda _sent: answer(repo.document(error("noRecordsMatch", "x"), "ListRecords")),
            "error beside records": resent(
                lambda body: re.sub(rb"<resumptionToken.*</ListRecords>", b'</ListRecords><error code="x"/>', body)
            ),
        }
        spoilt(repo, lambda query: offset(query) == 20, makes[kind])
        assert harvest.done()["lacking"] == 0
        assert harvest.is_as(repo)


def test_records_that_come_later_than_their_datestamps_say_are_found(tmp_path: Path) -> None:
    with repository(50) as repo:
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        repo.now = "2024-06-02T00:00:00Z"
        harvest.done()
        repo.put(99, "late", "2024-06-01T10:00:00Z")
        repo.put(1, at="2024-06-01T10:00:00Z", deleted=True)
        repo.now = "2024-06-02T01:00:00Z"
        told = harvest.done()
        assert (told["created"], told["deleted"]) == (1, 1)
        assert harvest.is_as(repo)
        assert harvest.done()["requests"] == 2


@pytest.mark.parametrize("says_size", [True, False])
def test_lists_are_not_divided_where_the_repository_heeds_no_times(tmp_path: Path, says_size: bool) -> None:
    with repository(50, page=60, says_size=says_size) as repo:
        harvest, start = Harvest(tmp_path, repo), repo.answer
        repo.answer = lambda query: start({key: text for key, text in query.items() if key not in ("from", "until")})  # type: ignore[method-assign]
        told = b'<resumptionToken completeListSize="55"></resumptionToken></ListRecords>'
        twice = f"<ListRecords>{repo.items['oai:example.org:3'].record('oai_dc')}".encode()
        added = (b"</ListRecords>", told) if says_size else (b"<ListRecords>", twice)
        repo.spoil = lambda _query, sent: resent(lambda body: body.replace(*added))(sent)
        assert harvest.done(status=4)["lacking"]
        assert len(repo.asked) < 6
        assert harvest.is_as(repo)


# -- rules that need no mechanism: what waits, which list fails, what a comparison looks at


def test_news_are_recorded_though_deletions_are_held_back(tmp_path: Path) -> None:
    with repository(100) as repo:
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        for number in range(60):
            repo.put(number, at="2024-06-01T10:00:00Z", deleted=True)
        repo.put(70, "new", "2024-06-01T10:00:00Z")
        repo.now = "2024-06-02T00:00:00Z"
        told = harvest.done(status=4)
        assert (told["updated"], told["deleted"]) == (1, 0)
        held = harvest.held()
        assert len(held) == 100
        for uri, one in held.items():  # what is listed is what lies there
            octets = (harvest.root / uri.replace("%3A", ":")).read_bytes()
            assert one.metadata.hash == f"sha-256:{hashlib.sha256(octets).hexdigest()}"
        assert harvest.done(status=4)["deleted"] == 0
        assert run_here("allow-deletions", harvest.config).returncode == 0
        assert harvest.done()["deleted"] == 60
        assert harvest.is_as(repo)


def test_a_list_that_fails_starves_no_other(tmp_path: Path) -> None:
    with repository(30) as repo:
        for number in range(30):
            repo.put(number, sets=("a",) if number % 2 else ("b",))
        harvest = Harvest(tmp_path, repo, 'sets = ["a", "b"]')
        bad = answer(repo.document(error("badVerb", "no"), "ListRecords"))
        repo.spoil = lambda query, sent: bad if query.get("set") == "a" else sent
        assert harvest.run().returncode == 3
        assert len(harvest.held()) == 15
        repo.spoil = lambda _query, sent: sent
        assert harvest.done()["created"] == 15
        assert harvest.is_as(repo)


def test_a_repository_that_does_not_answer_is_asked_for_no_other_list(tmp_path: Path) -> None:
    with repository(30) as repo:
        harvest = Harvest(tmp_path, repo, 'prefixes = ["oai_dc", "other"]')
        repo.spoil = lambda query, sent: answer(b"", "503 No", Retry_After="90000") if len(query) > 1 else sent
        assert harvest.run().returncode == 3
        assert len(repo.queries()) == 1


def test_a_comparison_looks_at_the_files(tmp_path: Path) -> None:
    with repository(30) as repo:
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        (harvest.root / "oai_dc/oai:example.org:3.xml").unlink()
        (harvest.root / "oai_dc/oai:example.org:4.xml").write_bytes(b"damaged")
        told = harvest.done("--audit")
        assert (told["updated"], told["unchanged"]) == (0, 30)
        assert harvest.is_as(repo)


def test_an_audit_reads_everything_though_a_comparison_is_under_way(tmp_path: Path) -> None:
    with repository(60, page=10) as repo:
        harvest = Harvest(tmp_path, repo, "compare_seconds = 1")
        harvest.done()
        time.sleep(1.1)
        repo.spoil = lambda query, sent: None if offset(query) == 40 else sent
        assert harvest.run().returncode == 3
        repo.spoil = lambda _query, sent: sent
        harvest.configure("compare_seconds = 3600")
        harvest.done("--audit")
        assert [offset(one) for one in repo.queries()] == [0, 10, 20, 30, 40, 50]


@pytest.mark.parametrize("kind", ["ends", "refused"])
def test_very_many_records_of_the_first_datestamp_hide_no_later_ones(tmp_path: Path, kind: str) -> None:
    with repository(page=100, limit=300 if kind == "ends" else None) as repo:
        for number in range(300 if kind == "ends" else 100):
            repo.put(number, at="2024-02-02T02:02:02Z")
        for number in range(1_000, 1_250):
            repo.put(number, at=f"2024-05-30T00:{number % 50:02d}:00Z")
        harvest = Harvest(tmp_path, repo)
        bad = answer(repo.document(error("badArgument", "too many"), "ListRecords"))

        def spoil(query: Query, sent: bytes) -> bytes:
            size = re.search(rb'completeListSize="(\d+)"', sent)
            return bad if kind == "refused" and size and int(size[1]) > 200 and query["verb"] == "ListRecords" else sent

        repo.spoil = spoil
        harvest.done()
        assert harvest.is_as(repo)
        assert len(repo.asked) < 60


def test_a_prefix_that_is_configured_no_more_goes_with_the_next_comparison(tmp_path: Path) -> None:
    with repository(30) as repo:
        harvest = Harvest(tmp_path, repo, 'prefixes = ["oai_dc", "other"]')
        harvest.done()
        harvest.configure("max_delete = 0.6")
        assert harvest.done()["deleted"] == 0
        assert harvest.done("--audit")["deleted"] == 30
        assert {uri.partition("/")[0] for uri in harvest.held()} == {"oai_dc"}


@pytest.mark.parametrize("order", ['"a", "b"', '"b", "a"'])
def test_what_leaves_one_set_and_stays_in_another_stays(tmp_path: Path, order: str) -> None:
    with repository() as repo:
        for number in range(30):
            repo.put(number, sets=("a", "b"))
        harvest = Harvest(tmp_path, repo, f"sets = [{order}]")
        harvest.done()
        left = Item("oai:example.org:3", "2024-06-01T10:00:00Z", {}, ("a",), deleted=True).record("oai_dc")
        told = answer(repo.document(f"<ListRecords>{left}</ListRecords>", "ListRecords"))
        repo.spoil = lambda query, sent: told if query.get("set") == "a" else sent
        repo.now = "2024-06-02T00:00:00Z"
        done = harvest.done()
        assert (done["deleted"], done["updated"]) == (0, 1)
        assert len(harvest.held()["oai_dc/oai%3Aexample.org%3A3.xml"].metadata.links) == 1
        repo.spoil = lambda _query, sent: sent
        repo.put(3, at="2024-06-02T10:00:00Z", sets=("a", "b"), deleted=True)
        repo.now = "2024-06-03T00:00:00Z"
        assert harvest.done()["deleted"] == 1


def test_names_of_sets_may_be_of_any_length(tmp_path: Path) -> None:
    with repository() as repo:
        repo.put(1, sets=("x" * 3_000, "y"))
        harvest = Harvest(tmp_path, repo)
        assert harvest.done()["created"] == 1
        (link,) = harvest.held()["oai_dc/oai%3Aexample.org%3A1.xml"].metadata.links
        assert "set=y" in link.href


# -- kills, estimates, usage


def test_kills_lose_no_record_and_little_work(tmp_path: Path) -> None:
    with repository(600, page=10) as repo:
        harvest = Harvest(tmp_path, repo, 'prefixes = ["oai_dc", "other"]')
        chance, kills = random.Random(11), 0

        def spoil(query: Query, sent: bytes) -> bytes:
            time.sleep(0.03)
            return sent

        repo.spoil = spoil
        command = [sys.executable, "-m", "headwater", "ingest", "oai", "--set", "s", "--config", str(harvest.config)]
        while True:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            try:
                _, said = process.communicate(timeout=chance.uniform(1.5, 3.0))
                assert process.returncode == 0, said
                break
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
        assert kills
        queries = repo.queries()
        assert harvest.is_as(repo)
        assert harvest.is_as(repo, "other")
        assert len(queries) <= 120 + kills * 4  # what an answer was taken from is asked for once
        repo.spoil = lambda _query, sent: sent
        for number in range(60):
            repo.items.pop(f"oai:example.org:{number}")
        assert harvest.done("--audit")["deleted"] == 120


def test_a_dry_run_estimates_and_records_nothing(tmp_path: Path) -> None:
    with repository(1_234, page=50) as repo:
        harvest = Harvest(tmp_path, repo, 'prefixes = ["oai_dc", "other"]')
        told = harvest.done("--dry-run")
        assert (told["records"], told["requests"], told["deletions"]) == (2_468, 51, "persistent")
        assert told["seconds"] > 0
        assert len(repo.asked) == 3
        assert not harvest.state.exists()
        assert b"2,468 records in 51 requests" in harvest.run("--dry-run").stdout
        repo.says_size = False
        assert harvest.done("--dry-run")["records"] is None
        harvest.configure(f"sets = {[f's{number}' for number in range(30)]}")
        harvest.run("--dry-run")
        assert len(repo.asked) == 5
        harvest.configure('content = ["identifier"]')
        assert b"the files of each new or changed record take more requests" in harvest.run("--dry-run").stdout
        dry = run_here("publish", "--dry-run", harvest.config)
        assert b"s: `headwater ingest oai --set s --config" in dry.stdout
        harvest.configure()
        harvest.done()
        assert harvest.done("--dry-run")["requests"] == 2


@pytest.mark.parametrize(
    ("lines", "arguments", "status", "code"),
    [
        (['prefixes = ["mods"]'], (), 3, "HW-OAI-03"),
        (['sets = ["x"]'], (), 0, "HW-OAI-14"),
        ([], ("http://127.0.0.1:1/oai",), 3, "HW-OAI-01"),
        ([], ("ftp://example.org",), 2, "HW-USE-01"),
        ([], ("--load",), 2, "HW-USE-01"),
        ([], ("--audit", "--prefix", "other"), 2, "HW-USE-01"),
    ],
)
def test_what_cannot_be_harvested_is_told(
    tmp_path: Path, lines: list[str], arguments: tuple[str, ...], status: int, code: str
) -> None:
    with repository(5) as repo:
        done = Harvest(tmp_path, repo, *lines).run(*arguments)
        assert done.returncode == status, done.stderr
        assert code.encode() in done.stderr


def test_the_advice_beside_a_server_at_work_is_none_that_cannot_be_followed(tmp_path: Path) -> None:
    with repository(5) as repo:
        harvest = Harvest(tmp_path, repo)
        lock = StateLock(harvest.state)
        done = harvest.run()
        lock.release()
        assert done.returncode == 6
        assert b"--token" not in done.stderr


def test_a_list_that_was_read_needs_no_further_step(tmp_path: Path) -> None:
    """A window may close behind the last answer."""
    with repository(5) as repo, closing(SqliteCatalog(tmp_path / "catalog.sqlite")) as catalog:
        feed = Feed(catalog, "s", Locations("http://example.org/", str(tmp_path)), lambda: dt.datetime.now(dt.UTC))
        harvester = OaiHarvester(feed, tmp_path, OaiLists(url=repo.url))
        assert not harvester.poll()
        assert feed.is_open


def test_a_status_tells_the_window_that_is_waited_for(tmp_path: Path) -> None:
    with repository(5) as repo:
        harvest = Harvest(tmp_path, repo)
        harvest.done()
        soon = dt.datetime.now().astimezone() + dt.timedelta(hours=2)
        harvest.configure(f'window = "{soon:%H:%M}-{soon + dt.timedelta(hours=1):%H:%M}"')
        assert b"s: waits for its window, which opens at" in run_here("status", harvest.config).stdout
        (told,) = json.loads(run_here("status", "--json", harvest.config).stdout)["windows"]
        assert dt.datetime.fromisoformat(told["opens_at"]) == soon.replace(second=0, microsecond=0)


def test_prefixes_and_sets_may_be_given_on_the_command_line(tmp_path: Path) -> None:
    with repository(5) as repo:
        repo.put(7, sets=("x",))
        config = tmp_path / "config.toml"
        root = f'resource_root = "{tmp_path / "octets"}"'
        config.write_text(f'state = "state"\n[[set]]\nname = "s"\nfeed = "events"\ntoken = "{"t" * 20}"\n{root}\n')
        given = ("--set", "s", "--prefix", "other", "--repository-set", "x")
        done = run_here("ingest", "oai", repo.url, *given, "--config", config, "--json")
        assert (done.returncode, json.loads(done.stdout)["created"]) == (0, 1)
        assert (tmp_path / "octets/other/oai:example.org:7.xml").exists()
