"""The rules of harvested records (tests/rules.md): all are there, and the tests that they name cover them."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
RULES = TESTS / "rules.md"
KNOWN = {f"DIT-{number:02d}" for number in (*range(1, 11), *range(20, 30))} | {f"DIT-A{n}" for n in range(1, 22)}
MUST = ("DIT-02", "DIT-20", "DIT-21", "DIT-22", "DIT-23", "DIT-24")


def test_every_rule_has_its_row_and_every_row_its_test() -> None:
    table = RULES.read_text("utf-8").partition("## Harvested records")[2]
    rows = re.findall(r"^\| (DIT-[^|]+) \|.*\| (?:`([\w/.]+)::(\w+)`|–) \|$", table, re.MULTILINE)
    named = {rule: (file, test) for rules, file, test in rows for rule in rules.split(", ")}
    assert set(named) == KNOWN
    for rule, (file, test) in named.items():
        if file or rule in MUST:
            assert f"def {test}(" in (TESTS / file).read_text("utf-8"), rule
    untested = [rule for rule in MUST if rule.lower().replace("-", "_") not in named[rule][1]]
    assert untested == []
