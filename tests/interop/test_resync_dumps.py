"""Our `sync` and `audit` against Resource Dumps that `resync-build` made, listed by the resync library."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from resync.resource import Resource
from resync.resource_dump import ResourceDump

from tests.interop.programs import headwater, tree, web_server
from tests.interop.test_us_against_resync import FILES, Site

pytestmark = pytest.mark.long


def dump(site: Site, *, hashes: bool, beside: bool) -> None:
    """The packages as `resync-build` writes them, named by a Resource Dump without `at`."""
    for old in site.root.glob("rd0*"):
        old.unlink()
    wanted = ("--hash", "sha-256") if hashes else ()
    (site.root / "rd").touch()
    site.build("--write-resourcedump", *wanted, out="rd")
    listed = ResourceDump()
    for package in sorted(site.root.glob("rd0*.zip")):
        entry = Resource(uri=f"{site.url}/{package.name}", length=package.stat().st_size, mime_type="application/zip")
        if beside:
            entry.link_set(rel="contents", href=f"{site.url}/{package.stem}.xml")
        listed.add(entry)
    listed.up = f"{site.url}/capabilitylist.xml"
    (site.root / "resourcedump.xml").write_text(listed.as_xml())
    site.describe("resourcedump")


@pytest.mark.parametrize(("hashes", "beside"), [(True, False), (False, True)])
def test_their_dumps_alone_are_copied_and_audited(tmp_path: Path, *, hashes: bool, beside: bool) -> None:
    """RS-RDM-01, AMB-36: paths without a slash, manifests without `at` and `up`, entries without a hash."""
    copy = tmp_path / "copy"
    root = tmp_path / "site"
    root.mkdir()
    with web_server(root) as url:
        site = Site(root, url)
        dump(site, hashes=hashes, beside=beside)
        (root / "res").rename(root / "gone")
        report = json.loads(headwater("sync", url, copy, "--json"))
        assert tree(copy) == FILES
        assert [way["way"] for way in report["sets"][0]["ways"]] == ["Resource Dump"]
        assert json.loads(headwater("audit", url, copy, "--json"))["exit_status"] == 0
        (root / "gone").rename(root / "res")
        (root / "res" / "a.txt").unlink()
        site.write("new.txt", b"four\n")
        dump(site, hashes=hashes, beside=beside)
        headwater("sync", url, copy, "--max-delete", "100%")
        assert tree(copy) == {name: body for name, body in FILES.items() if name != "a.txt"} | {"new.txt": b"four\n"}
