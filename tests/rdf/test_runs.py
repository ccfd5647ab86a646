"""Sorted runs: merged and compared by ranges, in as many pieces as can be (Hypothesis)."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.rdf.canonical import NO_BLANK_NODES, BlankNodes, DatasetRuns, RdfOptions, write_canonical
from headwater.rdf.dataset_patch import write_dataset_patch
from headwater.rdf.dataset_update import DatasetBase, write_update
from headwater.rdf.faults import BadRdf, DatasetChanges, RdfBounds
from headwater.rdf.lines import block_difference, run_making, runs
from headwater.rdf.lines.sorting import LineSorter
from headwater.rdf.syntaxes import JSON_LD, N_QUADS, TURTLE, RdfInput, Syntax
from tests.rdf.datasets import difference, statement

NUMBERS = st.lists(st.integers(1, 60), max_size=60)
LIMITS = st.sampled_from([(4096, 1 << 25), (40, 200), (3, 1)])
"""The octets of a line that are remembered, and those of the largest range that is read at once."""


def _here(function: Any, settings: Any, jobs: Any) -> Iterator[Any]:
    done = function(settings)
    for item, job in jobs:
        yield item, done(tuple(job))


@given(NUMBERS, st.integers(1, 500), st.integers(1, 2000), st.integers(2, 5), LIMITS)
def test_any_runs_merge_to_the_sorted_set(
    numbers: list[int], run: int, merged: int, most: int, limits: tuple[int, int]
) -> None:
    lines = [statement(number) for number in numbers]
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "_KEY", limits[0])
        patched.setattr(runs, "_LARGEST", limits[1])
        patched.setattr(runs, "_MERGED", merged)
        patched.setattr(runs, "_MOST_RUNS", most)
        patched.setattr(runs, "_SAMPLES", 3)
        patched.setattr(runs, "in_processes", _here)
        patched.setattr(run_making, "in_processes", _here)
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


@given(st.lists(NUMBERS, max_size=8), st.integers(1, 500), st.integers(1, 2000), st.integers(2, 5), LIMITS)
def test_any_blocks_of_lines_are_sorted_as_a_set(
    blocks: list[list[int]], run: int, merged: int, most: int, limits: tuple[int, int]
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "_KEY", limits[0])
        patched.setattr(runs, "_LARGEST", limits[1])
        patched.setattr(runs, "_MERGED", merged)
        patched.setattr(runs, "_MOST_RUNS", most)
        sorter = LineSorter(Path(name), RdfBounds(run_octets=run))
        for numbers in blocks:
            sorter.add(b"".join(map(statement, numbers)))
        assert list(sorter.lines()) == sorted({statement(number) for numbers in blocks for number in numbers})


@given(NUMBERS, NUMBERS, st.integers(1, 500), st.integers(1, 2000), LIMITS)
def test_any_runs_are_compared_as_sets(
    old: list[int], new: list[int], run: int, merged: int, limits: tuple[int, int]
) -> None:
    bounds = RdfBounds(run_octets=run)
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "_KEY", limits[0])
        patched.setattr(runs, "_LARGEST", limits[1])
        patched.setattr(runs, "_MERGED", merged)
        patched.setattr(runs, "in_processes", _here)
        patched.setattr(run_making, "in_processes", _here)
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
    """Neither of runs that are merged here, nor of those that processes merge and compare."""
    source, target = tmp_path / "in.nq", tmp_path / "out.nq"
    source.write_bytes(b"".join(statement(number * 7919 % 5000) for number in range(6000)))
    inputs = (RdfInput(source, N_QUADS), RdfInput(target, N_QUADS))
    before = set(os.listdir("/proc/self/fd"))
    for few in (1 << 30, 0):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(runs, "_FEW", few)
            patched.setattr(runs, "_MERGED", 1 << 16)
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

    with pytest.raises(DatasetChanges) as error:
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


def test_runs_of_no_statements(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"# nothing\n")
    made = DatasetRuns(tmp_path, NO_BLANK_NODES).made_of([RdfInput(tmp_path / "in", N_QUADS)])
    assert made == []


@given(NUMBERS, NUMBERS, st.sampled_from([1, 3, 64]), st.sampled_from([1, 1000]))
def test_blocks_differ_as_sets_do(old: list[int], new: list[int], step: int, many: int) -> None:
    before, after = (sorted(set(map(statement, numbers))) for numbers in (old, new))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(block_difference, "_SMALLEST_STEP", step)
        patched.setattr(block_difference, "_LARGEST_STEP", 8 * step)
        patched.setattr(block_difference, "_MANY", many)
        gone, fresh = block_difference.block_difference(b"".join(before), b"".join(after))
    assert gone == [line for line in before if line not in after]
    assert fresh == [line for line in after if line not in before]


@given(NUMBERS, NUMBERS, st.integers(1, 500), st.integers(1, 2000), LIMITS)
def test_an_update_is_the_dataset_and_the_patch_to_it(
    old: list[int], new: list[int], run: int, merged: int, limits: tuple[int, int]
) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patched:
        patched.setattr(runs, "_KEY", limits[0])
        patched.setattr(runs, "_LARGEST", limits[1])
        patched.setattr(runs, "in_processes", _here)
        patched.setattr(run_making, "in_processes", _here)
        patched.setattr(runs, "_MERGED", merged)
        folder = Path(name)
        (folder / "old").write_bytes(b"".join(sorted(set(map(statement, old)))))
        (folder / "in").write_bytes(b"".join(map(statement, new)))
        found = write_update(
            [RdfInput(folder / "in", N_QUADS)],
            folder / "new",
            DatasetBase(folder / "old", folder / "patch"),
            scratch=folder,
            options=RdfOptions(bounds=RdfBounds(run_octets=run)),
        )
        assert (folder / "new").read_bytes() == b"".join(sorted(set(map(statement, new))))
        less, more = sorted(map(statement, {*old} - {*new})), sorted(map(statement, {*new} - {*old}))
        assert (folder / "patch").read_bytes() == b"".join(
            [b"-" + line for line in less] + [b"+" + line for line in more]
        )
        assert (found.patch.removed, found.patch.added) == (len(less), len(more))
        assert found.dataset.quads == len(set(new))


_MEASURED = """
import sys
from filecmp import cmp
from pathlib import Path
from headwater.rdf.applying import apply_patches
from headwater.rdf.canonical import write_canonical
from headwater.rdf.dataset_update import DatasetBase, write_update
from headwater.rdf.syntaxes import N_QUADS, RdfInput
from headwater.triplestores.dot_segments import with_prefixed_names
from headwater.triplestores.sparql_text import as_data
folder = Path(sys.argv[1])
source = [RdfInput(folder / "in.nq", N_QUADS)]
write_canonical(source, folder / "out", scratch=folder, durable=False)
write_update(source, folder / "new", DatasetBase(folder / "old", folder / "patch"), scratch=folder)
assert (folder / "patch").read_bytes() == b'-<urn:z> <urn:p> "1" .\\n+<urn:z> <urn:p> "2" .\\n'
apply_patches(None, [folder / "whole"], folder / "made", scratch=folder, strict=True)
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
