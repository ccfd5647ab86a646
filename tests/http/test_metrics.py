"""Figures for Prometheus: the text format, what is counted, what the page says of a source, and who gets it."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from pathlib import Path

import pytest

import headwater
from headwater.catalog.interface import SetState
from headwater.cli.server_log import LogLine
from headwater.http import metrics
from headwater.http.app import home_page
from headwater.http.metrics import (
    BOUNDS,
    FRESH_SECONDS,
    Family,
    MetricsPage,
    RequestCounters,
    SharedCounters,
    exposition,
    kind_of,
    labels,
)
from headwater.http.responses import AccessRecord
from headwater.progress import Notice
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.health import report
from headwater.source.set_health import Publication
from headwater.source.source import Source
from tests.support.serving import Process, face, request
from tests.support.waiting import until

MANUAL = Path(__file__).parents[2] / "docs" / "reference" / "outputs.md"
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\})? (\+Inf|-?[0-9.e+-]+)')


def read(page: bytes) -> dict[str, float]:
    """Every sample, by its name and labels as they stand; fails on whatever is not the text format."""
    found: dict[str, float] = {}
    kinds: dict[str, str] = {}
    text = page.decode()
    assert text.endswith("\n")
    for line in text.splitlines():
        if line.startswith("# "):
            _, word, name, rest = line.split(" ", 3)
            assert word in ("HELP", "TYPE")
            if word == "TYPE":
                assert rest in ("gauge", "counter", "histogram")
                assert name not in kinds
                kinds[name] = rest
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, line
        family = sample[1] if sample[1] in kinds else re.sub(r"_(bucket|sum|count)\Z", "", sample[1])
        assert family in kinds
        assert (kinds[family] == "counter") == family.endswith("_total")
        key = line.rpartition(" ")[0]
        assert key not in found
        found[key] = float(sample[3])
    return found


def answered(
    target: str = "/s/resources/a", status: int = 200, octets: int = 10, seconds: float = 0.003
) -> AccessRecord:
    return AccessRecord("::1", "GET", target, status, octets, seconds, True)


def test_the_text_format_escapes_and_adds_up() -> None:
    page = exposition(
        [
            Family("one_total", "counter", "A \\ and\na line.", [(labels(set='a"b\\c\nd'), 3), (labels(set="é"), 0.5)]),
            Family("none", "gauge", "Nothing.", []),
        ]
    )
    assert page.decode() == (
        "# HELP one_total A \\\\ and\\na line.\n"
        "# TYPE one_total counter\n"
        'one_total{set="a\\"b\\\\c\\nd"} 3\n'
        'one_total{set="é"} 0.5\n'
    )
    read(page)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("/", "home"),
        ("/health", "health"),
        ("/base/health?x=1", "health"),
        ("/metrics", "metrics"),
        ("/robots.txt", "document"),
        ("/.well-known/resourcesync", "document"),
        ("/s/changelist/open.xml", "document"),
        ("/s/resources/list.xml", "resource"),
        ("/s/resources/", "resource"),
        ("/nothing", "other"),
        ("", "other"),
        ("/x?y=/resources/z", "other"),
    ],
)
def test_requests_are_of_few_kinds(target: str, kind: str) -> None:
    assert kind_of(target) == kind


def test_a_strange_target_makes_no_new_kind() -> None:
    counts = RequestCounters()
    for number in range(1_000):
        counts.served(answered(f"/{number}/\N{SNOWMAN}{number}", 404))
    kinds = {key for key in counts.everybodys() if key.startswith("headwater_requests_total")}
    assert kinds == {'headwater_requests_total{kind="other",status="404"}'}


def test_one_build_is_told_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The version itself stays what it is: pages and alerts may compare it."""
    monkeypatch.setattr(metrics, "build", lambda: "20261130.1a2b3c4d5e")
    config = SourceConfig(state=str(tmp_path / "s"), sets=(SetConfig(files=str(tmp_path / "f")),), base_url="http://e")
    with Source(config) as source:
        page = MetricsPage(source, RequestCounters()).page().decode()
    assert f'headwater_build_info{{version="{headwater.__version__}",build="20261130.1a2b3c4d5e"}} 1' in page


