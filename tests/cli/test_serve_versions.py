"""`headwater serve --versions`: past states of a folder and of a copy, kept and served by Memento."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headwater.cli import run
from tests.support.copying import DONE, check, go, tree
from tests.support.fake_source import Site, Source
from tests.support.serving import Process, request
from tests.support.waiting import until


def states(url: str, relative: str, name: str = "files") -> list[bytes]:
    """The octets of all states of a resource of a set, by its TimeMap."""
    text = request(url, f"/{name}/timemap/{relative}").body.decode("ascii")
    found = re.findall(r'<([^>]*)>; rel="[^"]*\bmemento"', text)
    return [request(url, one.removeprefix(url)).body for one in found]


@pytest.mark.parametrize("said", [(), ("1 year, 20 GB",), ("all",)], ids=["usual", "bounded", "all"])
def test_a_folder_is_served_as_it_was(tmp_path: Path, said: tuple[str, ...]) -> None:
    """RS-REL-08 to RS-REL-10: by one option, with or without a value."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_bytes(b"one")
    with Process(
        "--versions", *said, "--files", str(files), "--quiet", "--port", "0", "--state", str(tmp_path / "state")
    ) as server:
        url = server.ready()
        (files / "a.txt").write_bytes(b"number two")
        until(lambda: states(url, "a.txt") == [b"one", b"number two"], what="both states")


@pytest.mark.parametrize("said", ["soon", "30 days, much", ",", "", "0 bits", "30 days, 20 GB, 3"])
def test_a_time_that_is_none_is_told(tmp_path: Path, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--files", str(tmp_path), "--versions", said]) == 2
    assert "1 year, 20 GB" in capsys.readouterr().err


def test_a_copy_is_served_as_it_was_and_in_packages(tmp_path: Path) -> None:
    """Versions, Resource Dump and Change Dump of a set that publishes a copy; its own copies are whole."""
    dest = tmp_path / "copy"
    with Source() as origin:
        site = Site(origin)
        for number in range(15):
            site.put(f"f{number}.txt", b"first %d" % number)
        site.clock = 20.0
        site.publish(since=20.0)
        assert go(origin.base, dest).status == DONE
        options = ("--versions", "--dump", "--change-dump", "--archive")
        with Process(
            "--copy", str(dest), *options, "--quiet", "--port", "0", "--state", str(tmp_path / "state")
        ) as server:
            url = server.ready()
            until(lambda: request(url, "/set/resourcelist.xml").status == 200, what="the first states")
            for name in ("f0.txt", "f1.txt"):
                site.put(name, b"second of " + name.encode())
            site.drop("f2.txt")
            site.publish(since=20.0)
            assert go(origin.base, dest, max_delete=1.0).status == DONE
            until(lambda: states(url, "f0.txt", "set") == [b"first 0", b"second of f0.txt"], what="both states")
            until(lambda: states(url, "f2.txt", "set") == [b"first 2"], what="the state before the deletion")
            assert request(url, "/set/timegate/f2.txt").status == 302
            for name in ("resourcedump", "changedump"):
                until(
                    lambda name=name: b"<url>" in request(url, f"/set/{name}.xml").body,  # type: ignore[misc]
                    what=name,
                )
            third = tmp_path / "third"
            assert go(url, third, prefer="dumps").status == DONE
            assert tree(third) == tree(dest)
            assert check(url, third).verdict == "in sync"
            status, _ = server.stop()
            assert status == DONE
