"""Archives over HTTP: what they list is cached for good, they themselves are asked for each time (AMB-62)."""

from __future__ import annotations

from pathlib import Path

from tests.support.documents import read_bytes
from tests.support.serving import face


def test_archived_documents_are_cached_for_good(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_bytes(b"0")
    with face(files, tmp_path / "state", archive=True) as running:
        running.source.run_once()
        running.source.run_once()
        top = running.get("/files/archive/resourcelist.xml")
        assert (top.status, top.headers["cache-control"]) == (200, "no-cache")
        _, (entry,), _ = read_bytes(top.body)
        target = entry.loc.removeprefix(running.url)
        archived = running.get(target)
        assert archived.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert read_bytes(archived.body)[0].at == entry.at
        assert running.get(target, if_none_match=archived.headers["etag"]).status == 304
        assert running.get("/files/archive/changelist.xml").status == 200
        assert running.get("/files/archive/changelist/00000.xml").status == 404
        assert running.get("/files/archive/changedump.xml").status == 404
        assert b"archive/resourcelist.xml" in running.get("/").body