def test_a_clock_that_was_set_back_is_told(tmp_path: Path) -> None:
    """In log, health and metrics: times of changes go on behind the last one until the clock is there."""
    (tmp_path / "files").mkdir()
    now, notices = [dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)], list[Notice]()

    def hear(event: object) -> None:
        notices.extend([event] if isinstance(event, Notice) else [])

    config = SourceConfig(
        state=str(tmp_path / "state"), sets=(SetConfig(name="s", files=str(tmp_path / "files")),), base_url="http://e"
    )
    with Source(config, clock=lambda: now[0], listener=hear) as source:
        for number in range(2):
            (tmp_path / "files" / str(number)).write_text("x")
            source.run_once()
            if not number:
                assert [one.rule for one in notices] == []
                now[0] = dt.datetime.now(dt.UTC)
        (notice,) = [one for one in notices if one.rule == "HW-PUB-19"]
        assert re.search(r"get times (2 h 0|1 h 59|119) min.* ahead of the clock", notice.message)
        assert notice.set_name == "s"
        (one,) = json.loads(report(source)[1])["sets"]
        page = read(MetricsPage(source, RequestCounters()).page())
        for told in (one["ahead_seconds"], page['headwater_set_ahead_seconds{set="s"}']):
            assert 7_000 < told < 7_300


@pytest.fixture
def source_folder(tmp_path: Path) -> Path:
    (tmp_path / "files").mkdir()
    for number in range(3):
        (tmp_path / "files" / f"{number}.txt").write_text("x" * 100)
    return tmp_path


def test_the_page_says_how_sets_and_requests_stand(source_folder: Path) -> None:
    counts = RequestCounters()
    with face(source_folder / "files", source_folder / "state") as running:
        page = MetricsPage(running.source, counts)
        began = time.monotonic()
        counts.served(answered(seconds=BOUNDS[0]))
        counts.served(answered(seconds=99.0))
        counts.served(answered(status=304, octets=0))
        counts.served(answered("/s/resourcelist.xml"))
        counts.fault(OSError())
        found = read(page.page())
        assert found['headwater_set_resources{set="files"}'] == 3
        assert found['headwater_set_ready{set="files"}'] == 1
        assert found['headwater_set_stale_pages{set="files"}'] == 0
        assert found['headwater_set_last_refresh_timestamp_seconds{set="files"}'] > 1.7e9
        assert found['headwater_requests_total{kind="resource",status="200"}'] == 2
        assert found['headwater_requests_total{kind="resource",status="304"}'] == 1
        assert found['headwater_response_octets_total{kind="resource"}'] == 20
        assert found['headwater_request_seconds_bucket{kind="resource",le="0.0001"}'] == 1
        assert found['headwater_request_seconds_bucket{kind="resource",le="60.0"}'] == 2
        assert found['headwater_request_seconds_bucket{kind="resource",le="+Inf"}'] == 3
        assert found['headwater_request_seconds_count{kind="resource"}'] == 3
        assert found["headwater_request_faults_total"] == 1
        assert found["process_resident_memory_bytes"] > 10_000_000
        assert found["process_cpu_seconds_total"] > 0
        counts.served(answered())
        again = read(page.page())
        if time.monotonic() - began < FRESH_SECONDS:  # until then it is not made again
            assert again == found
        until(lambda: page.page() and read(page.page()) != found, what="a newer page")


def test_the_page_says_of_which_sets_deletions_are_held_back(source_folder: Path) -> None:
    files, state = source_folder / "files", str(source_folder / "state")
    held = 'headwater_set_held_back{set="files"}'
    with Process("--files", str(files), "--port", "0", "--state", state, "--metrics") as process:
        url = process.ready()
        assert read(request(url, "/metrics").body)[held] == 0
        files.rename(source_folder / "unmounted")
        until(lambda: read(request(url, "/metrics").body)[held] == 1, what="the deletions that are held back")
        answer = request(url, "/health")
        assert (answer.status, json.loads(answer.body)["well"]) == (200, False)  # what was published is served


