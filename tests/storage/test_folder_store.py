"""The folder store: whole documents or none, at every moment, in both forms."""

import gzip
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import Exit, StoreFault
from headwater.storage.folder_store import TEMPORARY, BadName, CannotWrite, FolderStore, StoredDocument
from headwater.storage.gzip_member import GzipCompressor, header, read_label


def gzip_of(stored: StoredDocument | None) -> Path:
    assert stored is not None
    assert stored.gzip_path is not None
    return stored.gzip_path


def held(store: FolderStore, name: str) -> StoredDocument:
    stored = store.get(name)
    assert stored is not None
    return stored


def opened(store: FolderStore, name: str, *, coded: bool = False) -> tuple[str, bytes]:
    """The tag and the octets of what is opened."""
    found = store.open(name, coded=coded)
    assert found is not None
    with found[1] as file:
        return found[0].etag, file.read()


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_a_document_is_written_in_both_forms(tmp_path):
    store = FolderStore(tmp_path / "made")
    stored = store.write("files/resourcelist.xml", [b"<a>", b"", b"</a>"])
    assert stored.written
    assert stored.path.read_bytes() == b"<a></a>"
    assert gzip.decompress(gzip_of(stored).read_bytes()) == b"<a></a>"
    assert (stored.octets, stored.gzip_octets) == (7, gzip_of(stored).stat().st_size)
    assert files(tmp_path / "made") == ["files/resourcelist.xml", "files/resourcelist.xml.gz"]
    assert held(store, "files/resourcelist.xml").etag == stored.etag


def test_the_same_octets_leave_everything_untouched(tmp_path):
    first = FolderStore(tmp_path).write("a.xml", [b"x" * 100_000])
    before = [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (first.path, gzip_of(first))]
    again = FolderStore(tmp_path).write("a.xml", [b"x" * 50_000, b"x" * 50_000])
    assert not again.written
    assert again.etag == first.etag
    assert before == [(path.stat().st_ino, path.stat().st_mtime_ns) for path in (first.path, gzip_of(first))]


def test_the_gzip_form_is_the_same_for_the_same_octets(tmp_path):
    one = FolderStore(tmp_path / "one").write("a.xml", [b"abc" * 200_000])
    other = FolderStore(tmp_path / "other").write("b/c.xml", [b"abc", b"abc" * 150_000, b"", b"abc" * 49_999])
    assert gzip_of(one).read_bytes() == gzip_of(other).read_bytes()
    assert gzip_of(one).read_bytes()[4:8] == b"\0\0\0\0"  # no time in the header (AMB-14, RFC 1952)


@pytest.mark.parametrize(
    "content", [b"", b"x", b"\0" * (1 << 20), os.urandom(300_000)], ids=["empty", "one", "1M", "random"]
)
def test_any_content_comes_back(tmp_path, content):
    store = FolderStore(tmp_path, durable=False)
    stored = store.write("a.xml", [content[i : i + 70_001] for i in range(0, len(content), 70_001)])
    assert gzip.decompress(gzip_of(stored).read_bytes()) == content
    for coded in (False, True):
        etag, data = opened(store, "a.xml", coded=coded)
        assert etag == stored.etag
        assert (gzip.decompress(data) if coded else data) == content


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_a_gzip_member_is_a_gzip_member(chunks):
    coder = GzipCompressor()
    body = b"".join(coder.add(chunk) for chunk in chunks)
    member = header("label") + body + coder.finish()
    assert gzip.decompress(member) == b"".join(chunks)
    assert read_label(member) == "label"


@pytest.mark.parametrize(
    "head", [b"", b"\x1f\x8b", gzip.compress(b"x", mtime=0), header("ok")[:12], b"\x1f\x8b\x08\x10" + b"\xff" * 200]
)
def test_a_foreign_gzip_header_has_no_label(head):
    assert read_label(head) is None


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/", "a//b", "../a", "a/../b", "a/..", ".", "a\0b", "a\\b", "a.gz", "files/" + TEMPORARY + "x", "./a"],
)
def test_names_do_not_leave_the_folder(tmp_path, name):
    store = FolderStore(tmp_path / "store")
    for attempt in (store.get, store.remove, lambda name: store.write(name, [b"x"]), store.open):
        with pytest.raises(BadName):
            attempt(name)
    assert files(tmp_path) == []


