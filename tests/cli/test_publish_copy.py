"""`headwater publish --copy`: a copy as a static tree for any web server, with the origin of each resource."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli import run
from tests.interop.programs import web_server
from tests.source.replay import Tree
from tests.support.copying import DONE, FAILED, check, go, tree
from tests.support.fake_source import Site, Source, sha

USAGE = 2


@pytest.fixture
def origin() -> Iterator[Source]:
    with Source() as running:
        yield running


@pytest.fixture
def site(origin: Source) -> Site:
    made = Site(origin)
    for number in range(4):
        made.put(f"d/f{number}.txt", b"body %d\n" % number)
    made.clock = 10.0
    return made.publish(since=10.0)


@pytest.mark.parametrize("mode", ["link", "copy"])
def test_the_tree_follows_the_copy_and_is_a_source(origin: Source, site: Site, tmp_path: Path, mode: str) -> None:
    """RS-REL-12, DST-S9: updates, deletions and what is new; nothing is hashed again, `via` leads to the origin."""
    dest, out = tmp_path / "copy", tmp_path / "out"
    with web_server(out) as url:
        options = ["publish", "--copy", str(dest), "--to", str(out), "--base-url", url, "--resources", mode]
        assert go(origin.base, dest).status == DONE
        assert run(options) == 0
        assert tree(out / "set" / "resources") == tree(dest)
        (listed,) = [one for one in Tree(out, url, "set").entries("set/resourcelist.xml") if one.loc.endswith("f0.txt")]
        assert [(one.rel, one.href) for one in listed.links] == [("via", site.uri("d/f0.txt"))]
        assert (listed.hash, listed.length) == (sha(b"body 0\n"), 7)
        assert go(url, tmp_path / "third").status == DONE
        site.put("d/f0.txt", b"other\n")
        site.drop("d/f1.txt")
        site.put("new.txt", b"new\n")
        site.publish(since=10.0)
        assert go(origin.base, dest, max_delete=1.0).status == DONE
        assert run(options) == 0
        assert run(options) == 0
        assert tree(out / "set" / "resources") == tree(dest)
        assert [one.change and one.change.value for one in Tree(out, url, "set").changes()].count("updated") == 1
        assert go(url, tmp_path / "third", max_delete=1.0).status == DONE
        assert (
            tree(tmp_path / "third")
            == tree(dest)
            == {"d/f0.txt": b"other\n", "new.txt": b"new\n"}
            | {f"d/f{number}.txt": b"body %d\n" % number for number in (2, 3)}
        )
        assert check(url, tmp_path / "third").verdict == "in sync"


def test_what_was_changed_in_the_copy_is_not_published(
    origin: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The tree keeps what it has, the run says so, and the next one after a repair is whole."""
    dest, out = tmp_path / "copy", tmp_path / "out"
    options = ["publish", "--copy", str(dest), "--to", str(out), "--base-url", "http://example.org"]
    options += ["--resources", "copy"]
    assert go(origin.base, dest).status == DONE
    assert run(options) == 0
    (dest / "d" / "f0.txt").write_bytes(b"edited")
    (out / "set" / "resources" / "d" / "f0.txt").unlink()
    assert run(options) == FAILED
    assert "HW-CPY-12" in capsys.readouterr().err
    assert not (out / "set" / "resources" / "d" / "f0.txt").exists()
    assert go(origin.base, dest, repair=True).status == DONE
    assert run(options) == 0
    assert tree(out / "set" / "resources") == tree(dest)


def test_what_cannot_be_is_told(origin: Source, site: Site, tmp_path: Path) -> None:
    dest = tmp_path / "copy"
    assert go(origin.base, dest).status == DONE
    base = ["publish", "--base-url", "http://example.org"]
    out = ["--to", str(tmp_path / "out")]
    for wrong in (
        [*out, "--copy", str(tmp_path / "none")],
        [*out, "--copy", str(dest), "--set", "other"],
        [*out, "--copy", str(dest), "--files", str(tmp_path)],
        [*out, "--copy", str(dest), "--watch"],
        [*out, "--copy", str(dest), "--dry-run"],
        ["--to", str(dest / "out"), "--copy", str(dest)],
        ["--to", str(tmp_path), "--copy", str(dest)],
    ):
        assert run([*base, *wrong]) == USAGE, wrong
    assert not (dest / "out").exists()


def test_a_set_that_the_copy_lacks_is_refused(
    origin: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Served, a name with a wrong letter would become that of a set, for good."""
    dest = tmp_path / "copy"
    assert go(origin.base, dest).status == DONE
    for command in (
        ["serve", "--port", "0"],
        ["publish", "--to", str(tmp_path / "out"), "--base-url", "http://x.example"],
    ):
        assert run([*command, "--copy", str(dest), "--set", "sett"]) == USAGE
        assert "Did you mean set?" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_copies_of_a_configuration_are_published_at_once(
    origin: Source, site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Servers that only serve show them; a copy that is not there yet is left to those that follow it."""
    config = tmp_path / "source.toml"
    sets = "".join(f'[[set]]\nname = "{name}"\ncopy = "{name}"\n' for name in ("copied", "later"))
    config.write_text(f'state = "state"\nbase_url = "http://x.example"\n{sets}')
    assert go(origin.base, tmp_path / "copied").status == DONE
    for created in (4, 0):
        assert run(["publish", str(config)]) == 0
        out = capsys.readouterr().out
        assert "4 resources in set copied" in out
        assert f"created {created}, updated 0, deleted 0" in out
        assert "1 set left to" in out
    documents = tmp_path / "state" / "documents"
    assert b"d/f0.txt" in (documents / "copied" / "resourcelist.xml").read_bytes()
    assert not (documents / "later").exists()
    assert not (documents / "copied" / "resources").exists()
