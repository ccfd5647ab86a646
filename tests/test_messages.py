"""Messages are short and plain: what happened, then what to do."""

import re
import textwrap

import pytest
from tools.messages_page import render

from headwater.errors import KnownMessage, messages

COLUMNS = 100
MOST_WORDS = 25
MOST_ON_THE_PAGE = 5_000


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


def test_the_page_has_a_section_for_each_code_and_is_short() -> None:
    page = render()
    assert sorted(re.findall(r"^### (\S+)$", page, re.MULTILINE)) == sorted(messages())
    assert set(re.findall(r"\]\(#([^)]+)\)", page)) <= {code.lower() for code in messages()}
    assert len(re.sub(r"```.*?```|`[^`]*`", "x", page, flags=re.DOTALL).split()) < MOST_ON_THE_PAGE * 1.1
