"""Messages are short and plain: what happened, then what to do."""

import ast
import re
import textwrap
from functools import cache
from pathlib import Path

import pytest
from tools.messages_page import FORMS, example, render

import headwater
from headwater.errors import KnownMessage, messages

SOURCE = Path(*headwater.__path__)
COLUMNS = 100
MOST_WORDS = 25
MOST_ON_THE_PAGE = 5_300
FOREIGN = {"HW-CLU-03", "HW-CLU-04", "HW-CLU-05", "HW-DB-01"}
"""Messages of which another program says all: a search cluster, SQLite."""


@pytest.mark.parametrize("known", messages().values(), ids=lambda one: one.code)
def test_a_message_fits_three_lines_of_a_terminal_in_short_sentences(known: KnownMessage) -> None:
    lines = [*wrapped(f"error: {known.what}"), *wrapped(f"  do: {known.advice}")]
    assert len(lines) <= 3, lines
    for text in (known.what, known.why, known.advice):
        for sentence in re.split(r"(?<=[.:;])\s", text):
            assert len(sentence.split()) <= MOST_WORDS, sentence
        assert not text or (text.endswith(".") and (text[0] == "`" or text[0].isupper())), text


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, COLUMNS, break_on_hyphens=False, drop_whitespace=False)


@pytest.mark.parametrize("known", messages().values(), ids=lambda one: one.code)
def test_each_message_has_one_example_which_the_program_would_print(known: KnownMessage) -> None:
    block = re.search(rf"^{known.code} .*\n(?:  .*\n?)*", (SOURCE / "messages.txt").read_text("utf-8"), re.MULTILINE)
    assert block
    assert len(re.findall(rf"^  (?:{'|'.join(FORMS)}): ", block[0], re.MULTILINE)) == 1
    assert known.example.keys() <= {*FORMS, "where", "rule", "advice", "when"}
    said = [one for name in known.example.keys() & {*FORMS, "advice"} for one in sentences(known.example[name])]
    assert set(said) <= templates()
    assert (known.code in FOREIGN) is (re.search("[a-z]{3}", " ".join(said)) is None)
    lines = example(known).splitlines()
    beside = [line for line in lines if line.startswith(("  where: ", "  code: ", "# "))]
    assert sum(len(wrapped(line)) for line in lines if line not in beside) <= 3
    assert all(len(line) <= COLUMNS for line in beside)
    assert re.search(r"/(?:tmp|dev|home|work|root|proc|usr)/", " ".join(lines)) is None
    for host in re.findall(r"\b[a-z]+://([a-z][^/:\s]*)", " ".join(lines)):
        assert f".{host}".endswith(".example.org")


def sentences(example: str) -> list[str]:
    """The sentences of an example, values as `{}`: those in double braces first, at last that around them."""
    found = []

    def inner(match: re.Match[str]) -> str:
        found.append(match[1])
        return "{}"

    found.append(re.sub(r"\{\{((?:[^{}]|\{[^{}]*\})*)\}\}", inner, example))
    return [template(re.sub(r"\{[^{}]*\}", "{}", one)) for one in found]


@cache
def templates() -> set[str]:
    """Every text in the source, what is filled in as `{}`."""
    found, pieces = set[str](), set[ast.AST]()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):  # from the outside in
            if isinstance(node, ast.JoinedStr):
                pieces.update(node.values)
                parts = [one.value if isinstance(one, ast.Constant) else "{}" for one in node.values]
                found.add(template("".join(map(str, parts))))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in pieces:
                found.add(node.value)
    return found


def template(text: str) -> str:
    """Values that touch each other are one."""
    return re.sub(r"(?:\{\})+", "{}", text)


def test_the_page_has_a_section_for_each_code_and_is_short() -> None:
    page = render()
    assert sorted(re.findall(r"^### (\S+)$", page, re.MULTILINE)) == sorted(messages())
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= {code.lower() for code in messages()}
    prose = re.sub(r"^```text\n.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    assert len(re.sub(r"`[^`]*`", "x", prose).split()) < MOST_ON_THE_PAGE * 1.1