def test_a_gzip_form_of_other_octets_is_not_offered(tmp_path):
    store = FolderStore(tmp_path)
    old = store.write("a.xml", [b"old"])
    left_behind = gzip_of(old).read_bytes()
    new = store.write("a.xml", [b"new"])
    gzip_of(new).write_bytes(left_behind)
    fresh = FolderStore(tmp_path)
    assert held(fresh, "a.xml").gzip_path is None
    assert opened(fresh, "a.xml", coded=True)[1] == b"new"
    # It is mended by the next write, though the document itself is not touched.
    mended = fresh.write("a.xml", [b"new"])
    assert not mended.written
    assert mended.path.stat().st_ino == new.path.stat().st_ino
    assert gzip.decompress(gzip_of(mended).read_bytes()) == b"new"


def test_a_gzip_form_that_was_cut_off_is_not_offered_and_not_sound(tmp_path):
    store = FolderStore(tmp_path)
    stored = store.write("a.xml", [b"some octets " * 1_000])
    assert store.is_sound("a.xml")
    os.truncate(gzip_of(stored), gzip_of(stored).stat().st_size - 3)
    assert not store.is_sound("a.xml")
    for one in (store, FolderStore(tmp_path)):
        assert opened(one, "a.xml", coded=True)[1] == b"some octets " * 1_000
    store.write("a.xml", [b"some octets " * 1_000])
    assert store.is_sound("a.xml")
    assert gzip.decompress(gzip_of(stored).read_bytes()) == b"some octets " * 1_000


def test_what_was_opened_goes_on_giving_its_octets(tmp_path):
    store = FolderStore(tmp_path)
    store.write("a.xml", [b"old"])
    found = store.open("a.xml")
    assert found is not None
    store.write("a.xml", [b"newer"])
    with found[1] as file:
        assert file.read() == b"old"


def test_names_are_listed_in_order_without_what_is_not_ours(tmp_path):
    store = FolderStore(tmp_path, foreign=frozenset({"resources", ".headwater"}))
    for name in (
        "files/b.xml",
        "files/a.xml",
        "robots.txt",
        ".well-known/resourcesync",
        "files/resourcelist/00000.xml",
    ):
        store.write(name, [name.encode()])
    for foreign in ("files/resources/x", ".headwater/catalog.sqlite"):
        path = tmp_path / foreign
        path.parent.mkdir()
        path.write_bytes(b"")
    assert set(store.names()) == {
        "files/b.xml",
        "files/a.xml",
        "robots.txt",
        ".well-known/resourcesync",
        "files/resourcelist/00000.xml",
    }
    assert list(store.names("files/a")) == ["files/a.xml"]
    store.remove("files/a.xml")
    store.remove("files/a.xml")
    assert store.get("files/a.xml") is None
    assert list(store.names("files/a")) == []
    every = list(store.names())
    for prefix in ("f", "files", "files/", "files/resourcelist/0", "files/resources/", ".headwater/", "x/", "../", "/"):
        assert list(store.names(prefix)) == [name for name in every if name.startswith(prefix)]


def test_half_written_files_are_removed_at_start(tmp_path):
    FolderStore(tmp_path).write("files/a.xml", [b"a"])
    (tmp_path / "files" / (TEMPORARY + "0123")).write_bytes(b"half")
    (tmp_path / "files" / "resources").mkdir()
    kept = tmp_path / "files" / "resources" / (TEMPORARY + "theirs")
    kept.write_bytes(b"")
    store = FolderStore(tmp_path, foreign=frozenset({"resources"}))
    assert list(store.names()) == ["files/a.xml"]
    assert kept.exists()
    assert len(list((tmp_path / "files").glob(TEMPORARY + "*"))) == 0


def test_a_failing_source_of_octets_changes_nothing(tmp_path):
    store = FolderStore(tmp_path)
    store.write("a.xml", [b"old"])

    def failing():
        yield b"new"
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError):
        store.write("a.xml", failing())
    assert held(store, "a.xml").path.read_bytes() == b"old"
    assert files(tmp_path) == ["a.xml", "a.xml.gz"]


