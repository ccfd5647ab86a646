"""N-Quads Unified Diff: made, read, applied, inverted, composed (NQUD)."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from headwater.rdf import BadRdfPatch, RdfBounds, unified_diff
from headwater.rdf.canonical import BlankNodes, RdfOptions
from headwater.rdf.syntaxes import N_QUADS, RdfInput
from headwater.rdf.unified_diff import (
    AppliedSummary,
    PatchLine,
    PatchSummary,
    merge_patches,
    read_patch,
    write_composed,
    write_dataset_patch,
    write_patch,
)
from tests.rdf.datasets import dataset, difference, statement

A, B, C, D = (statement(number) for number in range(4))


def lines_of(text: bytes, *, strict: bool = True) -> list[PatchLine]:
    return list(read_patch(io.BytesIO(text), strict=strict))


def applied(folder: Path, base: list[bytes] | None, *patches: bytes, strict: bool = True) -> AppliedSummary:
    """The result lies at `out.nq`."""
    paths = [folder / f"{number}.nqud" for number in range(len(patches))]
    for path, patch in zip(paths, patches, strict=True):
        path.write_bytes(patch)
    start = None if base is None else dataset(folder / "base.nq", base)
    return merge_patches(start, paths, folder / "out.nq", scratch=folder, strict=strict)


def counts(found: AppliedSummary) -> tuple[int, int, int, int]:
    return found.added, found.removed, found.already_there, found.not_there


def test_nqud_a4_removals_come_first_and_all_is_sorted(tmp_path: Path) -> None:
    old, new = dataset(tmp_path / "old", [A, B, D]), dataset(tmp_path / "new", [C, B])
    target = io.BytesIO()
    assert write_patch(old, new, target) == PatchSummary(removed=2, added=1)
    assert target.getvalue() == b"-" + A + b"-" + D + b"+" + C
    assert difference(old, old) == b""


@pytest.mark.parametrize("text", [A + B, B + A, A + A + B, A.replace(b" ", b"  ") + B, A + b"# comment\n" + B[:-1]])
def test_nqud_a9_files_that_are_not_canonical_are_made_so(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "old").write_bytes(text)
    target = io.BytesIO()
    inputs = (RdfInput(tmp_path / "old", N_QUADS), RdfInput(dataset(tmp_path / "new", [B, C]), N_QUADS))
    assert write_dataset_patch(inputs, target, scratch=tmp_path) == PatchSummary(1, 1)
    assert target.getvalue() == b"-" + A + b"+" + C


def test_nqud_02_what_has_no_single_sign_is_passed_over() -> None:
    text = (
        b"\xef\xbb\xbf--- old\t2026\n+++ new\n@@ -1 +1 @@\n " + A + b"\\ No newline at end of file\n"
        b"+\n- # nothing\nanything\n-" + A + b"+ \t" + B[:-1] + b" # why\r\n+" + C[:-1]
    )
    assert lines_of(text) == [PatchLine("-", A, 9), PatchLine("+", B, 10), PatchLine("+", C, 11)]


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (b"+-" + A, "NQUD-A1"),
        (b"+hello\n", "NQUD-A3"),
        (b"-<http://example.org/s> <http://example.org/p> .\n", "NQUD-A3"),
        (b'+<http://example.org/s> <http://example.org/p> "x" \n"y" .\n', "NQUD-A3"),
        (
            b"+<http://e.org/s> <http://e.org/p> <<( <http://e.org/s> <http://e.org/p> <http://e.org/o> )>> .\n",
            "NQUD-A13",
        ),
        (b'+<http://e.org/s> <http://e.org/p> "x"@en--ltr .\n', "NQUD-A3"),
        (b"+" + A[:-1] + b"\r+" + B, "NQUD-A3"),
    ],
)
def test_nqud_a3_a_malformed_line_rejects_the_file(line: bytes, rule: str) -> None:
    with pytest.raises(BadRdfPatch, match="line 3") as error:
        lines_of(b"+" + A + b"context\n" + line + b"+" + C)
    assert (error.value.line, error.value.rule) == (3, rule)
    skipped: list[BadRdfPatch] = []
    text = io.BytesIO(b"+" + A + b"context\n" + line + b"+" + C)
    assert [one.statement for one in read_patch(text, strict=False, skipped=skipped.append)] == [A, C]
    assert [one.line for one in skipped] == [3]


def test_nqud_a11_octets_that_are_no_utf_8_reject_the_file_always() -> None:
    for strict in (True, False):
        with pytest.raises(BadRdfPatch) as error:
            lines_of(b"+" + A + b"caf\xe9\n", strict=strict)
        assert (error.value.line, error.value.rule) == (2, "NQUD-A11")


def test_nqud_a5_what_has_no_effect_is_counted(tmp_path: Path) -> None:
    found = applied(tmp_path, [A, B], b"+" + A + b"-" + C + b"-" + B + b"+" + D)
    assert counts(found) == (1, 1, 1, 1)
    assert (tmp_path / "out.nq").read_bytes() == A + D


def test_nqud_a4_the_last_sign_of_a_statement_wins(tmp_path: Path) -> None:
    found = applied(tmp_path, [A], b"-" + A + b"+" + A + b"+" + B + b"-" + B)
    assert counts(found) == (2, 2, 0, 0)
    assert (tmp_path / "out.nq").read_bytes() == A


def test_tim_08_patches_in_series_on_nothing(tmp_path: Path) -> None:
    applied(tmp_path, None, b"+" + A + b"+" + B, b"-" + A + b"+" + C, b"-" + B)
    assert (tmp_path / "out.nq").read_bytes() == C


def test_nqud_a7_a_plain_literal_is_a_string_and_a_language_has_no_case(tmp_path: Path) -> None:
    plain = b'<http://e.org/s> <http://e.org/p> "a" .\n'
    tagged = b'<http://e.org/s> <http://e.org/p> "a"@en .\n'
    patch = (
        b"-"
        + plain.replace(b'"a"', b'"\\u0061"^^<http://www.w3.org/2001/XMLSchema#string>')
        + b"-"
        + tagged.replace(b"@en", b"@EN")
    )
    assert counts(applied(tmp_path, [plain, tagged], patch)) == (0, 2, 0, 0)


def test_nqud_a7_another_form_of_a_value_is_another_statement(tmp_path: Path) -> None:
    form = b'<http://e.org/s> <http://e.org/p> "01"^^<http://www.w3.org/2001/XMLSchema#integer> .\n'
    found = applied(tmp_path, [form], b"-" + form.replace(b'"01"', b'"1"'))
    assert counts(found) == (0, 0, 0, 1)


def test_nqud_a8_a_removal_without_graph_is_of_the_default_graph(tmp_path: Path) -> None:
    named = A[:-2] + b"<http://e.org/g> .\n"
    applied(tmp_path, [A, named], b"-" + A)
    assert (tmp_path / "out.nq").read_bytes() == named


def test_nqud_a14_a_malformed_patch_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "out.nq").write_bytes(A)
    with pytest.raises(BadRdfPatch):
        applied(tmp_path, [A], b"+" + B, b"+" + C + b"+nonsense\n")
    assert (tmp_path / "out.nq").read_bytes() == A
    assert not [path for path in tmp_path.iterdir() if path.suffix not in {".nq", ".nqud"}]


def test_the_base_as_target(tmp_path: Path) -> None:
    base, patch = dataset(tmp_path / "base.nq", [A, C]), tmp_path / "p.nqud"
    patch.write_bytes(b"-" + C + b"+" + B)
    merge_patches(base, [patch], base, scratch=tmp_path, strict=True)
    assert base.read_bytes() == A + B


def test_a_large_patch(tmp_path: Path) -> None:
    """The steps are sorted in runs."""
    base, patch = tmp_path / "base.nq", tmp_path / "p.nqud"
    old = [statement(number * 7919 % 3001 + 1000) for number in range(3000)]
    less, more = old[::7], [statement(number) for number in range(10_000, 10_500)]
    base.write_bytes(b"".join(sorted(old)))
    patch.write_bytes(b"".join([b"-" + line for line in less] + [b"+" + line for line in more]))
    found = merge_patches(
        base,
        [patch],
        tmp_path / "out",
        scratch=tmp_path,
        strict=True,
        options=RdfOptions(BlankNodes.KEPT, bounds=RdfBounds(run_octets=5_000)),
    )
    assert (tmp_path / "out").read_bytes() == b"".join(sorted({*old} - {*less} | {*more}))
    assert counts(found) == (len(more), len(less), 0, 0)


def test_inverse_and_composition(tmp_path: Path) -> None:
    first, second = tmp_path / "1.nqud", tmp_path / "2.nqud"
    first.write_bytes(b"-" + A + b"+" + B + b"+" + C)
    second.write_bytes(b"-" + B + b"+" + D)
    inverse, composed = io.BytesIO(), io.BytesIO()
    assert write_composed([first], inverse, scratch=tmp_path, strict=True, inverse=True) == PatchSummary(2, 1)
    assert inverse.getvalue() == b"-" + B + b"-" + C + b"+" + A
    assert write_composed([first, second], composed, scratch=tmp_path, strict=True) == PatchSummary(2, 2)
    assert composed.getvalue() == b"-" + A + b"-" + B + b"+" + C + b"+" + D


def test_lines_that_say_nothing_are_passed_over_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be one for each octet, and each by itself would take minutes; those behind them keep their numbers
    (NQUD-A3)."""
    by_itself: list[int] = []
    other = unified_diff._other

    def counted(line: bytes, number: int, where: str) -> PatchLine | None:
        by_itself.append(number)
        return other(line, number, where)

    monkeypatch.setattr(unified_diff, "_other", counted)
    nothing = b"\n" * 20_000_000 + b"# +a\n+++ a\n--- b\n@@ -1 +1 @@\n+\n- \t\r\n+ # c\n"
    with pytest.raises(BadRdfPatch, match="line 20000008"):
        list(read_patch(io.BytesIO(nothing + b"+<urn:a> .\n"), strict=True))
    assert list(read_patch(io.BytesIO(nothing + b"-<urn:a> <urn:b> <urn:c> .\n"), strict=True)) == [
        ("-", b"<urn:a> <urn:b> <urn:c> .\n", 20_000_008)
    ]
    assert by_itself == [20_000_008]  # what is no statement
