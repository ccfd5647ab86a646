"""Which capabilities allow which process, over a source whose lists are hidden."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.copying import DONE, UNDETERMINED, check, go, tree
from tests.support.fake_dumps import Dumps

OFFERS = {
    "lists": ("resourcelist", "changelist"),
    "dumps": ("resourcedump", "changedump"),
    "Resource Dump": ("resourcedump",),
    "Resource Dump, Change List": ("resourcedump", "changelist"),
    "Resource List, Change Dump": ("resourcelist", "changedump"),
    "Change Dump": ("changedump",),
}


def publish(dumps: Dumps, offered: tuple[str, ...]) -> None:
    """Everything as it is, of which the Capability List offers what is `offered`."""
    site = dumps.site
    site.publish_list()
    site.publish_changes(0)
    names = list(site.files)
    dumps.publish_packages(dumps.package(names[:3]), dumps.package(names[3:]))
    dumps.publish_change_packages(*(moment for moment in (0, 100, 300) if moment <= site.clock))
    site.publish_capabilities(*offered)


def change(dumps: Dumps) -> None:
    """A resource more, one less, one other."""
    site = dumps.site
    site.clock = 200.0
    site.put("new.txt", b"new\n")
    site.put("d0/f0.txt", b"another body\n")
    site.drop("d1/f1.txt")
    site.clock = 300.0


@pytest.mark.parametrize("offered", OFFERS.values(), ids=OFFERS)
def test_baseline_increment_and_audit(dumps: Dumps, dest: Path, tmp_path: Path, offered: tuple[str, ...]) -> None:
    site = dumps.site
    publish(dumps, offered)
    ran = go(site.source.base, dest)
    assert ran.status == DONE, (ran.error, ran.notices)
    assert tree(dest) == site.files
    change(dumps)
    publish(dumps, offered)
    ran = go(site.source.base, dest)
    assert ran.status == DONE, (ran.error, ran.notices)
    assert tree(dest) == site.files
    if offered == OFFERS["Change Dump"]:
        assert check(site.source.base, dest).exit_status == UNDETERMINED
        return
    assert check(site.source.base, dest).exit_status == DONE
    (dest / "new.txt").write_bytes(b"old\n")
    assert check(site.source.base, dest).exit_status == 1
    site.publish_capabilities(*OFFERS["lists"])
    plain = tmp_path / "plain"
    assert go(site.source.base, plain).status == DONE
    assert tree(plain) == site.files


def test_lists_alone_load_nothing_that_reads_packages(dumps: Dumps, dest: Path) -> None:
    """A run that has nothing to do takes as long as its modules take to load."""
    go(dumps.site.source.base, dest)
    code = (
        "import sys; from headwater.cli import run; status = run(['sync', *sys.argv[1:], '-q']);"
        "print(status, *[name for name in sys.modules if 'manifest' in name or '.packages.zip' in name])"
    )
    command = [sys.executable, "-c", code, dumps.site.source.base, str(dest)]
    assert subprocess.run(command, capture_output=True, check=True).stdout == b"0\n"
    assert tree(dest) == dumps.site.files
