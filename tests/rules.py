"""What tests/rules.md says of tests, and which rules the tests themselves name, comments and docstrings aside."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PAGE = TESTS / "rules.md"
_ROW = r"^\| ({family}-[^|]+) \|.*\| (?:`([\w/.]+)::(\w+)`(?:, `[\w/.]+::\w+`)*|(–[^|]*)) \|$"
_NAMED = re.compile(r"`([\w/.]+\.py)::(\w+)`")


def rows(family: str) -> dict[str, tuple[str, str, str]]:
    """The rules of a family on the page: file and name of the first test, or the words that stand for it."""
    found = re.findall(_ROW.format(family=family), PAGE.read_text("utf-8"), re.MULTILINE)
    return {rule: (file, test, words) for rules, file, test, words in found for rule in rules.split(", ")}


def named() -> list[tuple[str, str]]:
    """Every test that the page names, of whatever rule: file and name."""
    return _NAMED.findall(PAGE.read_text("utf-8"))


def listed(family: str) -> list[str]:
    """Every rule of a family that has a row, in order, whatever the row says."""
    found = re.findall(rf"^\| ({family}-[^| ]+(?:, {family}-[^| ]+)*) \|", PAGE.read_text("utf-8"), re.MULTILINE)
    return [rule for rules in found for rule in rules.split(", ")]


def exists(file: str, test: str) -> bool:
    """Whether a file below `tests/` has this test."""
    path = TESTS / file
    return path.is_file() and test in _functions(path)


@cache
def _functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def named_in(path: Path) -> set[str]:
    """Rule ids in the strings of a module and in the names of its tests: what takes part when the tests run."""
    tree = ast.parse(path.read_text("utf-8"))
    kept = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in _idle(tree)
    ]
    return {rule for text in kept for rule in re.findall(r"\bRS-[A-Z]+-\d\d\b", text)}


@cache
def _idle(tree: ast.AST) -> frozenset[int]:
    """Strings that are statements by themselves: docstrings, and those below an assignment."""
    return frozenset(
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    )
