"""The folder store: what the contract of object stores does not say, of its files."""

import gzip
import hashlib
import io
import os
import signal
import subprocess
import sys
import textwrap
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import Exit, StoreFault
from headwater.storage.folder_store import NOTE, TEMPORARY, FolderStore, PendingWrite
from headwater.storage.gzip_member import GzipCompressor, header, read_label
from headwater.storage.object_store import TEXT, XML, ZIP, CannotWrite, Coding
from tests.contract.store.backend import content, opened, read, stat


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def notes(root: Path) -> list[Path]:
    return sorted(root.rglob(f"{NOTE}*"))


def test_a_document_is_two_files_that_a_web_server_can_show(tmp_path):
    store = FolderStore(tmp_path / "made")
    stored = store.put("files/resourcelist.xml", [b"<a>", b"", b"</a>"]).stored
    assert (tmp_path / "made/files/resourcelist.xml").read_bytes() == b"<a></a>"
    gzip_form = (tmp_path / "made/files/resourcelist.xml.gz").read_bytes()
    assert gzip.decompress(gzip_form) == b"<a></a>"
    assert (stored.octets, stored.gzip_octets) == (7, len(gzip_form))
    assert files(tmp_path / "made") == ["files/resourcelist.xml", "files/resourcelist.xml.gz"]


def test_the_same_octets_leave_everything_untouched(tmp_path):
    def states() -> list[tuple[int, int]]:
        return [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (tmp_path / "a.xml", tmp_path / "a.xml.gz")]

    FolderStore(tmp_path).put("a.xml", [b"x" * 100_000])
    before = states()
    assert not FolderStore(tmp_path).put("a.xml", [b"x" * 50_000, b"x" * 50_000]).is_new
    assert states() == before


def test_the_gzip_form_is_the_same_for_the_same_octets(tmp_path):
    FolderStore(tmp_path / "one").put("a.xml", [b"abc" * 200_000])
    FolderStore(tmp_path / "other").put("b/c.xml", [b"abc", b"abc" * 150_000, b"", b"abc" * 49_999])
    gzip_form = (tmp_path / "one/a.xml.gz").read_bytes()
    assert gzip_form == (tmp_path / "other/b/c.xml.gz").read_bytes()
    assert gzip_form[4:8] == b"\0\0\0\0"  # no time in the header (AMB-14, RFC 1952)


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_a_gzip_member_is_a_gzip_member(chunks):
    coder = GzipCompressor()
    body = b"".join(coder.add(chunk) for chunk in chunks)
    member = header("label") + body + coder.finish()
    assert gzip.decompress(member) == b"".join(chunks)
    assert read_label(io.BytesIO(member)) == "label"


@pytest.mark.parametrize(
    "head", [b"", b"\x1f\x8b", gzip.compress(b"x", mtime=0), header("ok")[:12], b"\x1f\x8b\x08\x10" + b"\xff" * 200]
)
def test_a_foreign_gzip_header_has_no_label(head):
    assert read_label(io.BytesIO(head)) is None


def test_a_gzip_form_of_other_octets_is_not_offered(tmp_path):
    store = FolderStore(tmp_path)
    gzip_form = tmp_path / "a.xml.gz"
    store.put("a.xml", [b"old"])
    left_behind = gzip_form.read_bytes()
    store.put("a.xml", [b"new"])
    gzip_form.write_bytes(left_behind)
    fresh = FolderStore(tmp_path)
    assert (stat(fresh, "a.xml").gzip_octets, stat(fresh, "a.xml").is_vouched) == (None, False)
    assert read(fresh, "a.xml", Coding.GZIP) == b"new"
    assert not fresh.put("a.xml", [b"new"]).is_new  # which mends it
    assert gzip.decompress(gzip_form.read_bytes()) == b"new"


def test_a_gzip_form_that_was_cut_off_is_not_offered_and_vouches_for_nothing(tmp_path):
    store = FolderStore(tmp_path)
    gzip_form = tmp_path / "a.xml.gz"
    store.put("a.xml", [b"some octets " * 1_000])
    os.truncate(gzip_form, gzip_form.stat().st_size - 3)
    assert store.noted_etag("a.xml") is None
    for one in (store, FolderStore(tmp_path)):
        assert read(one, "a.xml", Coding.GZIP) == b"some octets " * 1_000
    store.put("a.xml", [b"some octets " * 1_000])
    assert store.noted_etag("a.xml") is not None
    assert gzip.decompress(gzip_form.read_bytes()) == b"some octets " * 1_000


