"""The page of rules (tests/rules.md): each rule of ours has one row, and each row a test that is there, or a reason."""

from __future__ import annotations

import re

import pytest

from tests.rules import TESTS, exists, listed, named, rows

AMB = [f"AMB-{number:02d}" for number in (*range(1, 79), *range(80, 93), *range(96, 99))]
DST = [
    *(f"DST-A{number}" for number in range(1, 8)),
    *(f"DST-B{number}" for number in range(1, 5)),
    *(f"DST-C{number}" for number in range(1, 12)),
    *(f"DST-4.{number}" for number in range(1, 7)),
    *(f"DST-5.{number}" for number in range(1, 5)),
    "DST-D",
    *(f"DST-P{number}" for number in range(1, 9)),
    *(f"DST-S{number}" for number in range(1, 13)),
    *(f"DST-V{number}" for number in range(1, 6)),
    "DST-Q",
    *(f"DST-F{number}" for number in range(1, 14)),
]


@pytest.mark.parametrize(("family", "known"), [("AMB", AMB), ("DST", DST)])
def test_every_rule_has_one_row(family: str, known: list[str]) -> None:
    """A rule may be added; none may go, nor stand twice."""
    found = listed(family)
    assert len(found) == len(set(found))
    assert set(known) <= set(found)
    assert set(rows(family)) == set(found), "a row without the column of tests"


@pytest.mark.parametrize("rule", [*listed("AMB"), *listed("DST")])
def test_the_test_of_a_rule_is_there(rule: str) -> None:
    file, test, words = rows(rule.partition("-")[0])[rule]
    assert exists(file, test) if file else len(words) > 5, (file, test, words)


def test_every_test_that_the_page_names_is_there() -> None:
    assert [one for one in named() if not exists(*one)] == []


def test_few_rules_have_no_test() -> None:
    """As many as there are today: who adds one without a test says so here."""
    without = [rule for family in ("AMB", "DST") for rule, (file, _, _) in rows(family).items() if not file]
    assert len(without) <= 37


def test_the_table_of_links_has_each_relation_and_names_tests_that_are_there() -> None:
    """tests/links.md: RS-REL-01 to RS-REL-12 and all others, with what is done of each."""
    text = (TESTS / "links.md").read_text("utf-8")
    assert re.findall(r"^\|[^|]*\((RS-REL-\d+)\)", text, re.MULTILINE) == [
        f"RS-REL-{number:02d}" for number in (*range(1, 13), 14)
    ]
    tests = re.findall(r"`([\w/.]+\.py)::(\w+)`", text)
    assert [one for one in tests if not exists(*one)] == []
    assert tests
