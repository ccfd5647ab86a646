"""Dumps of Headwater's own, whose lists are left out of the Capability List: read as any others."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from tests.interop.programs import headwater, web_server
from tests.support.copying import DONE, check, go, tree

_LISTS = re.compile(rb"<url>\s*<loc>[^<]*/(?:resource|change)list\.xml</loc>.*?</url>", re.DOTALL)


def show(out: Path, www: Path) -> None:
    """What was published, as a web site whose Capability List names dumps alone."""
    shutil.copytree(out, www, dirs_exist_ok=True)
    capability_list = www / "files" / "capabilitylist.xml"
    shown = _LISTS.sub(b"", capability_list.read_bytes())
    assert b"resourcedump.xml" in shown
    assert b"changedump.xml" in shown
    assert b"list.xml</loc>" not in shown
    capability_list.write_bytes(shown)
    for name in ("resourcelist.xml", "changelist.xml"):
        (www / "files" / name).unlink()


def test_dumps_of_our_own_without_their_lists(tmp_path: Path) -> None:
    """RS-CD-08, RS-CDM-10: each publication brought over by its dumps alone is the folder, and audits so."""
    files, out, www, dest, late = (tmp_path / name for name in ("files", "out", "www", "copy", "late"))
    www.mkdir()
    for number in range(30):
        (files / f"d{number % 3}").mkdir(parents=True, exist_ok=True)
        (files / f"d{number % 3}" / f"f{number} é.txt").write_text(f"{number}\n")
    (files / "large.bin").write_bytes(bytes(range(256)) * 6_000)
    with web_server(www) as url:
        for step in range(2):
            said = ("--dump", "--change-dump")
            headwater("publish", "--files", files, "--to", out, "--base-url", url, *said)
            show(out, www)
            ran = go(url, dest)
            assert ran.status == DONE, (ran.error, ran.notices)
            assert tree(dest) == tree(files)
            assert {way.way for way in ran.one.ways if way.taken} == {"Change Dump" if step else "Resource Dump"}
            assert check(url, dest).verdict == "in sync"
            (files / "d0" / "f0 é.txt").write_text(f"state {step}\n")
            (files / f"d1/f{3 * step + 1} é.txt").unlink()
            (files / f"new{step}").write_text("new\n")
        ran = go(url, late)
        assert ran.status == DONE, (ran.error, ran.notices)
        assert tree(late) == tree(dest)
