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

from headwater.aggregator.configuration import AggregatorConfig, listen_address
from headwater.aggregator.pages import Pages, credentials
from headwater.aggregator.rendering import style, style_hash
from headwater.aggregator.sqlite_store import SqliteStore
from headwater.aggregator.status import read_fleet
from headwater.aggregator.store import Answer, RunRecord, SourceState
from headwater.aggregator.views import REPORT_OCTETS, report_page
from headwater.errors import HeadwaterError, UsageFault
from tests.aggregator.fleet import HOSTILE, NOW, TOKEN, configuration, ended, fill, put, store_at

CHROMIUM = shutil.which("chromium")
ODD = 'a "b" <c> & d?é'
BASIC = f"Basic {base64.b64encode(f'anybody:{TOKEN}'.encode()).decode()}"
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

    def __init__(self, folder: Path, count: int = 60, token: str | None = TOKEN, **more: Any) -> None:
        self.store: SqliteStore = store_at(folder)
        self.followed = fill(self.store, count)
        put(self.store, ODD, f"javascript:alert(1)//{HOSTILE}", question_text=HOSTILE)
        self.config = msgspec.structs.replace(configuration(folder, self.followed, token=token), **more)
        self.alive = True
        self.faults: list[HeadwaterError] = []
        self.reloads = 0
        self.pages = Pages(
            self.config, self.store, is_alive=lambda: self.alive, reload=self.reload, on_fault=self.faults.append
        )
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

    def reload(self, _config: AggregatorConfig) -> None:
        self.reloads += 1

    @property
    def own(self) -> dict[str, str]:
        """The head of what the operator's browser sends with a form of ours."""
        return {"Origin": f"http://{self.host}", "Authorization": BASIC}


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
        f"default-src 'none'; style-src '{style_hash()}'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    read = Reader(page)
    assert read.bad == []
    assert not read.elements & {"script", "img", "iframe", "object", "embed", "base"}
    assert not {"\u202e", "\x1b"} & set(page)
    assert re.findall(r"<style>(.*?)</style>", page, re.DOTALL) == [style()]
    assert re.findall(r'<link rel="([^"]+)"', page) == ["alternate"]


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
    ways = (
        service.ask(target, Accept="application/json"),
        service.ask(target, Accept="application/json, text/plain, */*"),
        service.ask(f"{target}{mark}format=json"),
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
    source = json.loads(service.ask("/sources/source-0008?format=json")[2])
    assert [(one["rule"], one["count"]) for one in source["defects"]] == [
        ("RS-DOC-18", 240),
        ("AMB-06", 52),
        ("RS-DOC-99", 1),
    ]
    assert source["defects"][1]["advice"].startswith("Write times as in")
    assert source["audit"]["report"]["sets"][0]["same_by_time"] == 2
    run = msgspec.convert(json.loads(service.ask("/runs/1?format=json")[2]), RunRecord)
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
    assert json.loads(service.ask(target, Accept="application/json")[2]) == {
        "error": "there is no such page",
        "status": 404,
    }


def test_requests_have_bounds(service: Service) -> None:
    assert service.ask(f"/?words={'a' * 5_000}")[0] == 414
    assert service.ask(f"/?{'&'.join(f'a{number}=1' for number in range(30))}")[0] == 400
    assert service.ask("/sources/source-0005", {"action": "x" * 40_000}, **service.own)[0] == 413


# -- what an operator does


def state_of(service: Service, name: str) -> SourceState:
    state = service.store.source(name)
    assert state is not None
    return state


def test_an_operator_acts_by_the_forms_of_a_page(service: Service) -> None:
    name = "source-0025"
    fields = Reader(service.ask(f"/sources/{name}")[2]).fields
    status, headers, _ = service.ask(f"/sources/{name}", {"action": "approve", **fields}, **service.own)
    assert (status, headers["location"]) == (303, name)
    assert (state_of(service, name).answer, state_of(service, name).is_wanted_now) == (Answer.APPROVED, True)
    page = service.ask(f"/sources/{name}")[2]
    assert "You have approved this." in page
    assert "as soon as there is room" in page
    for action, is_paused in (("pause", True), ("resume", False)):
        assert service.ask(f"/sources/{name}", {"action": action}, **service.own)[0] == 303
        assert state_of(service, name).is_paused is is_paused


def test_an_answer_to_an_older_question_is_refused(service: Service) -> None:
    """The run that ended while the operator read the page asks for more."""
    name = "source-0045"
    fields = Reader(service.ask(f"/sources/{name}")[2]).fields
    service.store.change(name, question_text=f"900 of 1,000 files would be deleted: {HOSTILE}")
    for form in (fields, {"asked": ""}):
        status, _, page = service.ask(f"/sources/{name}", {"action": "approve", **form}, **service.own)
        assert status == 409
        assert "the source asks something else by now" in page.lower()
    assert state_of(service, name).answer is None
    fields = Reader(service.ask(f"/sources/{name}")[2]).fields
    assert service.ask(f"/sources/{name}", {"action": "refuse", **fields}, **service.own)[0] == 303
    assert state_of(service, name).answer is Answer.REFUSED


@pytest.mark.parametrize(
    ("action", "headers", "status"),
    [
        ("run", {}, 401),
        ("run", {"Origin": "own"}, 401),
        ("run", {"Authorization": "Bearer wrong", "Origin": "own"}, 401),
        ("run", {"Authorization": "Basic ???", "Origin": "own"}, 401),
        ("run", {"Authorization": f"Digest {TOKEN}", "Origin": "own"}, 401),
        ("run", {"Authorization": BASIC}, 403),
        ("run", {"Authorization": BASIC, "Origin": "http://elsewhere.example.org"}, 403),
        ("run", {"Authorization": BASIC, "Origin": "null"}, 403),
        ("run", {"Authorization": BASIC, "Sec-Fetch-Site": "cross-site", "Origin": "own"}, 403),
        ("run", {"Authorization": BASIC, "Sec-Fetch-Site": "none", "Origin": "own"}, 403),
        ("fly", {"Authorization": BASIC, "Origin": "own"}, 400),
        ("approve", {"Authorization": BASIC, "Origin": "own"}, 409),
        ("run", {"Authorization": BASIC, "Origin": "own"}, 303),
        ("run", {"Authorization": BASIC, "Sec-Fetch-Site": "same-origin"}, 303),
    ],
)
def test_nobody_else_acts(service: Service, action: str, headers: dict[str, str], status: int) -> None:
    name = "source-0010"
    service.store.change(name, is_wanted_now=False)
    named = {key: service.own["Origin"] if value == "own" else value for key, value in headers.items()}
    found, told, _ = service.ask(f"/sources/{name}", {"action": action}, **named)
    assert found == status
    assert told.get("www-authenticate", "").startswith("Basic ") is (status == 401)
    assert state_of(service, name).is_wanted_now is (status == 303)


def test_a_program_names_the_token_and_what_it_answers(tmp_path: Path) -> None:
    service = Service(tmp_path, 20, token="plain")
    try:
        head = {"Authorization": "Bearer plain", "Accept": "application/json"}
        asked = json.loads(service.ask("/sources/source-0005", **head)[2])["source"]["question_text"]
        status, _, body = service.ask("/sources/source-0005", {"action": "refuse", "asked": asked}, **head)
        assert status == 200
        assert json.loads(body)["source"]["answer"] == "refused"
        status, _, body = service.ask("/sources/source-0005", {"action": "approve"}, **head)  # whatever it asks now
        assert (status, json.loads(body)["source"]["answer"]) == (200, "approved")
        service.pages.use(msgspec.structs.replace(service.config, operator_token="another"))
        assert service.ask("/sources/source-0005", {"action": "run"}, **head)[0] == 401
    finally:
        service.pages.stop()


def test_without_a_token_nobody_acts(tmp_path: Path) -> None:
    service = Service(tmp_path, 20, token=None)
    try:
        for own in (service.own, {"Authorization": "Bearer "}, {"Authorization": "Basic Og=="}):
            assert service.ask("/sources/source-0005", {"action": "run"}, **own)[0] == 403
        page = service.ask("/sources/source-0005")[2]
        assert "<form" not in page
        assert "headwater approve CONFIG source-0005" in page
    finally:
        service.pages.stop()


def test_who_reads_from_elsewhere_needs_the_token(tmp_path: Path) -> None:
    """Where the service listens for other machines, only its health is told to everybody."""
    service = Service(tmp_path, 20, listen="0.0.0.0:0")
    try:
        for target in ("/", "/sources/source-0005", "/metrics", "/reports/source-0008", "/nothing"):
            assert service.ask(target)[0] == 401
            assert service.ask(target, Authorization="Bearer wrong")[0] == 401
        assert service.ask("/", Authorization=BASIC)[0] == 200
        assert service.ask("/healthz")[0] == 200
        service.pages.use(msgspec.structs.replace(service.config, operator_token=None))
        assert service.ask("/", Authorization=BASIC)[0] == 403
    finally:
        service.pages.stop()


def test_only_names_of_ours_are_answered(tmp_path: Path) -> None:
    """A page whose name was made to lead to this machine reads nothing by its reader's browser."""
    service = Service(tmp_path, 20, base_url="https://Pages.example.org/all/")
    try:
        port = service.host.rpartition(":")[2]
        for host in ("localhost", f"LOCALHOST:{port}", "127.0.0.1", f"[::1]:{port}", "192.0.2.7", "pages.example.org"):
            assert service.ask("/", Host=host)[0] == 200, host
        for host in (f"evil.example.org:{port}", "localhost.evil.example.org", "", "1.2.3", "example.org"):
            assert service.ask("/", Host=host)[0] == 421, host
            assert service.ask("/sources/source-0005", {"action": "run"}, Host=host, **service.own)[0] == 421
    finally:
        service.pages.stop()


def test_the_operator_lets_the_service_read_its_file_again(tmp_path: Path) -> None:
    service = Service(tmp_path, 2)
    try:
        head = {"Authorization": BASIC, "Sec-Fetch-Site": "same-origin", "Accept": "application/json"}
        service.config.path.write_text('state = "x"\nnonsense = 2\n')
        status, _, body = service.ask("/reload", {}, **head)
        assert (status, service.reloads) == (409, 0)
        assert "unknown key: nonsense" in json.loads(body)["error"]
        service.config.path.write_text('state = "x"\n')
        assert service.ask("/reload", {})[0] == 401
        status, _, body = service.ask("/reload", {}, **head)
        assert (status, json.loads(body), service.reloads) == (200, {"done": "reload"}, 1)
    finally:
        service.pages.stop()


def test_what_was_refused_is_shown_and_asked_again(tmp_path: Path) -> None:
    service = Service(tmp_path, 2)
    try:
        put(service.store, "gone", "https://gone.example.org/")
        service.store.change("source-0001", refused_text="30 of 40 files would be deleted: a")
        page = service.ask("/sources/source-0001")[2]
        assert "You have refused:</strong> 30 of 40 files" in page
        form = {"action": "approve", "asked": "30 of 40 files would be deleted: a"}
        assert service.ask("/sources/source-0001", {**form, "asked": "another"}, **service.own)[0] == 409
        assert service.ask("/sources/source-0001", form, **service.own)[0] == 303
        state = service.store.source("source-0001")
        assert state is not None
        assert (state.refused_text, state.is_wanted_now, state.answer) == ("", True, None)
        assert service.ask("/sources/gone", {"action": "run"}, **service.own)[0] == 409
    finally:
        service.pages.stop()


def test_head_and_other_methods(service: Service) -> None:
    connection = http.client.HTTPConnection(service.host, timeout=30)
    connection.request("HEAD", "/runs/1")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    assert int(answer.headers["content-length"]) > 500
    for method in ("PUT", "DELETE", "OPTIONS"):
        connection.request(method, "/", "x")
        answer = connection.getresponse()
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD, POST")
        answer.read()
    connection.close()


def test_an_audit_of_another_form_is_shown_as_far_as_it_goes(service: Service) -> None:
    state = service.store.source("source-0014")
    assert state is not None
    ended(service.store, "source-0014", NOW, state, kind="audit", exit_status=5, report={"sets": [{}]})
    assert service.ask("/sources/source-0014")[0] == 200
    assert service.ask("/reports/source-0014")[0] == 200


def test_credentials_of_a_request() -> None:
    basic = "Basic " + base64.b64encode("me:a:ü".encode()).decode()
    assert credentials(basic.encode()) == ("basic", "a:ü".encode())
    assert credentials(b"BEARER  x ") == ("bearer", b"x")
    for none in (None, b"", b"Basic", b"Basic @@", b"Basic YQ", b"Digest x"):
        assert credentials(none)[1] == b""


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
    config = configuration(tmp_path)
    page = report_page(config, store, read_fleet(config, store), "bad")
    assert page is not None
    assert len(page) <= REPORT_OCTETS
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
    pages = {target: service.ask(target)[2] for target in (*PAGES, "/nothing", "/reports/source-0008")}
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
