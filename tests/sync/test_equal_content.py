"""Sources without hash and length, whose server sends no validators: what is fetched again may be what is held.

DST-B3, rule "else conditional GET".
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.progress import Done
from headwater.sync.network.transport import Transport
from tests.support.copying import DONE, IMPATIENT, go, run_over, tree
from tests.support.fake_source import Reply, Site, Source


@pytest.fixture
def copied(source: Source, site: Site, dest: Path) -> Path:
    serve_without_validators(source, site)
    assert go(source.base, dest).one.created == len(site.files)
    return dest


def serve_without_validators(source: Source, site: Site) -> None:
    site.clock += 10
    site.publish_capabilities("resourcelist")
    site.publish_list([site.resource(name, hash=None, length=None) for name in site.files])
    for name, body in site.files.items():
        source.pages[f"/set/resources/{name}"] = Reply(body, etag=False)


def renewed(source: Source, site: Site, dest: Path) -> tuple[int, int, list[tuple[str, str]]]:
    """What a run that reads a newer list counts as updated and unchanged, and what it tells."""
    serve_without_validators(source, site)
    told: list[Done] = []
    with Transport(IMPATIENT) as wire:
        report = run_over(wire, source.base, dest, each=told.append)
    assert (report.exit_status, tree(dest)) == (DONE, dict(site.files))
    return report.sets[0].updated, report.sets[0].unchanged, [(one.action, one.path) for one in told]


def test_what_is_held_already_is_no_update(source: Source, site: Site, copied: Path) -> None:
    """Else `--exec` and `--changes` tell of all files at each run."""
    assert renewed(source, site, copied) == (0, len(site.files), [])


def test_what_is_new_is_one(source: Source, site: Site, copied: Path) -> None:
    site.put("f1.txt", b"BODY 1\n")
    assert renewed(source, site, copied) == (1, len(site.files) - 1, [("updated", "f1.txt")])


@pytest.mark.parametrize("harm", ["edited", "missing"])
def test_what_was_damaged_here_is_one(harm: str, source: Source, site: Site, copied: Path) -> None:
    if harm == "edited":
        (copied / "f1.txt").write_bytes(b"edited")
    else:
        (copied / "f1.txt").unlink()
    assert renewed(source, site, copied) == (1, len(site.files) - 1, [("updated", "f1.txt")])
