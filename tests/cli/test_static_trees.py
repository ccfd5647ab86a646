"""`headwater publish CONFIG` with `to`: the sets of a configuration as files for any web server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli import run
from tests.interop.programs import web_server
from tests.notify.subscriber import Answer, Came, Subscriber
from tests.source.replay import Tree, files
from tests.support.copying import DONE, check, go
from tests.support.copying import tree as copied
from tests.support.documents import read_bytes
from tests.support.waiting import settle, until

BASE = "https://data.example.org/rs"
USAGE = 2
REPORTS = """
[[set]]
name = "reports"
files = "reports"
title = "Technical reports"
describedby = "https://data.example.org/about"
sitemap = true
classic = true
dump = true
archive = true
retention_seconds = "30 days"
[[set.described]]
content = "{stem}.pdf"
record = "{stem}.xml"
[[set.links]]
rel = "collection"
href = "https://data.example.org/collection"
"""
DATA = '\n[[set]]\nname = "data"\nfiles = "data"\nresource_base = "https://files.example.org/data"\n'


class Configured:
    """A configuration with two folders, and what comes of it in `out`."""

    def __init__(self, base: Path) -> None:
        self.base, self.file, self.out = base, base / "source.toml", base / "out"
        for name in ("reports/a.pdf", "reports/a.xml", "data/b.csv"):
            self.put(name, f"content of {name}")
        self.write()

    def put(self, name: str, text: str) -> None:
        (self.base / name).parent.mkdir(parents=True, exist_ok=True)
        (self.base / name).write_text(text)

    def write(self, sets: str = REPORTS + DATA, more: str = 'to = "out"\n', base_url: str = BASE) -> None:
        self.file.write_text(f'{more}base_url = "{base_url}"\ntitle = "Example"\n{sets}')

    def sitemaps(self) -> list[str]:
        lines = (self.out / "robots.txt").read_text().splitlines()
        return [one.removeprefix("Sitemap: ") for one in lines if one.startswith("Sitemap: ")]

    def tree(self, name: str, base_url: str = BASE) -> Tree:
        return Tree(self.out, base_url, name)


@pytest.fixture
def made(tmp_path: Path) -> Configured:
    return Configured(tmp_path)


@pytest.fixture
def hub() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


def test_all_that_a_configuration_says_of_its_sets_is_in_the_tree(
    made: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["publish", str(made.file), "--dry-run", "--json"]) == 0
    assert [one["created"] for one in json.loads(capsys.readouterr().out)["sets"]] == [2, 1]
    assert not made.out.exists()
    assert run(["publish", str(made.file), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["set"], one["resources"]) for one in told["sets"]] == [("reports", 2), ("data", 1)]
    reports, data = made.tree("reports"), made.tree("data")
    assert reports.replayed() == reports.truth(made.base / "reports")
    assert reports.resources() == files(made.base / "reports")
    assert os.path.samefile(made.out / "reports/resources/a.pdf", made.base / "reports/a.pdf")
    pdf, xml = reports.entries("reports/resourcelist.xml")
    assert [(one.rel, one.href) for one in pdf.links] == [
        ("collection", "https://data.example.org/collection"),
        ("describedby", xml.loc),
    ]
    assert [one.loc for one in data.entries("data/resourcelist.xml")] == ["https://files.example.org/data/b.csv"]
    assert not (made.out / "data/resources").exists()
    described = [one.href for one in reports.read("reports/capabilitylist.xml")[0].links if one.rel == "describedby"]
    assert described == ["https://data.example.org/about"]
    for name in ("sitemap.xml", "classic/capabilitylist.xml", "resourcedump.xml", "archive/resourcelist.xml"):
        assert (made.out / "reports" / name).is_file(), name
    offered = (made.out / "reports/capabilitylist.xml").read_text()
    assert f"{BASE}/reports/dump" not in offered, "nobody makes packages on demand"
    assert [one.loc for one in reports.entries(".well-known/resourcesync")] == [
        f"{BASE}/data/capabilitylist.xml",
        f"{BASE}/reports/capabilitylist.xml",
        f"{BASE}/reports/classic/capabilitylist.xml",
    ]
    assert run(["status", str(made.file)]) == 0
    assert "data" in capsys.readouterr().out


def test_robots_txt_names_the_plain_sitemaps_alone(made: Configured) -> None:
    assert run(["publish", str(made.file), "--quiet"]) == 0
    lists = [f"{BASE}/data/resourcelist.xml", f"{BASE}/reports/resourcelist.xml", f"{BASE}/reports/sitemap.xml"]
    assert sorted(made.sitemaps()) == lists
    made.write(more='to = "out"\nrobots = "sitemaps"\n')
    assert run(["publish", str(made.file), "--quiet"]) == 0
    assert made.sitemaps() == [f"{BASE}/reports/sitemap.xml"]


def test_each_run_does_what_is_new_in_any_set(made: Configured, capsys: pytest.CaptureFixture[str]) -> None:
    settle()
    assert run(["publish", str(made.file), "--quiet"]) == 0
    assert capsys.readouterr().out == ""
    assert run(["publish", str(made.file), "--json"]) == 0
    assert [one["documents_written"] for one in json.loads(capsys.readouterr().out)["sets"]] == [[], []]
    made.put("data/new.csv", "1,2")
    (made.base / "reports/a.xml").unlink()
    assert run(["publish", str(made.file)]) == 0
    assert "created 1, updated 0, deleted 0, unchanged 1" in capsys.readouterr().out
    assert [one.change.value for one in made.tree("reports").changes() if one.change] == ["deleted"]
    assert made.tree("reports").resources() == files(made.base / "reports")


def test_a_set_that_has_left_the_configuration_is_told_of(made: Configured, capsys: pytest.CaptureFixture[str]) -> None:
    said = (
        "not in the configuration, and still public: reports. To remove: `headwater catalog drop CONFIG --set reports`"
    )
    for told in (False, True):
        made.write(DATA if told else REPORTS + DATA)
        for command in (["publish"], ["status"]):
            assert run([*command, str(made.file)]) == 0
            assert (said in capsys.readouterr().out) is told


def test_a_set_that_has_left_the_configuration_is_dropped_from_its_tree(made: Configured) -> None:
    assert run(["publish", str(made.file), "--quiet"]) == 0
    made.write(DATA)
    assert run(["catalog", "drop", str(made.file), "--set", "reports"]) == 0
    assert not (made.out / "reports").exists()
    assert made.sitemaps() == [f"{BASE}/data/resourcelist.xml"]
    assert run(["publish", str(made.file), "--quiet"]) == 0
    assert made.sitemaps() == [f"{BASE}/data/resourcelist.xml"]


def test_a_set_of_a_configuration_is_published_as_a_folder_by_itself(made: Configured) -> None:
    made.write('[[set]]\nname = "data"\nfiles = "data"\n')
    assert run(["publish", str(made.file), "--quiet"]) == 0
    other = made.base / "other"
    options = ["--files", str(made.base / "data"), "--set", "data", "--to", str(other), "--base-url", BASE]
    assert run(["publish", *options, "--quiet"]) == 0
    assert sorted(files(made.out)) == sorted(files(other))
    assert made.tree("data").listed() == Tree(other, BASE, "data").listed()
    told = (made.out / ".headwater/nginx.conf").read_text()
    assert told.replace(f"{made.out}/", f"{other}/") == (other / ".headwater/nginx.conf").read_text()


def test_options_have_priority_over_the_file(made: Configured) -> None:
    other, state = made.base / "other", made.base / "state"
    options = ["--to", str(other), "--base-url", "https://other.example", "--resources", "copy"]
    assert run(["publish", str(made.file), *options, "--quiet"]) == 0
    assert not made.out.exists()
    assert (other / ".headwater/catalog.sqlite").is_file(), "the state is in the folder that is written"
    assert (other / "reports/resources/a.pdf").stat().st_nlink == 1
    assert "https://other.example/reports" in (other / "robots.txt").read_text()
    made.write(more=f'state = "{state}"\n')
    assert run(["publish", str(made.file), "--to", str(made.out), "--resources", "none", "--quiet"]) == 0
    assert (state / "nginx.conf").is_file()
    assert not (made.out / "reports/resources").exists()
    assert not (made.out / ".headwater").exists()


@pytest.mark.parametrize(
    ("more", "of_set", "said"),
    [
        ('to = "out"\n', "versions = true\n", "versions does not go with a static tree"),
        ('to = "out"\n', 'variants = ["pdf", "xml"]\n', "variants does not go with a static tree"),
        ('to = "out"\ndocuments = "d"\n', "", "documents does not go with a static tree"),
        ('to = "out"\n[hub]\nlisten = "127.0.0.1:0"\n', "", "[hub] does not go with a static tree"),
        ('state = "s"\nresources = "copy"\n', "", "there is no `to`"),
        ('to = "out"\nresources = "move"\n', "", "resources: invalid"),
        ('to = "reports"\n', "", "the folder is itself the output"),
        ('to = "copy"\n', "", "is a copy that `headwater sync` keeps"),
    ],
)
def test_what_cannot_be_in_a_static_tree_is_said_at_once(
    made: Configured, capsys: pytest.CaptureFixture[str], more: str, of_set: str, said: str
) -> None:
    made.put("copy/.headwater/state.sqlite", "")
    tables = more.partition("[")
    made.file.write_text(
        f'{tables[0]}base_url = "{BASE}"\n{tables[1]}{tables[2]}[[set]]\nname = "a"\nfiles = "reports"\n{of_set}'
    )
    assert run(["publish", str(made.file)]) == USAGE
    assert said in capsys.readouterr().err
    assert not made.out.exists()


def test_a_static_tree_is_not_served_by_us(made: Configured, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", str(made.file)]) == USAGE
    assert "headwater publish CONFIG" in capsys.readouterr().err


def test_a_copy_and_a_static_tree_do_not_lie_in_each_other(
    made: Configured, capsys: pytest.CaptureFixture[str]
) -> None:
    made.write('[[set]]\nname = "a"\ncopy = "out/copy"\n')
    assert run(["publish", str(made.file)]) == USAGE
    assert "the copy and the output lie in each other" in capsys.readouterr().err


def test_a_copy_that_is_yet_to_come_holds_up_no_other_set(made: Configured, capsys: pytest.CaptureFixture[str]) -> None:
    with web_server(made.base / "origin") as url:
        publish = ["publish", "--files", str(made.base / "data"), "--to", str(made.base / "origin"), "--base-url", url]
        made.write('[[set]]\nname = "reports"\nfiles = "reports"\n[[set]]\nname = "files"\ncopy = "copy"\n')
        assert run(["publish", str(made.file)]) == 0
        assert "1 set left to" in capsys.readouterr().out
        assert run([*publish, "--quiet"]) == 0
        assert go(url, made.base / "copy").status == DONE
    assert run(["publish", str(made.file), "--quiet"]) == 0
    assert made.tree("files").resources() == files(made.base / "data")
    assert [one.href for one in made.tree("files").entries("files/resourcelist.xml")[0].links] == [
        f"{url}/files/resources/b.csv"
    ]


def test_records_that_were_announced_are_in_the_tree(made: Configured) -> None:
    made.write('[[set]]\nname = "a"\nfeed = "events"\nresource_base = "https://files.example.org/a"\n')
    assert run(["publish", str(made.file), "--quiet"]) == 0
    made.put("events", '{"path": "x.pdf", "length": 1, "type": "application/x-x"}\n')
    assert run(["ingest", "events", str(made.base / "events"), "--config", str(made.file), "--set", "a"]) == 0
    assert run(["publish", str(made.file), "--quiet"]) == 0
    (one,) = made.tree("a").entries("a/resourcelist.xml")
    assert (one.loc, one.type) == ("https://files.example.org/a/x.pdf", "application/x-x")


def test_a_watched_configuration_is_followed_into_its_tree_and_copied(made: Configured) -> None:
    made.out.mkdir()
    with web_server(made.out) as url:
        made.write(REPORTS, base_url=url)
        command = [sys.executable, "-m", "headwater", "publish", str(made.file), "--watch", "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["event"] == "watching"
            until((made.out / ".well-known/resourcesync").exists)
            made.put("reports/new.pdf", "new")
            until(lambda: f"{url}/reports/resources/new.pdf" in made.tree("reports", url).replayed())
            assert (made.out / ".headwater/nginx.conf").is_file()
            process.send_signal(signal.SIGTERM)
            assert process.wait() == 0
        dest = made.base / "dest"
        assert go(url, dest).status == DONE
        assert copied(dest) == {one.name: one.read_bytes() for one in (made.base / "reports").iterdir()}
        assert check(url, dest).verdict == "in sync"


def test_one_run_tells_the_hubs_what_is_new(made: Configured, hub: Subscriber) -> None:
    """The newest notifications lie at their topics: empty before the first, and there before the hub is told."""
    at_topic = list[bytes]()
    topic = made.out / "reports/changenotification.xml"

    def take(_came: Came) -> Answer:
        at_topic.append(topic.read_bytes())
        return Answer()

    hub.answers["/hub"] = take
    tables = f'to = "out"\nbase_url = "{BASE}"\n[notify]\nhubs = ["{hub.url}/hub"]\nframework_seconds = 60\n'
    made.file.write_text(tables + REPORTS)
    assert run(["publish", str(made.file), "--quiet"]) == 0
    assert topic.read_bytes() == b""
    assert b"framework" in (made.out / "reports/frameworknotification.xml").read_bytes()
    assert f'rel="hub" href="{hub.url}/hub"' in (made.out / "reports/capabilitylist.xml").read_text()
    made.put("reports/new.pdf", "new")
    assert run(["publish", str(made.file), "--quiet"]) == 0
    (told,) = [one.body for one in hub.deliveries("/hub") if b'"change-notification"' in one.body]
    assert [one.loc for one in read_bytes(told)[1]] == [f"{BASE}/reports/resources/new.pdf"]
    assert topic.read_bytes() == told
    assert told in at_topic


def test_a_hub_that_is_down_is_told_by_the_next_run(
    made: Configured, hub: Subscriber, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headwater.source.source._HUB_SECONDS", 1.0)
    tables = f'to = "out"\nbase_url = "{BASE}"\n[notify]\nhubs = ["{hub.url}/hub"]\n'
    made.file.write_text(tables + REPORTS)
    assert run(["publish", str(made.file), "--quiet"]) == 0
    made.put("reports/new.pdf", "new")
    hub.answers["/hub"] = lambda _came: Answer(status=503)
    assert run(["publish", str(made.file)]) == 0
    assert "wait, and are sent again" in capsys.readouterr().err
    hub.came.clear()
    del hub.answers["/hub"]
    assert run(["publish", str(made.file), "--quiet"]) == 0
    assert b"new.pdf" in b"".join(one.body for one in hub.deliveries("/hub"))
