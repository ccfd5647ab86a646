"""Opening without following links: by one system call, and by steps where that call is not to be had."""

import ctypes
import errno
import gc
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.files import nofollow
from headwater.files.nofollow import Opener, open_by_steps, open_unlinked

READ = os.O_RDONLY | os.O_CLOEXEC
ONLY_PATH = getattr(os, "O_PATH", os.O_RDONLY) | os.O_CLOEXEC


@pytest.fixture(autouse=True)
def tree(tmp_path: Path) -> Iterator[Path]:
    root = tmp_path / "tree"
    (root / "a/b").mkdir(parents=True)
    (root / "a/b/file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_text("secret")
    (root / "a/link").symlink_to("b")
    (root / "a/absolute").symlink_to(root / "a/b")
    (root / "a/out").symlink_to(tmp_path / "outside")
    (root / "a/to-file").symlink_to("b/file")
    (root / "a/loop").symlink_to("loop")
    gc.collect()  # what other tests have left is closed before, not in the middle
    before = len(os.listdir("/proc/self/fd"))
    yield root
    assert len(os.listdir("/proc/self/fd")) == before, "every descriptor is given back"


def outcome(opener: Opener, path: bytes, flags: int) -> str:
    try:
        descriptor = opener(path, flags)
    except OSError as cause:
        return errno.errorcode[cause.errno or 0]
    try:
        if flags & ONLY_PATH == ONLY_PATH:
            return os.readlink(f"/proc/self/fd/{descriptor}").rpartition("/tree/")[2]
        return os.read(descriptor, 100).decode()
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("opener", [open_unlinked, open_by_steps])
@pytest.mark.parametrize("way", ["absolute", "relative"])
@pytest.mark.parametrize(
    ("path", "flags", "expected"),
    [
        (b"a/b/file", READ, "inside"),
        (b"a//b/./file", READ, "inside"),
        (b"a/link/file", READ, "ELOOP"),
        (b"a/absolute/file", READ, "ELOOP"),
        (b"a/out/file", READ, "ELOOP"),
        (b"a/to-file", READ, "ELOOP"),
        (b"a/to-file", ONLY_PATH, "ELOOP"),
        (b"a/loop/x", READ, "ELOOP"),
        (b"a/b/nothing", READ, "ENOENT"),
        (b"nothing/file", READ, "ENOENT"),
        (b"a/b/file/x", READ, "ENOTDIR"),
        (b"a/" + b"n" * 300, READ, "ENAMETOOLONG"),
        (b"a/b", ONLY_PATH | os.O_DIRECTORY, "a/b"),
        (b"a/out", ONLY_PATH | os.O_DIRECTORY, "ELOOP"),
    ],
)
def test_no_name_may_be_a_link(
    tree: Path, monkeypatch: pytest.MonkeyPatch, opener: Opener, way: str, path: bytes, flags: int, expected: str
) -> None:
    if way == "absolute":
        path = os.path.realpath(os.fsencode(tree)) + b"/" + path
    else:
        monkeypatch.chdir(tree)
    assert outcome(opener, path, flags) == expected


@pytest.mark.parametrize("opener", [open_unlinked, open_by_steps])
def test_what_is_opened_is_not_inherited_and_a_name_is_whole(tree: Path, opener: Opener) -> None:
    path = os.path.realpath(os.fsencode(tree)) + b"/a/b/file"
    descriptor = opener(path, READ)
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    with pytest.raises(ValueError, match="null"):
        opener(path + b"\0/../../secret", READ)


@pytest.mark.skipif(sys.platform != "linux", reason="leases are Linux's")
@pytest.mark.parametrize("opener", [open_unlinked, open_by_steps])
def test_nobody_waits_for_a_file_that_another_process_keeps_to_itself(tree: Path, opener: Opener) -> None:
    """By a lease (fcntl(2)), as file servers take them: to wait for its end could take 45 seconds."""
    program = (
        "import fcntl, os, signal, sys; signal.signal(signal.SIGIO, signal.SIG_IGN);"
        "held = os.open(sys.argv[1], os.O_RDWR); fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK);"
        "print('held', flush=True); sys.stdin.read()"
    )
    path = os.path.realpath(os.fsencode(tree)) + b"/a/b/file"
    command = [sys.executable, "-I", "-S", "-c", program, os.fsdecode(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        try:
            if holder.stdout.readline() != b"held\n":
                pytest.skip("the file system knows no leases")
            began = time.process_time()
            assert outcome(opener, path, READ | os.O_NONBLOCK) == "EAGAIN"
            assert time.process_time() - began < 2, "no processor is spent on it"
        finally:
            holder.kill()
            holder.stdin.close()
            holder.stdout.close()


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.EPERM])
def test_a_kernel_without_the_call_is_no_obstacle(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    class Library:
        class syscall:
            def __new__(cls, *_arguments: object) -> int:  # type: ignore[misc]
                ctypes.set_errno(error)
                return -1

    monkeypatch.setattr(ctypes, "CDLL", lambda *_arguments, **_options: Library)
    assert nofollow._best() is open_by_steps
