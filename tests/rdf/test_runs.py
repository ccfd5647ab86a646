"""Datasets of any size: sorted, compared and updated, in as many pieces as can be (Hypothesis)."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import UsageFault
from headwater.rdf import BadRdf, RdfBounds, canonical, statements
from headwater.rdf.canonical import BlankNodes, LineSorter, RdfOptions, write_canonical
from headwater.rdf.syntaxes import JSON_LD, N_QUADS, TURTLE, RdfInput, Syntax
from headwater.rdf.unified_diff import write_dataset_patch, write_patch
from tests.rdf.datasets import difference, statement
from tests.support.failing import failing
from tests.support.waiting import until

NUMBERS = st.lists(st.integers(1, 60), max_size=60)


def _here(function: Any, settings: Any, jobs: Any) -> Iterator[Any]:
    done = function(settings)
    for item, job in jobs:
        yield item, done(tuple(job))


@given(NUMBERS, st.integers(1, 500))
def test_any_pieces_come_to_the_sorted_set(numbers: list[int], run: int) -> None:
    lines = [statement(number) for number in numbers]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(canonical, "in_processes", _here)
        source, target = Path(name) / "in", Path(name) / "out"
        source.write_bytes(b"".join(lines))
        found = write_canonical(
            [RdfInput(source, N_QUADS)],
            target,
            scratch=Path(name),
            durable=False,
            options=RdfOptions(bounds=RdfBounds(run_octets=run)),
        )
        assert target.read_bytes() == b"".join(sorted(set(lines)))
        assert found.quads == len(set(lines))
        assert len(list(Path(name).iterdir())) == 2


@given(st.lists(NUMBERS, max_size=8), st.integers(1, 500))
def test_any_blocks_of_lines_are_sorted_as_a_set(blocks: list[list[int]], run: int) -> None:
    with tempfile.TemporaryDirectory() as name, closing(LineSorter(Path(name), RdfBounds(run_octets=run))) as sorter:
        for numbers in blocks:
            sorter.add(b"".join(map(statement, numbers)))
        assert list(sorter.lines()) == sorted({statement(number) for numbers in blocks for number in numbers})


@given(NUMBERS, NUMBERS, st.integers(1, 500), st.integers(1, 2000))
def test_any_datasets_are_compared_as_sets(old: list[int], new: list[int], run: int, of_range: int) -> None:
    bounds = RdfBounds(run_octets=run)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(canonical, "in_processes", _here)
        patched.setattr(statements, "BLOCK", max(of_range, 4))
        files = []
        for number, some in enumerate((old, new)):
            files.append(RdfInput(Path(name) / str(number), N_QUADS))
            files[-1].path.write_bytes(b"".join(map(statement, some)))
        target = io.BytesIO()
        found = write_dataset_patch((files[0], files[1]), target, scratch=Path(name), options=RdfOptions(bounds=bounds))
        less, more = sorted(map(statement, {*old} - {*new})), sorted(map(statement, {*new} - {*old}))
        assert target.getvalue() == b"".join([b"-" + line for line in less] + [b"+" + line for line in more])
        assert (found.removed, found.added) == (len(less), len(more))


def test_a_large_dataset_is_sorted_by_processes(tmp_path: Path) -> None:
    lines = [statement(number * 7919 % 50_000 + 10**6) for number in range(60_000)]
    source, target = tmp_path / "in.nq", tmp_path / "out.nq"
    source.write_bytes(b"".join(lines))
    bounds = RdfBounds(run_octets=500_000)
    write_canonical(
        [RdfInput(source, N_QUADS)], target, scratch=tmp_path, durable=False, options=RdfOptions(bounds=bounds)
    )
    assert target.read_bytes() == b"".join(sorted(set(lines)))
    with (tmp_path / "patch").open("w+b") as file:
        write_dataset_patch((RdfInput(source, N_QUADS), RdfInput(target, N_QUADS)), file, scratch=tmp_path)
    assert (tmp_path / "patch").read_bytes() == difference(target, target) == b""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the system does not list open files")
def test_nothing_stays_open(tmp_path: Path) -> None:
    """Neither of what is compared here, nor of what processes make canonical, sort and compare."""
    source, target = tmp_path / "in.nq", tmp_path / "out.nq"
    source.write_bytes(b"".join(statement(number * 7919 % 5000) for number in range(6000)))
    inputs = (RdfInput(source, N_QUADS), RdfInput(target, N_QUADS))
    before = set(os.listdir("/proc/self/fd"))
    bounds = RdfBounds(run_octets=50_000)
    write_canonical(inputs[:1], target, scratch=tmp_path, durable=False, options=RdfOptions(bounds=bounds))
    write_dataset_patch(inputs, io.BytesIO(), scratch=tmp_path, options=RdfOptions(bounds=bounds))
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_fault_far_inside_is_told_with_its_line(tmp_path: Path) -> None:
    source = tmp_path / "in.nq"
    lines = [statement(number) for number in range(5000)]
    lines[4000] = b"nonsense\n"
    source.write_bytes(b"".join(lines))
    with pytest.raises(BadRdf, match=r"line 4001: "):
        write_canonical(
            [RdfInput(source, N_QUADS)],
            tmp_path / "out",
            scratch=tmp_path,
            options=RdfOptions(bounds=RdfBounds(run_octets=20_000)),
        )


def test_a_dataset_that_changes_while_it_is_read(tmp_path: Path) -> None:
    first, second = tmp_path / "1.nq", tmp_path / "2.nq"
    for path in (first, second):
        path.write_bytes(statement(1))

    def inputs() -> Iterator[RdfInput]:
        yield RdfInput(first, N_QUADS)
        first.write_bytes(statement(2) + statement(3))
        yield RdfInput(second, N_QUADS)

    with failing("HW-RDF-06") as error:
        write_canonical(inputs(), tmp_path / "out.nq", scratch=tmp_path)
    assert error.value.exit_status == 5
    assert not (tmp_path / "out.nq").exists()


@pytest.mark.parametrize(
    ("syntax", "text"),
    [
        (JSON_LD, b'{"http://a/":' * 60_000 + b"1" + b"}" * 60_000),
        (TURTLE, b"<http://a/> <http://b/> " + b"<<( <http://a/> <http://b/> " * 300_000),
    ],
    ids=["JSON-LD of any depth", "Turtle with triple terms of any depth"],
)
def test_a_document_that_takes_for_ever_or_kills_the_parser(syntax: Syntax, text: bytes, tmp_path: Path) -> None:
    """The process that parses it is ended, and nothing else."""
    source, good = tmp_path / "in", tmp_path / "good.ttl"
    source.write_bytes(text)
    good.write_text("<http://a/> <http://b/> 1 .")
    bounds = RdfBounds(parser_seconds=0.3)
    with pytest.raises(BadRdf):
        write_canonical(
            [RdfInput(good, TURTLE), RdfInput(source, syntax)],
            tmp_path / "out",
            scratch=tmp_path,
            options=RdfOptions(BlankNodes.CANONICAL, bounds=bounds),
        )
    assert not (tmp_path / "out").exists()


def test_a_dataset_of_no_statements(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"# nothing\n")
    found = write_canonical([RdfInput(tmp_path / "in", N_QUADS)], tmp_path / "out", scratch=tmp_path)
    assert (found.quads, (tmp_path / "out").read_bytes()) == (0, b"")


@pytest.mark.parametrize("reads", ["cat > /dev/null", "true"], ids=["at its end", "at once"])
def test_a_full_disk_is_told_as_that(reads: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What sort(1) says of it is the error of the system, also where it has ended before all lines were taken."""
    program = tmp_path / "sort"
    program.write_text(f"#!/bin/sh\n{reads}\necho 'sort: write failed: /x: No space left on device' >&2\nexit 2\n")
    program.chmod(0o755)
    monkeypatch.setattr(canonical, "_PLACES", f"{tmp_path}:/usr/bin:/bin")
    some = b"".join(map(statement, range(50_000)))
    with closing(LineSorter(tmp_path, RdfBounds(run_octets=1))) as sorter, pytest.raises(OSError) as fault:
        _ = [sorter.add(some), sorter.add(some), *sorter.blocks()]  # type: ignore[func-returns-value]
    assert fault.value.errno == errno.ENOSPC