def test_foreign_folders_are_neither_listed_nor_cleaned(tmp_path):
    store = FolderStore(tmp_path, foreign=frozenset({"resources", ".headwater"}))
    store.put("files/a.xml", [b"a"])
    store.put("robots.txt", [b"b"])
    for foreign in ("files/resources/x", f"files/resources/{TEMPORARY}x", ".headwater/catalog.sqlite"):
        path = tmp_path / foreign
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    assert list(store.names()) == ["robots.txt", "files/a.xml"]
    assert list(store.names("files/resources/")) == list(store.names(".headwater/")) == []
    assert store.clean() == 0


def test_a_name_that_is_foreign_above_is_a_folder_like_others_further_below(tmp_path):
    """Else documents there would be served, and never listed: what is published no more would stay for ever."""
    store = FolderStore(tmp_path, foreign=frozenset({"resources"}))
    store.put("set/pages/resources/a.xml", [b"a"])
    assert list(store.names()) == ["set/pages/resources/a.xml"]


@pytest.mark.parametrize(
    ("label", "is_one"),
    [("", True), ("x" * 199, True), ("x" * 200, True), ("x" * 201, False), ("x\0y", False)],
    ids=["none", "long", "longest", "too long", "with an end in it"],
)
def test_a_label_that_is_written_is_read_again_or_refused(label, is_one):
    if not is_one:
        with pytest.raises(ValueError, match="at most 200"):
            header(label)
        return
    coder = GzipCompressor()
    member = header(label) + coder.add(b"octets") + coder.finish()
    assert (read_label(io.BytesIO(header(label))), read_label(io.BytesIO(member), 6)) == (label, label)
    assert read_label(io.BytesIO(member), 7) is None


def test_a_label_that_the_octets_contradict_is_not_what_is_noted(tmp_path):
    """What was read of a damaged document of the same length is remembered, and no document of another state is."""
    store = FolderStore(tmp_path)
    etag = store.put("a.xml", [b"one"]).stored.etag
    (tmp_path / "a.xml").write_bytes(b"two")
    assert store.noted_etag("a.xml") == etag  # nobody has looked yet
    assert stat(store, "a.xml").etag != etag
    assert store.noted_etag("a.xml") is None
    FolderStore(tmp_path).put("a.xml", [b"three"])  # another process: what is remembered is of a former state
    assert store.noted_etag("a.xml") == stat(FolderStore(tmp_path), "a.xml").etag


def test_a_gzip_form_that_was_exchanged_after_it_was_looked_at_is_not_sent(tmp_path):
    store = FolderStore(tmp_path)
    octets = [store.put(name, [body]).stored.gzip_octets for name, body in (("a.xml", b"one"), ("b.xml", b"two"))]
    assert octets[0] == octets[1]
    (tmp_path / "a.xml.gz").write_bytes((tmp_path / "b.xml.gz").read_bytes())
    assert read(store, "a.xml", Coding.GZIP) == b"one"


@pytest.mark.parametrize(
    ("ahead_ns", "is_moved"), [(0, True), (999_999_999, True), (1_000_000_000, False), (-1, False)]
)
def test_an_object_has_not_the_time_of_the_one_that_it_replaces(tmp_path, ahead_ns, is_moved):
    """Its inode may be given to the next again: inode, time and size would tell two states for one."""
    writing = PendingWrite(tmp_path / "a.xml", XML, None)
    writing.begin()
    writing.write(b"two")
    writing.finish()
    (aside,) = [path for path in tmp_path.iterdir() if path.read_bytes() == b"two"]
    own = aside.stat().st_mtime_ns
    before = (1, own + ahead_ns, 3)
    placed = writing.place(before, durable=False)
    assert placed[1] == (tmp_path / "a.xml").stat().st_mtime_ns == (before[1] + 1 if is_moved else own)


def test_what_is_remembered_of_names_and_objects_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr("headwater.storage.folder_store._REMEMBERED", 2)
    store = FolderStore(tmp_path)
    for number in range(5):
        store.put(f"{number}.xml", [b"%d" % number])
    assert [read(store, f"{number}.xml") for number in range(5)] == [b"0", b"1", b"2", b"3", b"4"]
    assert max(len(store._known), store._path.cache_info().currsize) <= 2


