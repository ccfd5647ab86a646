"""A store that an older program has left, with packs: read by who may only read, moved once by who fills it."""

from __future__ import annotations

import datetime as dt
import hashlib
import signal
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from headwater.versions.retention import damaged
from headwater.versions.store import VersionStore, VersionsUnusable
from tests.support.kept_versions import keep_octets, kept_octets, opened

SAMPLE = Path(__file__).resolve().parent.parent / "data" / "upgrade" / "216391f-versions.tar.xz"
TEXTS = [b"version %03d\n" % number * (5 + number % 7) for number in range(60)]
DEAD = TEXTS[::10]
"""In packs, and removed."""
LARGE, EARLY = b"large " * 30_000, b"of an earlier program\n"
"""In files."""
LIVE = [one for one in (*TEXTS, b"", LARGE, EARLY) if one not in DEAD]
BEGIN = dt.datetime.fromtimestamp(1_750_000_000, dt.UTC)


def digest(octets: bytes) -> str:
    return hashlib.sha256(octets).hexdigest()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(tmp_path, filter="fully_trusted")
    return tmp_path / "versions"


def assert_moved(folder: Path, contents: list[bytes]) -> None:
    assert kept_octets(folder) == {digest(one): one for one in contents}
    assert not (folder / "packs").exists()
    assert not list(folder.glob("index.sqlite*"))


def test_packs_are_moved_once_with_the_times_of_use(folder: Path) -> None:
    assert_moved(folder, LIVE)
    with opened(folder) as store:
        used = {one.digest: one.used_at for one in store.versions()}
        assert used[digest(EARLY)] == BEGIN
        assert all(dt.timedelta() < used[digest(one)] - BEGIN < dt.timedelta(minutes=5) for one in TEXTS if one in LIVE)
        assert list(damaged(store)) == []
        keep_octets(store, TEXTS[0], EARLY)
        assert set(store.delete([digest(one) for one in LIVE], BEGIN + dt.timedelta(days=1))) == {
            digest(one) for one in LIVE if one not in (EARLY, LARGE)
        }
    assert kept_octets(folder) == {digest(one): one for one in (TEXTS[0], EARLY, LARGE)}


def test_who_only_reads_moves_nothing(folder: Path) -> None:
    def tree() -> dict[str, tuple[int, int]]:
        return {str(one): (one.stat().st_mtime_ns, one.stat().st_size) for one in folder.rglob("*")}

    before = tree()
    with closing(VersionStore(folder, is_read_only=True)) as store:
        assert {one.digest for one in store.versions()} == {digest(one) for one in LIVE}
        assert list(damaged(store)) == []
    assert tree() == before


def test_without_their_index_packs_are_read_as_far_as_they_are_sound(folder: Path) -> None:
    """What was removed comes back, until it is removed again: only the index has told of it."""
    (folder / "index.sqlite").unlink()
    pack = max((folder / "packs").iterdir(), key=lambda one: one.stat().st_size)
    octets = pack.read_bytes()
    first = octets[44 : 44 + int.from_bytes(octets[4:12], "little")]
    pack.write_bytes(octets[:44] + b"?" + octets[45:])
    assert_moved(folder, [one for one in (*LIVE, *DEAD) if one != first])


def test_octets_that_the_disk_has_altered_are_told_after_the_move(folder: Path) -> None:
    """A pack that is cut off, or gone, has lost versions; what it has is moved."""
    packs = sorted((folder / "packs").iterdir(), key=lambda one: one.stat().st_size)
    packs[0].unlink()
    octets = packs[1].read_bytes()
    packs[1].write_bytes(octets[:44] + bytes([octets[44] ^ 1]) + octets[45 : len(octets) // 2])
    with opened(folder) as store:
        assert len(list(damaged(store))) <= 1
        kept = {one.digest for one in store.versions()}
    assert {digest(LARGE), digest(EARLY)} < kept < {digest(one) for one in LIVE}


def test_an_index_of_another_program_is_told_and_nothing_is_removed(folder: Path) -> None:
    (folder / "index.sqlite").write_bytes(b"no database" * 100)
    with opened(folder) as store, pytest.raises(VersionsUnusable):
        store.has(digest(b""))
    assert len(list((folder / "packs").iterdir())) == 3


KILLED = """if True:
    import sys
    from pathlib import Path
    from headwater.versions.store import VersionStore
    from tests.versions.killed_keeping import die_at
    die_at(int(sys.argv[1]))
    VersionStore(Path(sys.argv[2])).has("0" * 64)
"""
"""A process that opens a store, and is killed at a step."""


@pytest.mark.long(8)
def test_a_move_that_is_killed_at_any_step_goes_on(folder: Path) -> None:
    """Each process is killed a step later than the one before, until one comes to its end."""
    for step in range(1, 200):
        command = [sys.executable, "-c", KILLED, str(step), str(folder)]
        ended = subprocess.run(command, check=False, capture_output=True)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr.decode()
        with closing(VersionStore(folder, is_read_only=True)) as store:
            assert {one.digest for one in store.versions()} == {digest(one) for one in LIVE}
        if ended.returncode == 0:
            break
    else:
        pytest.fail("it never comes to its end")
    assert step > 10
    assert_moved(folder, LIVE)
