"""Media types that a set's settings give its files: what is listed, what is served, and what another setting costs."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.errors import UsageFault
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.set_folders import scan_settings
from headwater.source.source import Source
from tests.source.test_source import WatchedSource
from tests.support.documents import read_bytes
from tests.support.serving import face
from tests.support.waiting import settle

TYPES = {"*.marcxml": "application/marcxml+xml", "item/metadata.xml": "Application/OAI_DC+XML", "oai/": "text/x-oai"}
FILE = b"""\xef\xbb\xbf# as in /etc/mime.types
application/x-research-info-systems\tris  RiS2   # two suffixes
text/x-of-a-name  README* **/notes.txt
text/x-late  *.marcxml csv
image/png
"""
LISTED = {
    "a.marcxml": "application/marcxml+xml",
    "item/metadata.xml": "application/oai_dc+xml",
    "other/metadata.xml": "application/xml",
    "oai/1.xml": "text/x-oai",
    "refs.ris": "application/x-research-info-systems",
    "REFS.RIS2": "application/x-research-info-systems",
    "README.old": "text/x-of-a-name",
    "b/notes.txt": "text/x-of-a-name",
    "a.txt": "text/plain",
    "table.csv": "text/x-late",
    "what": "application/octet-stream",
}


def test_what_is_listed_is_what_is_served(tmp_path: Path) -> None:
    """The first pattern that fits, then suffixes of the file, then our own table; the file itself stays private."""
    folder = tmp_path / "files"
    for name in LISTED:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "types.txt").write_bytes(FILE)
    with face(folder, tmp_path / "state", types=TYPES, types_file=str(folder / "types.txt")) as running:
        _head, entries, _warnings = read_bytes(running.get("/files/resourcelist.xml").body)
        home = f"{running.url}/files/resources/"
        assert {one.loc.removeprefix(home): one.type for one in entries} == LISTED
        for one in entries:
            answer = running.get(one.loc.removeprefix(running.url))
            assert (answer.status, answer.headers["content-type"]) == (200, one.type)
        assert running.get("/files/resources/types.txt").status == 404


def test_another_type_of_an_unchanged_file_is_an_update_and_no_other_file_is_read(tmp_path: Path) -> None:
    """RS-MD-11: copies learn the type by the Change List, with the hash that they have already."""
    world = WatchedSource(tmp_path)
    for name in ("a.marc", "b.marc", "c.txt"):
        world.put(name)
    settle()
    with Source(world.config()) as source:
        source.run_once()
        before = source.catalog.get("files", ["a.marc", "c.txt"])
    for types, read, told in (
        ({"*.marc": "application/marc"}, 2, "application/marc"),
        ({"*.marc": "application/marc"}, 0, "application/marc"),
        ({"b.*": "text/x-b", "a.marc": "application/marc"}, 1, "application/marc"),
        (None, 2, "application/octet-stream"),
    ):
        world.settings["types"] = types
        with Source(world.config()) as source:
            (worked,) = source.run_once()
            assert (worked.scanned.read, worked.scanned.updated) == (read, read)
            now = source.catalog.get("files", ["a.marc", "c.txt"])
            assert now["a.marc"].metadata.type == told
            assert now["a.marc"].metadata.hash == before["a.marc"].metadata.hash
            assert now["c.txt"] == before["c.txt"]
        assert world.is_current()


@pytest.mark.parametrize(
    ("types", "lines", "said"),
    [
        ({"*.x": "marc"}, None, "not a media type: 'marc'"),
        ({"a//b": "text/x"}, None, "not a pattern: 'a//b'"),
        ({}, "marc *.x", "not a media type: 'marc'"),
        ({}, "text/x ../b", "not a pattern: '../b'"),
        ({}, "text/x x\n \xe9", "not a media type"),
        ({}, None, "No such file"),
    ],
)
def test_wrong_types_are_refused_with_their_place(
    tmp_path: Path, types: dict[str, str], lines: str | None, said: str
) -> None:
    file = tmp_path / "types.txt"
    if lines is not None:
        file.write_text(lines)
    one = SetConfig(files=str(tmp_path), types=types, types_file=None if types else str(file))
    config = SourceConfig(state=str(tmp_path / "state"), sets=(one,), base_url="http://source.example")
    with pytest.raises(UsageFault, match=f"types cannot be read: .*{said}") as refused:
        scan_settings(one, config.site(), config)
    assert refused.value.where == (None if types else str(file))