def test_half_written_files_are_removed_at_start(tmp_path):
    FolderStore(tmp_path).put("files/a.xml", [b"a"])
    (tmp_path / "files" / (TEMPORARY + "0123")).write_bytes(b"half")
    (tmp_path / "files" / NOTE).write_bytes(b"of nothing")
    assert list(FolderStore(tmp_path).names()) == ["files/a.xml"]
    assert files(tmp_path) == ["files/a.xml", "files/a.xml.gz"]


@pytest.mark.parametrize("kind", [XML, ZIP], ids=["gzip", "no gzip"])
@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_disk_that_refuses_is_a_store_fault(tmp_path, monkeypatch, step, kind):
    store = FolderStore(tmp_path)
    store.put("a.xml", [b"old"], kind)
    before = files(tmp_path)

    def refuse(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, refuse)
    with pytest.raises(CannotWrite, match="No space left") as fault:
        store.put("a.xml", [b"new"], kind)
    assert isinstance(fault.value, StoreFault)
    assert fault.value.exit_status is Exit.STORE
    monkeypatch.undo()
    assert read(store, "a.xml") == b"old"
    assert files(tmp_path) == before


def test_what_the_source_of_the_octets_raises_is_not_taken_for_the_stores_own(tmp_path):
    store = FolderStore(tmp_path)
    store.put("a.xml", [b"old"])
    before = files(tmp_path)

    def chunks():
        yield b"new"
        raise ConnectionResetError("the other store is gone")

    with pytest.raises(ConnectionResetError, match="the other store"):
        store.put("a.xml", chunks())
    assert read(store, "a.xml") == b"old"
    assert files(tmp_path) == before


def test_a_full_disk_is_a_store_fault():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with pytest.raises(CannotWrite):
        FolderStore(Path("/dev/full"))


LIMITED = textwrap.dedent("""
    import resource, signal, sys
    from pathlib import Path
    from headwater.storage.folder_store import FolderStore
    from headwater.storage.object_store import CannotWrite, ZIP
    store = FolderStore(Path(sys.argv[1]), durable=False)
    store.put("a.zip", [b"old"], ZIP)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        store.put("a.zip", [b"x" * 50] * int(sys.argv[2]), ZIP)
    except CannotWrite:
        print("refused")
""")


