"""Lines of text that templates make of records: what there is nothing of is left out, and no text steers a terminal."""

from __future__ import annotations

import datetime as dt
from types import SimpleNamespace

import pytest

from headwater.cli.output import lines_of, lines_of_all

RECORD = SimpleNamespace(
    name="a [b] {c}\x1b",
    files=1_200,
    failed=0,
    octets=4_096,
    seconds=200.0,
    last=None,
    is_new=True,
    at=dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC),
)


@pytest.mark.parametrize(
    ("template", "lines"),
    [
        ("{name}: {files:file}, {failed:file}", ["a [b] {c}\\x1b: 1,200 files, 0 files"]),
        ("{files} of {octets:octets} in {seconds}", ["1,200 of 4.00 KiB in 3 min 20 s"]),
        ("{failed} failed", []),
        ("{files:file}[, {failed} failed][ since {at}]", ["1,200 files since 2026-01-02 03:00:00 UTC"]),
        ("incomplete: {last.fault}", []),
        ("[, {files} files][, {failed} failed]", [", 1,200 files"]),
        ("{is_new}new", ["new"]),
        ("{failed}[, {files}]", []),
        ("as it is", ["as it is"]),
        ("{more:try}", ["3 tries"]),
    ],
)
def test_a_line_says_what_there_is(template: str, lines: list[str]) -> None:
    assert list(lines_of(RECORD, template, more=3)) == lines


def test_each_record_has_its_lines_in_the_order_of_templates() -> None:
    assert lines_of_all([RECORD, RECORD], "{files}", "{failed}", "{octets}") == ["1,200", "4,096"] * 2
