"""The walk: every file once, in the order of URIs, whatever names and links a tree holds."""

import os
import socket
import stat
from pathlib import Path
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headwater.files.nofollow import open_unlinked
from headwater.files.patterns import Selection
from headwater.ingest.folder.walk import (
    LINK_DEPTH,
    FileEntry,
    RootFault,
    UnreadableEntry,
    Walk,
    path_of,
    quote,
)
from tests.support.examples import examples

ODD_NAMES = [
    b"plain",
    b"with space",
    b"per%cent",
    b"%41",
    b"new\nline",
    b"tab\t",
    "ümläut".encode(),
    "日本語".encode(),
    b"latin-1 \xfc\xff",
    b"quote\"'<>&",
    b"question?",
    b"hash#",
    b"semi;colon:and@at",
    b"plus+and&",
    b"back\\slash",
    b"~tilde",
    b".hidden",
    b"...",
    b"-dash",
    b"\x01\x7f",
    b"n" * 255,
    b"\xff" * 255,
]


def put(root: bytes, *paths: bytes) -> None:
    for path in paths:
        full = os.path.join(root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "wb") as file:
            file.write(path)


def uris(walk: Walk) -> list[str]:
    return [one.uri for one in walk.everything()]


@pytest.fixture
def root(tmp_path: Path) -> bytes:
    (tmp_path / "root").mkdir()
    return os.fsencode(tmp_path / "root")


def test_odd_names_become_uris_and_come_back(root: bytes) -> None:
    put(
        root,
        *ODD_NAMES,
        *(b"folder/" + name for name in ODD_NAMES),
        *(name + b".d/x" for name in ODD_NAMES if len(name) < 250),
    )
    found = uris(Walk(root, Selection()))
    assert found == sorted(found)
    assert len(found) == len(set(found)) == 3 * len(ODD_NAMES) - 2
    for uri in found:
        assert uri.isascii()
        assert path_of(uri) == unquote_to_bytes(uri)
        assert os.path.exists(os.path.join(root, path_of(uri)))
    assert "per%25cent" in found
    assert "new%0Aline" in found
    assert "latin-1%20%FC%FF" in found


NAME = st.binary(min_size=1, max_size=6).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.lists(NAME, min_size=1, max_size=3), max_size=12))
def test_the_walk_is_in_the_order_of_uris(tmp_path_factory: pytest.TempPathFactory, paths: list[list[bytes]]) -> None:
    """The catalog gives resources in the order of their octets; the walk must agree for every tree."""
    base = os.fsencode(tmp_path_factory.mktemp("order"))
    for parts in paths:
        try:
            put(base, b"/".join(parts))
        except OSError:
            continue  # a folder where a file is, or the other way round
    found = uris(Walk(base, Selection()))
    expected = sorted(
        quote(os.path.relpath(os.path.join(folder, name), base)) for folder, _, names in os.walk(base) for name in names
    )
    assert found == expected
    for uri in found:
        assert [one.uri for one in Walk(base, Selection()).at(path_of(uri))] == [uri]


def test_files_and_folders_that_begin_alike(root: bytes) -> None:
    put(root, b"a/x", b"a-b", b"a.b", b"a0", b"ab/x", b"A", b"a b")
    assert uris(Walk(root, Selection())) == ["A", "a%20b", "a-b", "a.b", "a/x", "a0", "ab/x"]


def test_links_inside_are_followed_and_out_of_the_folder_never(root: bytes, tmp_path: Path) -> None:
    put(root, b"real/file", b"top")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_text("secret")
    for target, name in [
        (b"real", b"folder-link"),
        (b"real/file", b"file-link"),
        (b"../secret", b"out-file"),
        (b"../elsewhere", b"out-folder"),
        (b"/etc/passwd", b"absolute"),
        (b"out-file", b"chain-out"),
        (b"file-link", b"chain-in"),
        (b"nowhere", b"dangling"),
        (b"self", b"self"),
        (b".", b"loop"),
        (b"..", b"real/up"),
    ]:
        os.symlink(target, os.path.join(root, name))
    remarks: list[tuple[str, str, bytes]] = []
    walk = Walk(root, Selection(), warn=lambda *told: remarks.append(told))
    assert uris(walk) == ["chain-in", "file-link", "folder-link/file", "real/file", "top"]
    by_rule = {
        rule: sorted(os.path.basename(path) for of, _, path in remarks if of == rule)
        for rule in {of for of, _, _ in remarks}
    }
    assert by_rule["HW-ING-11"] == [b"absolute", b"chain-out", b"out-file", b"out-folder"]
    assert by_rule["HW-ING-12"] == [b"loop", b"self", b"up", b"up"]
    for outside in (b"out-file", b"out-folder", b"out-folder/file", b"real/../../secret", b"loop/top"):
        assert list(Walk(root, Selection()).at(outside)) == []
    inside = [one for one in Walk(root, Selection()).everything() if isinstance(one, FileEntry)]
    assert all(os.path.realpath(one.path) == one.path for one in inside)


