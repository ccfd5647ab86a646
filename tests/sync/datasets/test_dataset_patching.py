"""The quick ways of following a dataset give what the thorough ones give: a patch merged, a state that is copied."""

from __future__ import annotations

import gzip
import hashlib
import tempfile
import tracemalloc
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.rdf import BadRdf, RdfTooCostly, unified_diff
from headwater.rdf.canonical import LABELS_KEPT, DatasetSummary, write_canonical
from headwater.rdf.dataset_choice import RdfFile
from headwater.rdf.syntaxes import N_QUADS, RdfInput
from headwater.rdf.unified_diff import PatchSteps, merge_patches
from headwater.sync.dataset_sync import KeptStates
from tests.triplestores.test_embedded_store import POOL

POOLED = sorted(set(POOL))
SIGNED = st.tuples(st.sampled_from([b"+", b"-"]), st.sampled_from(POOLED))


def digest_of(path: Path) -> str:
    return f"sha-256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def patched(folder: Path) -> DatasetSummary:
    """What `patch` makes of `base` in a folder; it is in `merged`."""
    base, patch, merged = (folder / name for name in ("base", "patch", "merged"))
    return merge_patches(base, [patch], merged, scratch=folder).dataset


@settings(max_examples=60)
@given(
    st.sets(st.sampled_from(POOLED)),
    st.lists(SIGNED, max_size=30),
    st.sampled_from([1, 200, 1 << 14]),
    st.sampled_from([1, 300, 1 << 15]),
)
def test_a_merged_patch_gives_what_an_applied_one_gives(
    state: set[bytes], patch: list[tuple[bytes, bytes]], block: int, most: int
) -> None:
    """NQUD-A4, NQUD-A5: the last sign of a statement counts, whatever was there; in blocks of any size, and with any
    number of octets held at once."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patcher:
        base, steps, made, merged = (Path(folder, name) for name in ("base", "patch", "made", "merged"))
        base.write_bytes(b"".join(sorted(state)))
        steps.write_bytes(b"".join(sign + line for sign, line in patch))
        patcher.setattr(unified_diff, "_OCTETS", most)
        merge_patches(base, [steps], made, scratch=Path(folder), strict=True)
        last = {line: sign for sign, line in patch}
        wanted = {line for line in {*state, *last} if last.get(line, b"+") == b"+"}
        assert made.read_bytes() == b"".join(sorted(wanted))
        patcher.setattr(unified_diff, "_BLOCK", block)
        assert patched(Path(folder)).octets == made.stat().st_size
        assert merged.read_bytes() == made.read_bytes()


def test_what_is_wrong_with_a_patch_is_told(tmp_path: Path) -> None:
    (tmp_path / "base").write_bytes(b"".join(POOLED[:9]))
    (tmp_path / "patch").write_bytes(b"+" + POOLED[20] + b"+<urn:a> .\n")
    with pytest.raises(BadRdf, match="line 2"):
        patched(tmp_path)


def bomb(octets: int) -> bytes:
    """A patch in gzip whose lines say one thing again and again."""
    return gzip.compress(b"+" + POOLED[20] + (b"-" + POOLED[20]) * (octets // (len(POOLED[20]) + 1)), 1)


def test_gzip_that_grows_beyond_measure_is_not_sorted(tmp_path: Path) -> None:
    """Each of its lines would have to be; within 64 MiB it may grow as it likes."""
    (tmp_path / "base").write_bytes(b"".join(POOLED[:9]))
    wanted = hashlib.sha256(b"".join(POOLED[:9])).hexdigest()
    for octets in (1 << 20, 80 << 20):
        (tmp_path / "patch").write_bytes(bomb(octets))
        if octets < 64 << 20:
            assert patched(tmp_path).sha256 == wanted
        else:
            with pytest.raises(RdfTooCostly, match="more than"):
                patched(tmp_path)


MANY = {
    "one statement again and again": b"+<urn:a> <urn:b> <urn:c> .\n-<urn:a> <urn:b> <urn:c> .\n" * 200_000,
    "many statements between two": b"".join(b"+<urn:%d> <urn:b> <urn:c> .\n" % n for n in range(400_000)),
}


@pytest.mark.parametrize("name", MANY)
@pytest.mark.parametrize("is_merged", [True, False])
def test_many_lines_at_one_place_take_bounded_memory(tmp_path: Path, name: str, is_merged: bool) -> None:
    """They are neither held all, nor joined at once."""
    base, patch = tmp_path / "base", tmp_path / "patch"
    base.write_bytes(b"<urn:z> <urn:b> <urn:c> .\n")
    patch.write_bytes(MANY[name])
    with closing(PatchSteps(tmp_path)) as steps:
        steps.add(patch, strict=True)
        tracemalloc.start()
        if is_merged:
            merge_patches(base, [patch], tmp_path / "made", scratch=tmp_path)
        else:
            for _block in unified_diff.patched_blocks(
                [base.read_bytes()], steps.statements(), unified_diff.AppliedSummary()
            ):
                pass
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 32 << 20, peak >> 20


FILES = [
    ("canonical", lambda lines: b"".join(lines)),
    ("empty", lambda _: b""),
    ("in another order", lambda lines: b"".join(reversed(lines))),
    ("in another form", lambda lines: b"".join(lines).replace(b" .\n", b"\t.\n")),
]


@pytest.mark.parametrize("form", [form for _, form in FILES], ids=[name for name, _ in FILES])
@pytest.mark.parametrize("algorithm", ["sha-256", "md5"])
def test_a_kept_state_is_the_canonical_form_of_the_file(tmp_path: Path, form: object, algorithm: str) -> None:
    """Copied or made anew, it has the same octets, and what has changed is the difference of the two states."""
    kept = KeptStates(tmp_path / "kept")
    states: list[set[bytes]] = []
    hashes: list[str] = []
    for number, lines in enumerate((POOLED[:40], POOLED[10:50])):
        path = tmp_path / f"{number}.nq"
        path.write_bytes(form(lines))  # type: ignore[operator]
        digest = digest_of(path) if algorithm == "sha-256" else f"md5:{hashlib.md5(path.read_bytes()).hexdigest()}"
        state = kept.state_of(RdfFile("http://a.example/dataset.nq", path.name.encode(), N_QUADS, digest), tmp_path)
        thorough = tmp_path / "thorough"
        made = write_canonical([RdfInput(path, N_QUADS)], thorough, scratch=tmp_path, options=LABELS_KEPT)
        assert (state.sha256, state.quads) == (made.sha256, made.quads)
        assert kept.path(state.sha256).read_bytes() == thorough.read_bytes()
        hashes.append(state.sha256)
        states.append(set(thorough.read_bytes().splitlines(keepends=True)))
        if number:
            with kept.changes(*hashes) as (changes, summary):
                told = changes.read_bytes().splitlines(keepends=True)
            old, new = states
            assert set(told) == {b"-" + one for one in old - new} | {b"+" + one for one in new - old}
            assert (summary.removed, summary.added) == (len(old - new), len(new - old))