@pytest.mark.parametrize("pieces", [2_001, 4_000], ids=["at the last", "midway"])
def test_a_file_that_may_not_grow_leaves_the_old_one_and_nothing_else(tmp_path, pieces):
    """What is refused is what a buffer holds, at the end also."""
    command = [sys.executable, "-c", LIMITED, str(tmp_path), str(pieces)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "refused\n"
    assert read(FolderStore(tmp_path, clean=False), "a.zip") == b"old"
    assert len(files(tmp_path)) == 2


def test_what_gives_the_octets_fails_by_its_own_name(tmp_path):
    def unreadable():
        yield b"x"
        raise PermissionError("a resource")

    with pytest.raises(PermissionError):
        FolderStore(tmp_path).put("a.zip", unreadable(), ZIP)
    assert files(tmp_path) == []


def test_a_file_where_a_folder_should_be_is_a_store_fault(tmp_path):
    store = FolderStore(tmp_path)
    store.put("files", [b"x"])
    with pytest.raises(CannotWrite):
        store.put("files/a.xml", [b"x"])
    assert store.stat("files/a.xml") is None


WRITER = textwrap.dedent("""
    import itertools, sys
    from pathlib import Path
    from headwater.storage.folder_store import FolderStore
    from headwater.storage.object_store import XML, ZIP
    store = FolderStore(Path(sys.argv[1]), durable=False)
    print("ready", flush=True)
    for number in itertools.count():
        for name, kind in (("files/a.xml", XML), ("files/a.zip", ZIP)):
            store.put(name, [bytes([65 + number % 20]) * 60_000] * 3, kind, lambda: str(65 + number % 20))
        print(number, flush=True)
""")


def test_a_killed_writer_leaves_whole_objects(tmp_path):
    """Killed while it writes on: each time after another number of objects, and a moment later."""
    for attempt in range(12):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _line in range(2 + attempt):  # "ready", then at least one of each
            process.stdout.readline()
        time.sleep(0.0003 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        store = FolderStore(tmp_path, durable=False)
        for name in ("files/a.xml", "files/a.zip"):
            octets = read(store, name)
            assert len(octets) == 180_000
            assert len(set(octets)) == 1
            assert read(store, name, Coding.GZIP) == octets
            stored = stat(store, name)
            assert stored.mark == (str(octets[0]) if stored.is_vouched else None)
        assert stored.is_vouched, "a package's note is there before it is"
        assert not [name for name in files(tmp_path) if TEMPORARY in name]
        assert len(notes(tmp_path)) == 1


def test_a_mark_is_told_even_of_a_damaged_document(tmp_path):
    store = FolderStore(tmp_path)
    store.put("a.xml", [b"two"], mark=lambda: "after 2")
    (tmp_path / "a.xml").write_bytes(b"t")
    assert store.noted_etag("a.xml") is None
    assert store.mark("a.xml") == "after 2"
    assert (stat(store, "a.xml").is_vouched, stat(store, "a.xml").mark) == (False, None)


@pytest.mark.parametrize("damage", [b"", b"\0" * 80, b'{"etag":"\xff","octets":3}', b"[]"], ids=repr)
def test_a_note_that_is_damaged_vouches_for_nothing(tmp_path: Path, damage: bytes) -> None:
    FolderStore(tmp_path).put("s/a.zip", [b"one"], ZIP, lambda: "mark")
    notes(tmp_path)[0].write_bytes(damage)
    store = FolderStore(tmp_path)
    assert (store.noted_etag("s/a.zip"), store.mark("s/a.zip")) == (None, None)
    assert not stat(store, "s/a.zip").is_vouched
    store.put("s/a.zip", [b"one"], ZIP, lambda: "mark")
    assert stat(store, "s/a.zip").is_vouched


def test_a_package_is_one_file_with_a_note_that_no_other_state_takes_for_its_own(tmp_path):
    store = FolderStore(tmp_path)
    first = store.put("s/a.zip", [b"one"], ZIP, lambda: "first").stored
    (old,) = notes(tmp_path)
    assert len(files(tmp_path)) == 2
    left_behind = old.read_bytes()
    second = store.put("s/a.zip", [b"two"], ZIP, lambda: "second").stored
    assert len(notes(tmp_path)) == 1
    assert not old.exists()
    old.write_bytes(left_behind)  # a crash fell before it was removed
    fresh = FolderStore(tmp_path, clean=False)
    assert stat(fresh, "s/a.zip") == second
    assert fresh.clean() == 1
    assert not old.exists()
    (tmp_path / "s/a.zip").write_bytes(b"one")  # somebody else's
    fresh = FolderStore(tmp_path, clean=False)
    found = stat(fresh, "s/a.zip")
    assert (found.etag, found.is_vouched, found.mark) == (first.etag, False, None)
    assert found.media_type == ZIP.media_type
    fresh.clean()
    fresh.delete("s/a.zip")
    assert files(tmp_path) == []


def test_a_package_of_gigabytes_is_neither_held_nor_read_again(tmp_path, monkeypatch):
    """64 MiB stand for them: what is held at most is a few blocks, and the note tells the digest."""
    block = os.urandom(1 << 20)
    store = FolderStore(tmp_path, durable=False)
    tracemalloc.start()
    try:
        stored = store.put("a.zip", (block for _number in range(64)), ZIP).stored
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()
    assert stored.octets == 64 << 20
    monkeypatch.setattr("headwater.storage.folder_store.new_digest", None)
    assert stat(FolderStore(tmp_path), "a.zip") == stored


@pytest.mark.parametrize("name", ["files/resourcelist.xml", ".well-known/resourcesync", "robots.txt"])
def test_a_store_of_an_earlier_version_is_read(tmp_path, name):
    """It has no notes: documents are XML, and what ends in .txt is text."""
    kind, path, gzip_form = TEXT if name == "robots.txt" else XML, tmp_path / name, tmp_path / f"{name}.gz"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"octets")
    label = f"headwater {hashlib.blake2b(b'octets', digest_size=16).hexdigest()} {6:020d}"
    gzip_form.write_bytes(header(label) + gzip.compress(b"octets")[10:])
    stored = stat(FolderStore(tmp_path), name)
    assert (stored.is_vouched, stored.mark, stored.gzip_octets) == (True, None, gzip_form.stat().st_size)
    assert stored.media_type == kind.media_type
    before = path.stat(), gzip_form.stat()
    assert not FolderStore(tmp_path).put(name, [b"octets"], kind).is_new
    assert (path.stat(), gzip_form.stat()) == before
    with opened(FolderStore(tmp_path), name, Coding.GZIP) as found:
        assert found.coding is Coding.GZIP
        assert content(found) == b"octets"
    FolderStore(tmp_path).put(name, [b"more"], kind)
    assert files(tmp_path) == [name, f"{name}.gz"], "a tree that a web server shows goes on as it is"