@pytest.mark.parametrize("step", ["replace", "fsync"])
def test_a_disk_that_refuses_is_a_store_fault(tmp_path, monkeypatch, step):
    store = FolderStore(tmp_path)
    store.write("a.xml", [b"old"])

    def refuse(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(f"headwater.storage.folder_store.os.{step}", refuse)
    with pytest.raises(CannotWrite, match="No space left") as fault:
        store.write("a.xml", [b"new"])
    assert isinstance(fault.value, StoreFault)
    assert fault.value.exit_status is Exit.STORE
    monkeypatch.undo()
    assert held(store, "a.xml").path.read_bytes() == b"old"
    assert files(tmp_path) == ["a.xml", "a.xml.gz"]


def test_a_full_disk_is_a_store_fault():
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with pytest.raises(CannotWrite):
        FolderStore(Path("/dev/full"))


def test_a_file_where_a_folder_should_be_is_a_store_fault(tmp_path):
    store = FolderStore(tmp_path)
    store.write("files", [b"x"])
    with pytest.raises(CannotWrite):
        store.write("files/a.xml", [b"x"])
    assert store.get("files/a.xml") is None


def test_a_reader_never_sees_half_a_document(tmp_path):
    """AMB-63: at every moment the old document or the new one, in both forms, each with its own tag."""
    store = FolderStore(tmp_path, durable=False)
    versions = [bytes([65 + number]) * (1 + number * 40_000) for number in range(6)]
    tags = {store.write("a.xml", [version]).etag: version for version in versions}
    stop = threading.Event()
    wrong: list[str] = []
    seen = [0]

    def read():
        other = FolderStore(tmp_path, clean=False)
        while not stop.is_set():
            for reader in (store, other):
                for coded in (False, True):
                    etag, data = opened(reader, "a.xml", coded=coded)
                    if data[:2] == b"\x1f\x8b":
                        data = gzip.decompress(data)
                    if tags.get(etag) != data:
                        wrong.append(etag)
                    seen[0] += 1

    threads = [threading.Thread(target=read) for _number in range(2)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 1.5
    while time.monotonic() < until or seen[0] < 50:
        for version in versions:
            store.write("a.xml", [version])
    stop.set()
    for thread in threads:
        thread.join()
    assert wrong == []


WRITER = textwrap.dedent("""
    import itertools, sys
    from pathlib import Path
    from headwater.storage.folder_store import FolderStore
    store = FolderStore(Path(sys.argv[1]), durable=False)
    print("ready", flush=True)
    for number in itertools.count():
        store.write("files/a.xml", [bytes([65 + number % 20]) * 60_000] * 3)
        print(number, flush=True)
""")


def test_a_killed_writer_leaves_whole_documents(tmp_path):
    """Killed while it writes on: each time after another number of documents, and a moment later."""
    for attempt in range(12):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _line in range(2 + attempt):  # "ready", then at least one document
            process.stdout.readline()
        time.sleep(0.0003 * attempt)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        store = FolderStore(tmp_path, durable=False)
        stored = held(store, "files/a.xml")
        content = stored.path.read_bytes()
        assert len(content) == 180_000
        assert len(set(content)) == 1
        if stored.gzip_path is not None:
            assert gzip.decompress(gzip_of(stored).read_bytes()) == content
        assert not [name for name in files(tmp_path) if TEMPORARY in name]


def test_a_mark_changes_with_the_document_and_is_told_even_of_a_damaged_one(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, durable=False)
    assert store.mark("a.xml") is None
    first = store.write("a.xml", [b"one"], lambda: "first 1")
    assert store.mark("a.xml") == "first 1"
    assert store.labelled_etag("a.xml") == first.etag
    assert not store.write("a.xml", [b"one"], lambda: "again").written
    assert store.mark("a.xml") == "first 1", "nothing is touched"
    seen = []
    store.write("a.xml", (seen.append(one) or one for one in [b"t", b"wo"]), lambda: f"after {len(seen)}")  # type: ignore[func-returns-value]
    assert store.mark("a.xml") == "after 2", "it is asked for after the last chunk"
    stored = store.get("a.xml")
    assert stored is not None
    assert stored.gzip_path is not None
    assert gzip.decompress(stored.gzip_path.read_bytes()) == b"two"
    (store.root / "a.xml").write_bytes(b"t")
    assert not store.is_sound("a.xml")
    assert store.mark("a.xml") == "after 2"
    store.write("a.xml", [b"three"])
    assert store.mark("a.xml") is None
