"""`headwater catalog drop`: a set leaves its source with all that was kept of it, and copies are told what to do."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from headwater.catalog.sqlite_catalog import SqliteCatalog
from headwater.errors import Exit
from headwater.source.leadership import Locked, StateLock
from tests.interop.programs import web_server
from tests.support.program import Done, run_here

BASE = "https://example.org/data"


def headwater(*args: object, status: int = 0) -> Done:
    done = run_here(*args)
    assert done.returncode == status, (done.stdout, done.stderr.decode())
    return done


def told(*args: object, status: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(headwater(*args, "--json", status=status).stdout)
    return found


def below(folder: Path) -> set[str]:
    """The files of a tree but for its state."""
    return {
        str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file() and ".headwater" not in one.parts
    }


class Trees:
    """Two folders that are published into one tree, and a copy of it."""

    def __init__(self, base: Path) -> None:
        self.base, self.out, self.copy = base, base / "out", base / "copy"
        for name in ("one", "two"):
            (base / name / "sub").mkdir(parents=True)
            (base / name / "sub" / "é.txt").write_text(name)

    def publish(self, name: str, url: str = BASE, *more: object) -> None:
        where = ("--files", self.base / name, "--to", self.out, "--base-url", url, "--set", name)
        headwater("publish", *where, "--quiet", *more)


@pytest.fixture
def trees(tmp_path: Path) -> Trees:
    return Trees(tmp_path)


@pytest.mark.parametrize("mode", ["link", "copy"])
def test_a_set_leaves_a_static_tree(trees: Trees, mode: str) -> None:
    trees.publish("two", BASE, "--resources", mode)
    without = below(trees.out)
    trees.publish("one", BASE, "--resources", mode, "--dump")
    held = below(trees.out)
    done = told("catalog", "drop", trees.out, "--set", "one", "--dry-run")
    assert below(trees.out) == held
    gone = len(held - without)
    found = {"set": "one", "resources": 1, "changes": 0, "files": gone}
    assert done == {"place": str(trees.out), "dry_run": True, "sets": [{**found, "octets": done["sets"][0]["octets"]}]}
    done = told("catalog", "drop", trees.out, "--set", "one")
    assert done["sets"][0]["files"] == gone
    assert below(trees.out) == without
    assert "/one/" not in (trees.out / "robots.txt").read_text()
    description = (trees.out / ".well-known" / "resourcesync").read_text()
    assert (description.count("<loc>"), "/two/" in description) == (1, True)
    assert [one["name"] for one in told("status", trees.out)["sets"]] == ["two"]
    assert (trees.base / "one" / "sub" / "é.txt").read_text() == "one"  # what the set was made of stays
    headwater("catalog", "verify", trees.out)
    headwater("catalog", "drop", trees.out, "--set", "one", status=Exit.USAGE)
    trees.publish("two", BASE, "--resources", mode)
    assert below(trees.out) == without


def test_the_last_set_leaves_a_source_that_names_nothing(trees: Trees) -> None:
    trees.publish("one")
    headwater("catalog", "drop", trees.out, "--set", "one")
    assert not (trees.out / "one").exists()
    assert "<loc>" not in (trees.out / ".well-known" / "resourcesync").read_text()
    assert "Sitemap:" not in (trees.out / "robots.txt").read_text()
    trees.publish("one")
    assert "/one/" in (trees.out / ".well-known" / "resourcesync").read_text()


def test_a_robots_txt_of_somebody_else_stays(trees: Trees) -> None:
    trees.out.mkdir()
    (trees.out / "robots.txt").write_text("User-agent: *\nDisallow: /one/\n")
    trees.publish("one")
    headwater("catalog", "drop", trees.out, "--set", "one")
    assert (trees.out / "robots.txt").read_text() == "User-agent: *\nDisallow: /one/\n"


def test_copies_are_told_what_to_do_with_a_dropped_set(trees: Trees) -> None:
    """Until the user has decided, each run tells the command and no audit calls the copy in sync; then all is well."""
    with web_server(trees.out) as url:
        for name in ("one", "two"):
            trees.publish(name, url)
        headwater("sync", url, trees.copy)
        headwater("catalog", "drop", trees.out, "--set", "one")
        command = f"headwater forget {trees.copy} --set one"
        for _ in range(2):
            assert command in headwater("sync", url, trees.copy).stderr.decode()
        assert command in headwater("sync", url, trees.copy, "--set", "one", status=Exit.SOURCE).stderr.decode()
        audited = headwater("audit", url, trees.copy, status=Exit.UNDETERMINED)
        assert command in audited.stdout.decode()
        headwater(*command.split()[1:])
        assert b"no longer" not in headwater("sync", url, trees.copy).stderr
        assert told("audit", url, trees.copy)["verdict"] == "in sync"
        assert (trees.copy / "one" / "sub" / "é.txt").read_text() == "one"


def test_a_set_of_the_same_name_begins_anew(trees: Trees) -> None:
    """A copy that has not forgotten the set compares what it has with the new Resource List."""
    with web_server(trees.out) as url:
        for name in ("one", "two"):
            trees.publish(name, url)
        headwater("sync", url, trees.copy)
        headwater("catalog", "drop", trees.out, "--set", "one")
        (trees.base / "one" / "new.txt").write_text("new")
        trees.publish("one", url)
        report = told("sync", url, trees.copy)["sets"][0]
        assert (report["created"], report["updated"], report["deleted"], report["octets"]) == (1, 0, 0, 3)
        assert told("audit", url, trees.copy)["verdict"] == "in sync"


CONFIG = """
state = "state"
base_url = "{base}"
describedby = "https://example.org/about"
[[set]]
name = "two"
files = "two"
"""
ONE = """
[[set]]
name = "one"
files = "one"
dump = true
versions = true
change_dump = true
"""


def test_a_set_leaves_a_configured_source_with_its_versions(trees: Trees) -> None:
    config, state = trees.base / "source.toml", trees.base / "state"
    config.write_text(CONFIG.format(base=BASE) + ONE)
    headwater("publish", config)
    (trees.base / "one" / "sub" / "é.txt").write_text("changed")
    headwater("publish", config)
    assert told("versions", state)["count"] == 2
    done = headwater("catalog", "drop", config, "--set", "one", status=Exit.USAGE)
    assert b"still has the set 'one'" in done.stderr
    assert b"[[set]]" in done.stderr
    assert "one" in [one["name"] for one in told("status", config)["sets"]]
    config.write_text(CONFIG.format(base=BASE))
    removed = told("catalog", "drop", config, "--set", "one")["sets"][0]
    assert (removed["changes"], removed["versions"]) == (1, 2)
    assert told("versions", state)["count"] == 0
    assert not (state / "documents" / "one").exists()
    description = (state / "documents" / ".well-known" / "resourcesync").read_text()
    assert ("/one/" in description, "https://example.org/about" in description) == (False, True)
    assert [one["name"] for one in told("status", config)["sets"]] == ["two"]


def test_a_set_leaves_the_static_tree_of_a_configuration(trees: Trees) -> None:
    config = trees.base / "source.toml"
    whole = 'to = "out"\n' + CONFIG.format(base=BASE)
    config.write_text(whole)
    headwater("publish", config)
    without = below(trees.out)
    config.write_text(whole + '[[set]]\nname = "one"\nfiles = "one"\ndump = true\n')
    headwater("publish", config)
    config.write_text(whole)
    headwater("catalog", "drop", config, "--set", "one")
    assert below(trees.out) == without
    description = (trees.out / ".well-known" / "resourcesync").read_text()
    assert ("/one/" in description, "https://example.org/about" in description) == (False, True)
    assert "/one/" not in (trees.out / "robots.txt").read_text()


def test_other_sets_keep_the_versions_that_they_share(trees: Trees) -> None:
    config, state = trees.base / "source.toml", trees.base / "state"
    whole = CONFIG.format(base=BASE) + "versions = true\n"
    config.write_text(whole + ONE)
    shutil.copy(trees.base / "two" / "sub" / "é.txt", trees.base / "one" / "same.txt")
    headwater("publish", config)
    assert told("versions", state)["count"] == 2
    config.write_text(whole)
    headwater("catalog", "drop", config, "--set", "one")
    assert told("versions", state)["count"] == 1
    assert told("versions", state, "--verify")["damaged"] == []


def test_a_state_folder_is_enough_where_the_documents_are_in_it(trees: Trees) -> None:
    config, state = trees.base / "source.toml", trees.base / "state"
    config.write_text(CONFIG.format(base=BASE) + ONE)
    headwater("publish", config)
    headwater("catalog", "drop", state / "catalog.sqlite", "--set", "one")
    assert not (state / "documents" / "one").exists()
    assert "/one/" not in (state / "documents" / ".well-known" / "resourcesync").read_text()


def test_a_tree_whose_state_is_elsewhere_is_named(trees: Trees) -> None:
    state = trees.base / "state"
    for name in ("one", "two"):
        trees.publish(name, BASE, "--state", state)
    done = headwater("catalog", "drop", state, "--set", "one", status=Exit.USAGE)
    assert b"--to OUT" in done.stderr
    headwater("catalog", "drop", state, "--set", "one", "--to", trees.out)
    assert not (trees.out / "one").exists()
    assert "/one/" not in (trees.out / "robots.txt").read_text()


def test_no_set_is_dropped_under_a_source_at_work(trees: Trees) -> None:
    trees.publish("one")
    lock = StateLock(trees.out / ".headwater")
    done = headwater("catalog", "drop", trees.out, "--set", "one", status=Exit.STORE)
    assert Locked.code.encode() in done.stderr
    lock.release()
    assert (trees.out / "one" / "resourcelist.xml").is_file()


def test_what_was_cut_off_is_finished_by_the_same_command(trees: Trees) -> None:
    """As long as the catalog has the set, each step is done again."""
    for name in ("one", "two"):
        trees.publish(name)
    with closing(SqliteCatalog(trees.out / ".headwater" / "catalog.sqlite")) as catalog:
        catalog.note("one", b"")  # the first step
    shutil.rmtree(trees.out / "one" / "resources")
    headwater("catalog", "drop", trees.out, "--set", "one")
    assert not (trees.out / "one").exists()
    assert "/one/" not in (trees.out / "robots.txt").read_text()


@pytest.mark.parametrize("place", ["one", "nowhere", "one/sub/é.txt", "copy.sqlite"])
def test_a_place_without_documents_is_told(trees: Trees, place: str) -> None:
    trees.publish("one")
    shutil.copy(trees.out / ".headwater" / "catalog.sqlite", trees.base / "copy.sqlite")
    headwater("catalog", "drop", trees.base / place, "--set", "one", status=Exit.USAGE)
