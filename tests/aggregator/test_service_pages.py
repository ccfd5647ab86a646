"""The pages of a service: nothing of a source runs in them, JSON says the same, only the operator acts, 320 pixels."""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec
import pytest

from headwater.aggregator.configuration import listen_address
from headwater.aggregator.operator_sessions import OperatorSessions, is_own_form
from headwater.aggregator.pages import Pages
from headwater.aggregator.rendering import style, style_hash
from headwater.aggregator.source_report import MOST_OCTETS, report_page
from headwater.aggregator.sqlite_store import SqliteStore
from headwater.aggregator.store import Answer, RunRecord
from headwater.errors import HeadwaterError, UsageFault
from tests.aggregator.fleet import HOSTILE, NOW, TOKEN, WARNINGS, configuration, ended, fill, put, store_at

CHROMIUM = shutil.which("chromium")
ODD = 'a "b" <c> & d?é'
PAGES = (
    "/",
    "/?state=failing&tag=fr&words=a",
    "/sources/source-0002",
    "/sources/source-0005",
    "/sources/source-0008",
    f"/sources/{quote(ODD)}",
    "/runs",
    "/runs/1",
    "/sinks/hook",
    "/events",
    "/events?after=290",
)


class Service:
    """Pages of a filled store, and who asks them."""

    def __init__(self, folder: Path, count: int = 60, token: str | None = TOKEN) -> None:
        self.store: SqliteStore = store_at(folder)
        self.followed = fill(self.store, count)
        put(self.store, ODD, f"javascript:alert(1)//{HOSTILE}", question_text=HOSTILE)
        self.config = configuration(folder, self.followed, token=token)
        self.alive = True
        self.faults: list[HeadwaterError] = []
        self.pages = Pages(self.config, self.store, is_alive=lambda: self.alive, on_fault=self.faults.append)
        self.pages.start()
        self.host = urlsplit(self.pages.url).netloc

    def ask(
        self, target: str, form: dict[str, str] | None = None, /, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection(self.host, timeout=30)
        named = {name.replace("_", "-"): text for name, text in headers.items()}
        body = None if form is None else urlencode(form)
        connection.request("GET" if form is None else "POST", target, body, named)
        answer = connection.getresponse()
        found = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read().decode()
        connection.close()
        return found

    def sign_in(self) -> dict[str, str]:
        """The head of requests of a browser with a session."""
        status, headers, _ = self.ask("/session", {"token": TOKEN}, **self.own)
        assert status == 303
        return {**self.own, "Cookie": headers["set-cookie"].partition(";")[0]}

    @property
    def own(self) -> dict[str, str]:
        return {"Origin": f"http://{self.host}"}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    made = Service(tmp_path_factory.mktemp("service"))
    yield made
    made.pages.stop()
    assert made.faults == []


class Reader(HTMLParser):
    """What a browser would make of a page: its elements, links, and attributes that would run something."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.bad: list[tuple[str, str]] = []
        self.links: list[str] = []
        self.fields: dict[str, str] = {}
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        for name, value in attributes:
            if name.startswith("on") or name == "style" or (value or "").strip().lower().startswith("javascript:"):
                self.bad.append((name, value or ""))
            if name in ("href", "action", "src"):
                self.links.append(value or "")
        found = dict(attributes)
        if tag == "input" and found.get("name"):
            self.fields[str(found["name"])] = found.get("value") or ""


@pytest.mark.parametrize("target", PAGES)
def test_nothing_runs_in_a_page_and_nothing_comes_from_elsewhere(service: Service, target: str) -> None:
    status, headers, page = service.ask(target)
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert headers["content-security-policy"] == (
        "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    read = Reader(page)
    assert read.bad == []
    assert not read.elements & {"script", "img", "iframe", "object", "embed", "style", "base"}
    assert not {"\u202e", "\x1b"} & set(page)
    fetched = re.findall(r'<link rel="stylesheet" href="([^"]+)"', page)
    assert [one.rpartition("/")[2] for one in fetched] == ["style.css"]


def test_a_hostile_reason_is_shown_as_text(service: Service) -> None:
    for target in ("/", "/sources/source-0002", "/runs", "/sinks/hook", "/events"):
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in service.ask(target)[2], target


def test_links_lead_to_pages(service: Service) -> None:
    for target in PAGES:
        for link in Reader(service.ask(target)[2]).links:
            place = urlsplit(link)
            if place.scheme or link.startswith(("#", "?")):
                continue
            base = urlsplit(target).path.rpartition("/")[0]
            path = place.path.removeprefix("./")
            while path.startswith("../"):
                path, base = path.removeprefix("../"), base.rpartition("/")[0]
            assert service.ask(f"{base}/{path}" + (f"?{place.query}" if place.query else ""))[0] == 200, (target, link)


@pytest.mark.parametrize("target", PAGES)
def test_each_page_is_json_at_the_same_address(service: Service, target: str) -> None:
    mark = "&" if "?" in target else "?"
    path, _, query = target.partition("?")
    ways = (
        service.ask(target, Accept="application/json"),
        service.ask(target, Accept="application/json, text/plain, */*"),
        service.ask(f"{target}{mark}format=json"),
        service.ask(f"{'/index' if path == '/' else path}.json?{query}"),
    )
    found: list[Any] = []
    for status, headers, body in ways:
        assert (status, headers["content-type"]) == (200, "application/json")
        found.append(json.loads(body))
    assert all(one.keys() == found[0].keys() for one in found)
    for accepted in ("text/html,application/xhtml+xml,*/*;q=0.8", "*/*", "application/json;q=0.5, text/html"):
        assert service.ask(target, Accept=accepted)[2].startswith("<!doctype html>")


def test_json_says_what_the_page_says(service: Service) -> None:
    page, data = service.ask("/?state=dead")[2], json.loads(service.ask("/?state=dead&format=json")[2])
    assert [one["name"] for one in data["sources"]] == ["source-0003", "source-0023", "source-0043"]
    assert all(f'href="sources/{one["name"]}"' in page for one in data["sources"])
    assert (data["total"], data["counts"]["dead"], data["is_alive"]) == (3, 3, True)
    source = json.loads(service.ask("/sources/source-0008.json")[2])
    assert [(one["rule"], one["count"]) for one in source["defects"]] == [(rule, count) for rule, count, _ in WARNINGS]
    assert source["defects"][0]["advice"].startswith("Write times as in")
    assert source["audit"]["report"]["sets"][0]["same_by_time"] == 2
    run = msgspec.convert(json.loads(service.ask("/runs/1.json")[2]), RunRecord)
    assert run == service.store.run(1)


def test_pages_of_the_table_have_200_rows(tmp_path: Path) -> None:
    service = Service(tmp_path, 1_000)
    try:
        names: list[str] = []
        for page in range(1, 7):
            data = json.loads(service.ask(f"/?page={page}&format=json")[2])
            names += [one["name"] for one in data["sources"]]
        assert (data["pages"], data["total"]) == (6, 1_001)
        assert sorted(names) == sorted({*(one.name for one in service.followed), ODD})
        took = []  # of the processor, so that others on this machine do not count
        for _ in range(7):
            began = time.process_time()
            assert service.ask("/")[0] == 200
            took.append(time.process_time() - began)
        assert min(took) < 0.1, took
        assert json.loads(service.ask("/?page=99999999999999999999&format=json")[2])["page"] == 1
    finally:
        service.pages.stop()


def test_health_is_that_of_the_service(service: Service) -> None:
    assert service.ask("/healthz")[0] == 200
    service.alive = False
    try:
        assert service.ask("/healthz")[0] == 503
        assert "No service runs" in service.ask("/")[2]
        assert "\nheadwater_service_up 0.0\n" in service.ask("/metrics")[2]
    finally:
        service.alive = True


@pytest.mark.parametrize(
    "target", ["/nothing", "/sources/nobody", "/sources/", "/runs/99999999", "/runs/x", "/sinks/nobody", "/reports/x"]
)
def test_what_is_not_there_is_404(service: Service, target: str) -> None:
    assert service.ask(target)[0] == 404
    assert json.loads(service.ask(target, Accept="application/json")[2]) == {"error": "there is no such page"}


def test_requests_have_bounds(service: Service) -> None:
    assert service.ask(f"/?words={'a' * 5_000}")[0] == 414
    assert service.ask(f"/?{'&'.join(f'a{number}=1' for number in range(30))}")[0] == 400
    assert service.ask("/sources/source-0005", {"action": "x" * 10_000}, **service.own)[0] == 413


# -- what an operator does


def test_an_operator_approves_in_a_session(service: Service) -> None:
    cookie = service.sign_in()
    name = "source-0025"
    fields = Reader(service.ask(f"/sources/{name}", **cookie)[2]).fields
    status, headers, _ = service.ask(f"/sources/{name}", {"action": "approve", "csrf": fields["csrf"]}, **cookie)
    assert (status, headers["location"]) == (303, f"{name}?done=approve")
    state = service.store.source(name)
    assert state is not None
    assert (state.answer, state.is_wanted_now) == (Answer.APPROVED, True)
    assert "Approved: the next run acts on it." in service.ask(f"/sources/{name}?done=approve", **cookie)[2]
    for action, is_paused in (("pause", True), ("resume", False)):
        assert service.ask(f"/sources/{name}", {"action": action, "csrf": fields["csrf"]}, **cookie)[0] == 303
        state = service.store.source(name)
        assert state is not None
        assert state.is_paused is is_paused
    assert service.ask("/session", {"end": "1", "csrf": fields["csrf"]}, **cookie)[0] == 303
    assert service.ask(f"/sources/{name}", {"action": "run", "csrf": fields["csrf"]}, **cookie)[0] == 403


def test_the_cookie_is_for_this_site_alone(service: Service) -> None:
    given = service.ask("/session", {"token": TOKEN, "next": "sources/source-0005"}, **service.own)[1]
    assert given["location"] == "sources/source-0005"
    assert "; HttpOnly; SameSite=Strict" in given["set-cookie"]
    for elsewhere in ("https://elsewhere.example.org/", "//elsewhere.example.org", "sources/../../x"):
        place = service.ask("/session", {"token": TOKEN, "next": elsewhere}, **service.own)[1]["location"]
        assert place in ("./", "sources/..%2F..%2Fx")


@pytest.mark.parametrize(
    ("form", "headers", "status"),
    [
        ({"action": "run"}, {}, 403),
        ({"action": "run", "token": TOKEN}, {}, 403),
        ({"action": "run", "token": TOKEN}, {"Origin": "http://elsewhere.example.org"}, 403),
        ({"action": "run", "token": TOKEN}, {"Origin": "null"}, 403),
        ({"action": "run", "token": TOKEN}, {"Sec-Fetch-Site": "cross-site", "Origin": "own"}, 403),
        ({"action": "run", "token": "wrong"}, {"Origin": "own"}, 401),
        ({"action": "run", "token": ""}, {"Origin": "own"}, 401),
        ({"action": "run", "csrf": ""}, {"Origin": "own", "Cookie": "headwater_operator="}, 403),
        ({"action": "run"}, {"Authorization": "Bearer wrong"}, 401),
        ({"action": "fly", "token": TOKEN}, {"Origin": "own"}, 400),
        ({"action": "approve", "token": TOKEN}, {"Origin": "own"}, 409),
        ({"action": "run", "token": TOKEN}, {"Origin": "own"}, 303),
        ({"action": "run", "token": TOKEN}, {"Sec-Fetch-Site": "same-origin"}, 303),
    ],
)
def test_nobody_else_acts(service: Service, form: dict[str, str], headers: dict[str, str], status: int) -> None:
    name = "source-0010"
    service.store.change(name, is_wanted_now=False)
    named = {key: service.own["Origin"] if value == "own" else value for key, value in headers.items()}
    assert service.ask(f"/sources/{name}", form, **named)[0] == status
    state = service.store.source(name)
    assert state is not None
    assert state.is_wanted_now is (status == 303)


def test_the_secret_of_another_session_does_not_do(service: Service) -> None:
    one, other = service.sign_in(), service.sign_in()
    csrf = Reader(service.ask("/session", **one)[2]).fields["csrf"]
    assert service.ask("/sources/source-0010", {"action": "run", "csrf": csrf}, **other)[0] == 403
    assert service.ask("/sources/source-0010", {"action": "run", "csrf": csrf}, **one)[0] == 303


def test_a_program_names_the_token_in_its_head(tmp_path: Path) -> None:
    service = Service(tmp_path, 20, token="plain")
    try:
        head = {"Authorization": "Bearer plain", "Accept": "application/json"}
        status, _, body = service.ask("/sources/source-0005", {"action": "refuse"}, **head)
        assert status == 200
        assert json.loads(body)["source"]["answer"] == "refused"
        head["Authorization"] = "Bearer wrong"
        found = [service.ask("/sources/source-0005", {"action": "run"}, **head)[0] for _ in range(15)]
        assert (found[0], found[-1]) == (401, 429), "nobody tries tokens without end"
    finally:
        service.pages.stop()


def test_without_a_token_nobody_acts(tmp_path: Path) -> None:
    service = Service(tmp_path, 20, token=None)
    try:
        assert service.ask("/sources/source-0005", {"action": "run", "token": ""}, **service.own)[0] == 403
        assert service.ask("/session", {"token": ""}, **service.own)[0] == 403
        page = service.ask("/sources/source-0005")[2]
        assert "<form" not in page
        assert "headwater approve CONFIG source-0005" in page
    finally:
        service.pages.stop()


def test_another_token_ends_all_sessions(tmp_path: Path) -> None:
    service = Service(tmp_path, 20)
    try:
        cookie = service.sign_in()
        service.pages.use(service.config)
        assert 'name="csrf"' in service.ask("/session", **cookie)[2]
        service.pages.use(msgspec.structs.replace(service.config, operator_token="another"))
        assert 'name="csrf"' not in service.ask("/session", **cookie)[2]
    finally:
        service.pages.stop()


def test_head_and_other_methods(service: Service) -> None:
    connection = http.client.HTTPConnection(service.host, timeout=30)
    connection.request("HEAD", "/runs/1")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    assert int(answer.headers["content-length"]) > 500
    for method in ("PUT", "DELETE", "POST"):
        connection.request(method, "/", "x")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        answer.read()
    connection.close()


def test_an_audit_of_another_form_is_shown_as_far_as_it_goes(service: Service) -> None:
    state = service.store.source("source-0014")
    assert state is not None
    ended(service.store, "source-0014", NOW, state, kind="audit", exit_status=5, report={"sets": [{}]})
    assert service.ask("/sources/source-0014")[0] == 200
    assert service.ask("/reports/source-0014")[0] == 200


def test_sessions_end() -> None:
    sessions = OperatorSessions("token")
    cookie = f"x=1; headwater_operator={sessions.begin(0.0)}"
    secret = sessions.csrf(cookie, 10.0)
    assert secret
    assert sessions.is_form_of(cookie, secret, 10.0)
    assert sessions.csrf(cookie, 50_000.0) is None
    assert not sessions.is_form_of(None, "", 0.0)
    assert not OperatorSessions(None).knows("")
    assert [is_own_form("none", None, "h"), is_own_form(None, "https://h", "h"), is_own_form(None, None, "h")] == [
        False,
        True,
        False,
    ]


def test_addresses_to_listen_on() -> None:
    assert listen_address("8600") == ("127.0.0.1", 8600)
    assert listen_address(":8600") == ("127.0.0.1", 8600)
    assert listen_address("0.0.0.0:80") == ("0.0.0.0", 80)
    assert listen_address("[::1]:80") == ("::1", 80)
    for wrong in ("", "localhost", "h:70000", "h:-1"):
        with pytest.raises(UsageFault):
            listen_address(wrong)


# -- the report for the operator of a source


def test_the_report_is_one_small_file(service: Service) -> None:
    status, headers, page = service.ask("/reports/source-0008")
    assert status == 200
    assert f"style-src '{style_hash()}'" in headers["content-security-policy"]
    read = Reader(page)
    assert f"<style>{style()}</style>" in page
    assert read.bad == []
    assert not read.elements & {"script", "link", "img", "form"}
    assert "Write times as in 2026-11-12T10:00:00Z" in page
    assert len(page.encode()) < 30_000


def test_the_report_stays_small_however_much_is_wrong(tmp_path: Path) -> None:
    store = store_at(tmp_path)
    state = put(store, "bad", "https://bad.example.org/")
    warnings = tuple((f"RS-DOC-{number}", number, f"{HOSTILE} {'x' * 2_000}") for number in range(5_000))
    run = store.lease("bad", "sync", "w", NOW, 60)
    assert run is not None
    record = RunRecord(
        number=run.number, name="bad", kind="sync", began_at=NOW, ended_at=NOW, exit_status=4, warnings=warnings
    )
    store.end(run, record, state)
    page = report_page(configuration(tmp_path), store, "bad")
    assert page is not None
    assert len(page) <= MOST_OCTETS
    assert b"RS-DOC-4999" in page, "the commonest is shown"


# -- in a browser

AXE = os.environ.get("HEADWATER_AXE")
"""The file axe.min.js of axe-core, where there is one: pages are then judged by its rules as well."""
MEASURE = """<!doctype html><html><body><script>
const pages = %s, axe = %s, found = {};
let left = Object.keys(pages).length;
for (const [name, text] of Object.entries(pages)) {
  const frame = document.createElement("iframe");
  frame.width = 320; frame.height = 800; frame.srcdoc = text;
  frame.onload = async () => {
    const inside = frame.contentWindow;
    found[name] = [inside.document.documentElement.scrollWidth];
    if (axe) {
      inside.eval(axe);
      const judged = await inside.axe.run({iframes: false});
      found[name].push(...judged.violations.map((one) => one.id + ": " + one.nodes[0].html));
    }
    if (--left === 0) document.body.textContent = "RESULT" + btoa(JSON.stringify(found)) + "END";
  };
  document.body.append(frame);
}
</script></body></html>"""


@pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_320_pixels_and_everybody_can_read_them(service: Service, tmp_path: Path, scheme: str) -> None:
    cookie = service.sign_in()
    pages = {}
    for target in (*PAGES, "/session", "/nothing", "/reports/source-0008"):
        page = service.ask(target, **cookie)[2]
        pages[target] = re.sub(r'<link rel="stylesheet"[^>]*>', lambda _: f"<style>{style()}</style>", page)
    axe = "" if AXE is None else Path(AXE).read_text("utf-8")
    texts = tuple(json.dumps(one).replace("</", "<\\/") for one in (pages, axe))
    (tmp_path / "measure.html").write_text(MEASURE % texts, "utf-8")
    command = [
        str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
        *(["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []),
        "--virtual-time-budget=60000", "--dump-dom", (tmp_path / "measure.html").as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    result = re.search(r"RESULT(.*)END", done.stdout)
    assert result, done.stderr
    found = json.loads(base64.b64decode(result[1]))
    assert found.keys() == pages.keys()
    assert {name: one for name, one in found.items() if one[0] > 320 or one[1:]} == {}
