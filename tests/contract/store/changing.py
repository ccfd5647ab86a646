"""The contract of putting and deleting: whole objects or none, at every moment."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator

import pytest

from headwater.storage.folder_store import FolderStore
from headwater.storage.object_store import MARK_OCTETS, TEXT, XML, ZIP, Coding, ObjectKind, octets_of
from tests.contract.store.backend import StoreBackend, content, opened, read, stat

KINDS = [XML, TEXT, ZIP, ObjectKind("text/turtle", has_gzip=True), ObjectKind("application/n-quads", has_gzip=False)]
BLOCK = 1 << 16


class _Stopped(BaseException):
    """The writer is no more."""


def blocks(count: int, octet: bytes = b"x") -> Iterator[bytes]:
    """So many blocks of one octet over and over."""
    for _ in range(count):
        yield octet * BLOCK


def written_by_one_that_fails(store: FolderStore, name: str, kind: ObjectKind) -> None:
    """Write into an object as into a file, and raise."""
    with store.writer(name, kind) as writing:
        writing.write(b"x" * BLOCK)
        raise _Stopped


def is_absent(store: FolderStore, name: str) -> bool:
    """Whether nothing is told of an object, whichever way it is asked for."""
    told = (store.stat(name), store.version(name), store.noted_etag(name), store.mark(name))
    return set(told) == {None} and all(store.open(name, coding) is None for coding in Coding)


class ChangingContract:
    """The contract of putting and deleting."""

    @pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.media_type)
    @pytest.mark.parametrize("octets", [b"", b"x", b"\0" * 300_000], ids=["empty", "one", "300k"])
    def test_an_object_is_what_was_put(self, backend: StoreBackend, kind: ObjectKind, octets: bytes) -> None:
        store = backend.fresh()
        done = store.put("s/a", [octets[:7], b"", octets[7:]], kind, lambda: "its mark")
        assert done.is_new
        for one in (store, backend.again(store)):
            stored = stat(one, "s/a")
            assert (stored.name, stored.octets, stored.etag) == ("s/a", len(octets), done.stored.etag)
            assert (stored.media_type, stored.mark, stored.is_vouched) == (kind.media_type, "its mark", True)
            assert (stored.gzip_octets is not None) == kind.has_gzip
            assert (one.noted_etag("s/a"), one.mark("s/a")) == (stored.etag, "its mark")
            assert one.version("s/a") == stored.version
            for coding in Coding:
                with opened(one, "s/a", coding) as found:
                    assert found.coding is (coding if kind.has_gzip else Coding.IDENTITY)
                    assert found.octets == (stored.gzip_octets if found.coding is Coding.GZIP else len(octets))
                    assert content(found) == octets
                    assert found.is_unchanged()

    def test_what_is_not_there(self, store: FolderStore) -> None:
        assert is_absent(store, "a")
        store.delete("a")
        store.put("a/b", [b"x"])
        assert is_absent(store, "a/b/c")
        store.delete("a/b/c")
        assert list(store.names()) == ["a/b"]

    def test_equal_octets_have_one_etag_and_other_octets_another(self, store: FolderStore) -> None:
        etags = [
            store.put(f"a{number}", [octets], kind).stored.etag
            for number, (octets, kind) in enumerate([(b"x", XML), (b"x", ZIP), (b"y", XML), (b"", XML), (b"xx", XML)])
        ]
        assert etags[0] == etags[1]
        assert len(set(etags)) == 4

    def test_another_state_has_another_version(self, backend: StoreBackend) -> None:
        store = backend.fresh()
        other = backend.again(store)
        seen = set()
        for number in range(20):  # as fast as can be, and of one size
            for kind in (XML, ZIP):
                store.put("a", [b"%02d" % number], kind)
                assert store.version("a") == other.version("a") == stat(other, "a").version
                assert read(other, "a") == b"%02d" % number
            seen.add(store.version("a"))
        assert len(seen) == 20
        assert None not in seen

    @pytest.mark.parametrize("kind", [XML, ZIP], ids=["gzip", "no gzip"])
    def test_to_put_what_is_there_changes_nothing(self, backend: StoreBackend, kind: ObjectKind) -> None:
        store = backend.fresh()
        first = store.put("a", [b"some", b"thing"], kind, lambda: "first")
        for one in (store, backend.again(store)):
            again = one.put("a", [b"something"], kind, lambda: "second")
            assert not again.is_new
            assert again.stored == first.stored == stat(one, "a")
            assert one.mark("a") == "first"

    def test_an_object_may_become_one_of_another_kind(self, backend: StoreBackend) -> None:
        store = backend.fresh()
        for kind in (XML, ZIP, TEXT, KINDS[3], KINDS[4], XML):
            store.put("a", [b"the same"], kind, lambda: "m")
            for one in (store, backend.again(store)):
                stored = stat(one, "a")
                assert (stored.media_type, stored.gzip_octets is not None) == (kind.media_type, kind.has_gzip)
                assert (stored.mark, stored.is_vouched) == ("m", True)
                assert read(one, "a", Coding.GZIP) == b"the same"
        assert list(store.names()) == ["a"]

    def test_the_mark_is_asked_for_after_the_last_octets(self, store: FolderStore) -> None:
        seen: list[bytes] = []

        def chunks() -> Iterator[bytes]:
            for chunk in (b"one", b"two"):
                seen.append(chunk)
                yield chunk

        store.put("a", chunks(), mark=lambda: f"after {len(seen)}")
        assert store.mark("a") == stat(store, "a").mark == "after 2"
        store.put("a", [b"three"])
        assert store.mark("a") is stat(store, "a").mark is None

    @pytest.mark.parametrize("kind", [XML, ZIP], ids=["gzip", "no gzip"])
    @pytest.mark.parametrize("mark", ["x" * (MARK_OCTETS + 1), "é", "a\nb", "a\0b", " a"], ids=ascii)
    def test_a_mark_that_cannot_be_kept_changes_nothing(self, store: FolderStore, kind: ObjectKind, mark: str) -> None:
        store.put("a", [b"old"], kind, lambda: "x" * MARK_OCTETS)
        with pytest.raises(ValueError, match="not a mark"):
            store.put("a", [b"new"], kind, lambda: mark)
        assert read(store, "a") == read(store, "a", Coding.GZIP) == b"old"
        assert store.mark("a") == "x" * MARK_OCTETS

    @pytest.mark.parametrize("kind", [XML, ZIP], ids=["gzip", "no gzip"])
    @pytest.mark.parametrize("before", [None, b"before"], ids=["new", "replaced"])
    def test_a_writer_that_fails_midway_changes_nothing(
        self, backend: StoreBackend, kind: ObjectKind, before: bytes | None
    ) -> None:
        store = backend.fresh()
        if before is not None:
            store.put("s/a", [before], kind, lambda: "m")
        was = store.stat("s/a")

        def failing() -> Iterator[bytes]:
            yield from blocks(5)
            raise _Stopped

        with pytest.raises(_Stopped):
            store.put("s/a", failing(), kind)
        with pytest.raises(_Stopped):
            written_by_one_that_fails(store, "s/a", kind)
        for one in (store, backend.again(store)):
            assert one.stat("s/a") == was
            assert list(one.names()) == ([] if before is None else ["s/a"])
        assert store.clean() == 0

    def test_what_a_killed_writer_has_left_is_never_seen_and_cleaned_away(self, backend: StoreBackend) -> None:
        store = backend.fresh()
        store.put("s/a", [b"before"])
        dead = [store.writer("s/a"), store.writer("s/b.zip", ZIP), store.writer("new/c")]
        for context in dead:
            context.__enter__().write(b"x" * BLOCK)
        other = backend.again(store)
        assert list(store.names()) == list(other.names()) == ["s/a"]
        assert read(other, "s/a") == b"before"
        assert is_absent(store, "s/b.zip")
        assert is_absent(other, "new/c")
        other.clean()
        assert other.clean() == 0
        assert list(other.names()) == ["s/a"]
        assert other.put("new/c", [b"now"]).is_new
        assert read(store, "new/c") == b"now"

    def test_a_package_is_written_as_into_a_file(self, store: FolderStore) -> None:
        names = [f"{number}.txt" for number in range(50)]
        with store.writer("s/package.zip", ZIP) as writing, zipfile.ZipFile(writing, "w") as package:  # type: ignore[call-overload]
            for name in names:
                package.writestr(name, name * 1_000)
        stored = writing.result.stored
        assert writing.result.is_new
        assert stored == stat(store, "s/package.zip")
        with opened(store, "s/package.zip") as found:
            octets = content(found)
        assert octets[:4] == b"PK\3\4"
        assert sum(octets.count(name.encode() * 1_000) for name in names) >= len(names)

    def test_a_reader_keeps_what_it_has_opened_when_it_is_replaced(self, store: FolderStore) -> None:
        before = b"".join(blocks(40, b"a"))
        for kind in (XML, ZIP):
            store.put("a", [before], kind)
            readers = [opened(store, "a", coding) for coding in Coding]
            first = [one.read(0, 10) for one in readers]
            store.put("a", blocks(40, b"b"), kind)
            for one, begin in zip(readers, first, strict=True):
                assert one.read(0, 10) == begin
                assert content(one) == before
                one.close()
            assert read(store, "a") == b"".join(blocks(40, b"b"))

    def test_a_reader_keeps_what_it_has_opened_when_it_is_deleted(self, backend: StoreBackend) -> None:
        store = backend.fresh()
        store.put("s/a", blocks(40, b"a"))
        found = opened(store, "s/a")
        taken = b"".join(octets_of(found, 0, BLOCK))
        store.delete("s/a")
        assert is_absent(store, "s/a")
        assert is_absent(backend.again(store), "s/a")
        assert list(store.names()) == []
        taken += b"".join(octets_of(found, BLOCK, found.octets))
        found.close()
        assert taken == b"".join(blocks(40, b"a"))
        assert store.put("s/a", [b"again"]).is_new
        assert read(store, "s/a") == b"again"

    def test_readers_never_see_half_an_object_nor_forms_of_two_states(self, backend: StoreBackend) -> None:
        """AMB-63: at every moment the old object or the new one, in both forms, each with its own ETag and mark."""
        store = backend.fresh()
        versions = [bytes([65 + number]) * (1 + number * 40_000) for number in range(6)]
        etags = {store.put("a", [one], mark=lambda one=one: f"{len(one)}").stored.etag: one for one in versions}  # type: ignore[misc]
        stop, wrong, seen = threading.Event(), list[str](), [0, 0]

        def look(number: int) -> None:
            readers = (store, backend.again(store))
            while not stop.is_set():
                for reader in readers:
                    for coding in Coding:
                        with opened(reader, "a", coding) as found:
                            expected = etags.get(found.stored.etag)
                            if content(found) != expected or found.stored.mark not in (None, str(len(expected))):
                                wrong.append(found.stored.etag)
                    seen[number] += 1

        threads = [threading.Thread(target=look, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        while min(seen) < 60 and any(thread.is_alive() for thread in threads):
            for version in versions:
                store.put("a", [version], mark=lambda version=version: f"{len(version)}")  # type: ignore[misc]
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert min(seen) >= 60