def test_without_sort_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(canonical, "_PLACES", str(tmp_path))
    with closing(LineSorter(tmp_path, RdfBounds(run_octets=1))) as sorter, pytest.raises(UsageFault, match="sort"):
        sorter.add(statement(1))


def test_sort_ends_with_the_run(tmp_path: Path) -> None:
    """Killed in the middle, a run leaves no process behind, and none that writes into its folder."""
    code = (
        "import sys, time\nfrom pathlib import Path\n"
        "from headwater.rdf import RdfBounds\nfrom headwater.rdf.canonical import LineSorter\n"
        "sorter = LineSorter(Path(sys.argv[1]), RdfBounds(run_octets=1))\n"
        "sorter.add(b'b\\n')\nprint(sorter._process.pid, flush=True)\ntime.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        pid = int(run.stdout.readline())
        os.kill(pid, 0)
        run.kill()
    until(lambda: not is_running(pid))


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@given(NUMBERS, NUMBERS, st.integers(1, 500), st.integers(1, 2000))
def test_an_update_is_the_dataset_and_the_patch_to_it(old: list[int], new: list[int], run: int, of_range: int) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(canonical, "in_processes", _here)
        patched.setattr(statements, "BLOCK", max(of_range, 4))
        folder = Path(name)
        (folder / "old").write_bytes(b"".join(sorted(set(map(statement, old)))))
        (folder / "in").write_bytes(b"".join(map(statement, new)))
        options = RdfOptions(bounds=RdfBounds(run_octets=run))
        made = write_canonical([RdfInput(folder / "in", N_QUADS)], folder / "new", scratch=folder, options=options)
        with (folder / "patch").open("wb") as patch:
            found = write_patch(folder / "old", folder / "new", patch)
        assert (folder / "new").read_bytes() == b"".join(sorted(set(map(statement, new))))
        less, more = sorted(map(statement, {*old} - {*new})), sorted(map(statement, {*new} - {*old}))
        assert (folder / "patch").read_bytes() == b"".join(
            [b"-" + line for line in less] + [b"+" + line for line in more]
        )
        assert (found.removed, found.added) == (len(less), len(more))
        assert made.quads == len(set(new))


_MEASURED = """
import sys
from filecmp import cmp
from pathlib import Path
from headwater.rdf.unified_diff import merge_patches
from headwater.rdf.canonical import write_canonical
from headwater.rdf.unified_diff import write_patch
from headwater.rdf.syntaxes import N_QUADS, RdfInput
from headwater.triplestores.sparql_store import with_prefixed_names
from headwater.triplestores.sparql_updates import as_data
folder = Path(sys.argv[1])
source = [RdfInput(folder / "in.nq", N_QUADS)]
write_canonical(source, folder / "out", scratch=folder, durable=False)
write_canonical(source, folder / "new", scratch=folder)
with (folder / "patch").open("wb") as patch:
    write_patch(folder / "old", folder / "new", patch)
assert (folder / "patch").read_bytes() == b'-<urn:z> <urn:p> "1" .\\n+<urn:z> <urn:p> "2" .\\n'
merge_patches(None, [folder / "whole"], folder / "made", scratch=folder, strict=True)
assert all(cmp(folder / name, folder / "out", shallow=False) for name in ("made", "new"))
with (folder / "in.nq").open("rb") as file:
    with_prefixed_names(as_data("INSERT DATA", [file.readline()]).decode())
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="what a process had at most stands in /proc")
@pytest.mark.parametrize("form", ["x%d/../{}", "{}%d"], ids=["begin apart", "begin alike"])
def test_memory_does_not_grow_with_literals_that_are_long(form: str, tmp_path: Path) -> None:
    """What is held is counted in octets: of a dataset of 120 MB it was all, and of one statement for SPARQL 1 GB."""
    long = "".join(f'<urn:s> <urn:p> "{form.format("y" * 8_000_000) % n}" .\n' for n in range(10, 25))
    (tmp_path / "in.nq").write_text(long + '<urn:z> <urn:p> "2" .\n')
    (tmp_path / "old").write_text(long + '<urn:z> <urn:p> "1" .\n')
    (tmp_path / "whole").write_text("".join("+" + line for line in (tmp_path / "in.nq").read_text().splitlines(True)))
    del long
    command = [sys.executable, "-c", _MEASURED, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, check=False, text=True)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 200 << 10, found.stdout