def test_it_is_there_when_it_is_switched_on(source_folder: Path) -> None:
    files, state = str(source_folder / "files"), str(source_folder / "state")
    with Process("--files", files, "--port", "0", "--state", state, "--metrics") as process:
        url = process.ready()
        for _ in range(3):
            request(url, "/files/resourcelist.xml")
        request(url, "/files/resources/nothing")
        answer = request(url, "/metrics")
        assert answer.status == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        found = read(answer.body)
        assert found['headwater_requests_total{kind="document",status="200"}'] >= 3
        assert found['headwater_requests_total{kind="resource",status="404"}'] == 1
        passes = 'headwater_set_publications_total{set="files"}'
        until(lambda: read(request(url, "/metrics").body)[passes] == 1, what="the publication in the figures")
        assert found['headwater_set_failures{set="files"}'] == 0
        manual = MANUAL.read_text("utf-8")
        names = {re.sub(r"(_bucket|_sum|_count)?(\{.*)?\Z", "", key) for key in found}
        assert [name for name in sorted(names) if f"`{name}`" not in manual] == []


def test_it_is_not_there_otherwise(source_folder: Path) -> None:
    with face(source_folder / "files", source_folder / "state") as running:
        assert running.get("/metrics").status == 404


def test_the_manual_lists_the_keys_of_the_log() -> None:
    manual = MANUAL.read_text("utf-8")
    assert [key for key in LogLine.__struct_fields__ if f"`{key}`" not in manual] == []


def test_a_source_that_is_not_followed_has_a_page_too(source_folder: Path) -> None:
    from headwater.source.config import SetConfig, SourceConfig

    config = SourceConfig(
        state=str(source_folder / "st"),
        base_url="http://example.org",
        sets=(SetConfig(files=str(source_folder / "files")),),
    )
    with Source(config) as source:
        found = read(MetricsPage(source, RequestCounters()).page())
        assert found['headwater_set_ready{set="files"}'] == 0
        assert not any(key.startswith("headwater_set_resources") for key in found)


def test_of_thousands_of_sets_none_is_asked_for_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A set that was never published is no reason to ask the catalog, which may be beyond a network, for each."""
    names = [f"s{number}" for number in range(30)]
    sets = tuple(SetConfig(name=name, feed="events", token="0123456789abcdef") for name in names)
    config = SourceConfig(state=str(tmp_path / "state"), base_url="http://example.org", sets=sets)
    with Source(config) as source:
        for name in names:
            source.catalog.create(name)
            source.catalog.open(name, dt.datetime.now(dt.UTC))
        asked: list[str] = []
        state = source.catalog.state

        def counted(name: str) -> SetState:
            asked.append(name)
            return state(name)

        monkeypatch.setattr(source.catalog, "state", counted)
        assert read(MetricsPage(source, RequestCounters()).page())['headwater_set_ready{set="s7"}'] == 0
        assert report(source)[0] == 503
        assert b"s29" in home_page(source)
    assert len(asked) <= 1  # whether the source as a whole is there: the first set that is not says so


def test_processes_on_one_socket_add_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.http.metrics.WRITE_SECONDS", 3_600.0)
    counts = []
    for pid in (11, 22):
        monkeypatch.setattr("headwater.http.metrics.os.getpid", lambda pid=pid: pid)
        counts.append(RequestCounters(SharedCounters(tmp_path)))
    one, other = counts
    one.served(answered(octets=5))
    other.served(answered(octets=7, seconds=99.0))
    other.served(answered(status=404))
    other.published(Publication(name="s", is_first=True, resources=1, first=1, last=0))
    (tmp_path / "33.json").write_bytes(b"cut o")
    total = one.everybodys()
    assert total['headwater_response_octets_total{kind="resource"}'] == 12
    assert total['headwater_request_seconds_sum{kind="resource"}'] == 99.003
    assert total['headwater_requests_total{kind="resource",status="200"}'] == 2
    unsaid = 'headwater_requests_total{kind="resource",status="404"}'
    assert unsaid not in total  # said when it is due
    everything = other.everybodys()
    assert everything[unsaid] == everything['headwater_set_publications_total{set="s"}'] == 1


def test_whichever_process_is_asked_says_the_same(source_folder: Path) -> None:
    files, state = str(source_folder / "files"), str(source_folder / "state")
    with Process("--files", files, "--port", "0", "--state", state, "--metrics", "--workers", "2") as process:
        url = process.ready()
        for _ in range(40):
            assert request(url, "/files/resources/1.txt").status == 200

        def told() -> float:
            request(url, "/files/resources/1.txt")  # a process that is asked tells the others
            return read(request(url, "/metrics").body)['headwater_requests_total{kind="resource",status="200"}']

        until(lambda: min(told() for _ in range(8)) >= 40, what="figures of all processes")
