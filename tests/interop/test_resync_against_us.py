"""`resync-sync` 2.0.1, unmodified, against our server: it ends with our bytes.

It is judged by its status line and the tree, not by its exit status, which says nothing. `--hash` is not used: its
incremental run then fails in its own code.
"""

from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.interop.programs import get, headwater, resync, serving, status_line, tree, web_server
from tests.support.waiting import until

pytestmark = pytest.mark.long(25)

FILES = {f"sub/{name}": f"this is {name}\n".encode() * 10 for name in ("a.txt", "b.html", "c", "d d.txt", "e.pdf")}


def make(folder: Path) -> None:
    for name, content in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def change(folder: Path) -> None:
    put(folder, "sub/b.html", b"changed, and longer than it was before: " * 10)
    (folder / "sub" / "c").unlink()
    put(folder, "new", b"new")


def put(folder: Path, name: str, content: bytes) -> None:
    """Have a file at once: one that is looked at while it is written is two changes."""
    aside = folder.parent / "aside"
    aside.write_bytes(content)
    aside.rename(folder / name)


def copied(copy: Path) -> dict[str, bytes]:
    """What it has copied; it names files by the URI as it stands, escapes and all."""
    return {unquote(name): content for name, content in tree(copy / "files" / "resources").items()}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    make(tmp_path / "source")
    return tmp_path / "source"


def configured(source: Path, tmp_path: Path) -> Path:
    """A source whose Resource List follows each change at once, because `resync-sync --audit` reads no Change List."""
    path = tmp_path / "source.toml"
    path.write_text(f'state = "state"\n[[set]]\nname = "files"\nfiles = "{source}"\nrefresh_changes = 1\n')
    return path


def test_baseline_increment_and_audit(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    with serving(configured(source, tmp_path)) as url:
        said = resync("resync-sync", "--baseline", url, copy)
        assert status_line(said).startswith("SYNCED (same=0, created=5"), said
        assert copied(copy) == tree(source)
        assert status_line(resync("resync-sync", "--audit", url, copy)).startswith("IN SYNC")

        change(source)
        open_list = f"{url}/files/changelist/open.xml"
        until(lambda: (get(open_list) or b"").count(b"<url>") >= 3)
        arguments = ("--from", "2020-01-01T00:00:00Z", "--changelist-uri", open_list, "--delete")
        said = resync("resync-sync", "--incremental", *arguments, url, copy)
        assert "CHANGES APPLIED (created=1, updated=1, deleted=1)" in said
        assert copied(copy) == tree(source)
        until(lambda: b"/new</loc>" in (get(f"{url}/files/resourcelist.xml") or b""))
        assert status_line(resync("resync-sync", "--audit", url, copy)).startswith("IN SYNC")


def test_baseline_and_increments_by_the_lists_for_old_harvesters(source: Path, tmp_path: Path) -> None:
    """From the Capability List to our bytes, as of 1.0 too; the one Change List serves every later run."""
    copy, path = tmp_path / "copy", configured(source, tmp_path)
    copy.mkdir()
    one = 'classic = true\nsitemap = true\nhashes = ["sha-256"]\n'
    path.write_text(f"segment_entries = 2\n{path.read_text()}{one}")
    with serving(path) as url:
        classic = f"{url}/files/classic"
        arguments = ("--capabilitylist", f"{classic}/capabilitylist.xml")
        said = resync("resync-sync", "--baseline", *arguments, url, copy)
        assert status_line(said).startswith("SYNCED (same=0, created=5"), said
        assert copied(copy) == tree(source)
        changes = ("--from", "2020-01-01T00:00:00Z", "--changelist-uri", f"{classic}/changelist.xml", "--delete")
        change(source)
        until(lambda: (get(f"{classic}/changelist.xml") or b"").count(b"<url>") >= 3)
        said = resync("resync-sync", "--incremental", *changes, url, copy)
        assert "CHANGES APPLIED (created=1, updated=1, deleted=1)" in said, said
        put(source, "later", b"later")
        until(lambda: b"/later</loc>" in (get(f"{classic}/changelist.xml") or b""))
        assert b"<sitemapindex" in (get(f"{url}/files/changelist.xml") or b"")
        said = resync("resync-sync", "--incremental", *changes, url, copy)
        assert "CHANGES APPLIED" in said, said
        assert copied(copy) == tree(source)
        until(lambda: b"/later</loc>" in (get(f"{classic}/resourcelist.xml") or b""))
        # its files have the times of their changes, as 1.0 tells them, which may be a second later than their own
        resync("resync-sync", "--baseline", *arguments, url, copy)
        assert status_line(resync("resync-sync", "--audit", *arguments, url, copy)).startswith("IN SYNC")
        assert copied(copy) == tree(source)
        said = resync("resync-sync", "--parse", "--sitemap", f"{url}/files/sitemap.xml", url, tmp_path)
        assert "Parsed " in said, said
        ours = tmp_path / "ours"
        headwater("sync", url, ours, "--quiet")
        assert tree(ours) == tree(source), "the same set in another form is not copied twice"
        alone = tmp_path / "alone"
        headwater("sync", f"{classic}/capabilitylist.xml", alone, "--quiet")
        headwater("sync", f"{classic}/capabilitylist.xml", alone, "--quiet")
        assert tree(alone) == tree(source)


def test_an_audit_finds_what_differs(source: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    with serving("--files", source, "--state", tmp_path / "state") as url:
        resync("resync-sync", "--baseline", url, copy)
        (copy / "files" / "resources" / "sub" / "a.txt").unlink()
        assert status_line(resync("resync-sync", "--audit", url, copy)).startswith("NOT IN SYNC (same=4, to create=1")


@pytest.mark.parametrize("document", [".well-known/resourcesync", "files/capabilitylist.xml", "files/resourcelist.xml"])
def test_it_parses_every_kind_of_document(document: str, source: Path, tmp_path: Path) -> None:
    with serving("--files", source, "--state", tmp_path / "state") as url:
        said = resync("resync-sync", "--parse", "--sitemap", f"{url}/{document}", url, tmp_path)
    assert "Parsed " in said, said
    assert "Traceback" not in said


def test_a_static_tree_serves_it_as_well(source: Path, tmp_path: Path) -> None:
    out, copy = tmp_path / "out", tmp_path / "copy"
    out.mkdir()
    copy.mkdir()
    with web_server(out) as url:
        headwater("publish", "--files", source, "--to", out, "--base-url", url)
        said = resync("resync-sync", "--baseline", url, copy)
        assert status_line(said).startswith("SYNCED (same=0, created=5"), said
        assert copied(copy) == tree(source)