def test_a_link_to_a_sibling_of_the_root_with_its_name_is_outside(root: bytes) -> None:
    put(root + b"-private", b"file")
    os.symlink(root + b"-private", os.path.join(root, b"link"))
    assert uris(Walk(root, Selection())) == []


def test_folders_that_link_to_each_other_do_not_make_a_forest(root: bytes) -> None:
    names = [b"a", b"b", b"c"]
    for name in names:
        put(root, name + b"/file")
        for other in names:
            os.symlink(os.path.join(b"..", other), os.path.join(root, name, b"to-" + other))
    found = uris(Walk(root, Selection()))
    assert len(found) == len(set(found)) < 100
    assert max(uri.count("to-") for uri in found) <= LINK_DEPTH


def test_a_root_that_is_a_link_is_followed(root: bytes) -> None:
    put(root, b"file")
    os.symlink(root, root + b"-link")
    assert uris(Walk(root + b"-link", Selection())) == ["file"]


def test_special_files_are_left_out_unopened(root: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, b"file")
    os.mkfifo(os.path.join(root, b"fifo"))
    with socket.socket(socket.AF_UNIX) as listener:
        monkeypatch.chdir(os.fsdecode(root))  # the address of a socket is short
        listener.bind("socket")
    remarks: list[tuple[str, str, bytes]] = []
    assert uris(Walk(root, Selection(), warn=lambda *told: remarks.append(told))) == ["file"]
    assert {one[0] for one in remarks} == {"HW-ING-13"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_closed_folder_is_said_to_be_unreadable(root: bytes) -> None:
    put(root, b"open/file", b"closed/file", b"zebra")
    os.chmod(os.path.join(root, b"closed"), 0)
    try:
        found = list(Walk(root, Selection()).everything())
    finally:
        os.chmod(os.path.join(root, b"closed"), stat.S_IRWXU)
    assert [one.uri for one in found if isinstance(one, UnreadableEntry)] == ["closed/"]


def test_a_folder_that_cannot_be_listed_is_said_to_be_unreadable(root: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, b"open/file", b"closed/file", b"zebra")
    refuse(monkeypatch, b"/closed", 5)
    found = list(Walk(root, Selection()).everything())
    assert [(type(one), one.uri) for one in found] == [
        (UnreadableEntry, "closed/"),
        (FileEntry, "open/file"),
        (FileEntry, "zebra"),
    ]


def test_a_folder_that_vanishes_meanwhile_is_passed_over(root: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    put(root, b"open/file", b"gone/file", b"zebra")
    refuse(monkeypatch, b"/gone", 2)
    assert uris(Walk(root, Selection())) == ["open/file", "zebra"]


def refuse(monkeypatch: pytest.MonkeyPatch, ending: bytes, error: int) -> None:
    def refusing(path: bytes, flags: int) -> int:
        if path.endswith(ending):
            raise OSError(error, os.strerror(error), path)
        return open_unlinked(path, flags)

    monkeypatch.setattr("headwater.ingest.folder.walk.open_unlinked", refusing)


def test_patterns_and_avoided_folders(root: bytes) -> None:
    put(root, b"a.xml", b"a.txt", b"drafts/b.xml", b"out/c.xml", b".git/d.xml", b".e.xml")
    os.symlink(b"out", os.path.join(root, b"to-out"))
    walk = Walk(root, Selection(["*.xml"], ["drafts/", ".git"]), avoid=[os.path.join(root, b"out")])
    assert uris(walk) == [".e.xml", "a.xml"]
    assert list(walk.at(b"out/c.xml")) == []
    assert list(walk.at(b"to-out/c.xml")) == []
    assert list(walk.at(b"drafts/b.xml")) == []
    assert list(walk.at(b"a.txt")) == []
    assert [one.uri for one in walk.at(b"a.xml")] == ["a.xml"]


def test_a_look_at_one_place(root: bytes) -> None:
    put(root, b"a/b/c", b"a/b/d", b"a/e", b"f")
    walk = Walk(root, Selection())
    assert [one.uri for one in walk.at(b"a/b")] == ["a/b/c", "a/b/d"]
    assert [one.uri for one in walk.at(b"a")] == ["a/b/c", "a/b/d", "a/e"]
    assert [one.uri for one in walk.at(b"f")] == ["f"]
    assert list(walk.at(b"f/g")) == list(walk.at(b"nothing")) == list(walk.at(b"a/nothing/more")) == []


@pytest.mark.parametrize("kind", ["missing", "file", "dangling"])
def test_a_root_that_is_no_folder(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "root"
    if kind == "file":
        path.write_text("")
    if kind == "dangling":
        path.symlink_to("nowhere")
    with pytest.raises(RootFault):
        Walk(os.fsencode(path), Selection())


def test_very_deep_folders(root: bytes) -> None:
    deep = b"/".join([b"d" * 100] * 35)
    put(root, deep + b"/file")
    assert uris(Walk(root, Selection())) == [quote(deep + b"/file")]
