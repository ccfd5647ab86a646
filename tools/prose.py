"""Tells how plain pages are: `python -m tools.prose FILE…` counts words, and names long sentences and words to avoid.

Blocks of code, comments and addresses of links do not count; a piece of code in a sentence counts as one word.
"""

from __future__ import annotations

import re
import sys
from functools import cached_property
from pathlib import Path

MOST_WORDS = 25
"""How many words a sentence may have."""

FORBIDDEN = (
    # words of our own for what has a name: say the one that readers know
    *(
        "push sets?",
        "stale page",
        "open list",
        "newer than listed",
        "told no more",
        "told_no_more",
        "untold",
        "unpaired",
    ),
    *("unsound", "contradicted", "DIT-ES", "journeys?", "octets?"),
    # riddles and stiff words
    *("what is to (?:be|go|come)", "as far as it tells", "so far as", "nothing of (?:it|them)", "come to nothing"),
    *(
        "thereby",
        "therein",
        "thereof",
        "hereby",
        "whereby",
        "utili[sz]e\\w*",
        "in order to",
        "prior to",
        "e\\.g\\.",
        "i\\.e\\.",
    ),
    *("simply", "obviously", "of course"),
    # what a reader need not know
    *("issue \\d+", "trials?\\b(?= (?:of|with) (?:strangers|readers))"),
)
"""Words that no page uses outside of code."""

_FORBIDDEN = re.compile(rf"(?<![\w-])(?:{'|'.join(FORBIDDEN)})(?![\w-])", re.IGNORECASE)
_ENDS = re.compile(r"(?<=[.!?])[\"”’)*_]*\s+(?=[\"“‘(*_\[]*[A-Z0-9`¤])")
_ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx|No)\.", re.IGNORECASE)


class Page:
    """The prose of a page, by lines."""

    def __init__(self, path: Path):
        self.text = path.read_text("utf-8")

    @cached_property
    def lines(self) -> list[str]:
        """The lines without what is no prose; a line that has none is empty."""
        text = re.sub(r"\A---\n.*?\n---\n", _blank, self.text, flags=re.DOTALL)
        text = re.sub(r"^( *)```.*?^ *```[ ]*$", _blank, text, flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"<!--.*?-->", _blank, text, flags=re.DOTALL)
        text = re.sub(r"(`+)(?:(?!\1).)+?\1", _code, text)
        text = re.sub(r"!?\[([^\]]*)\](?:\([^)]*\)|\[[^\]]*\])", r"\1", text)
        text = re.sub(r"</?[a-zA-Z][^>]*>|\{ ?[:.#][^}]*\}", _blank, text)
        return text.split("\n")

    @property
    def words(self) -> int:
        return sum(_words(line) for line in self.lines)

    @cached_property
    def sentences(self) -> list[tuple[int, str]]:
        """Each sentence and the line where it begins: a heading, a list's item and a cell of a table end one, too."""
        found: list[tuple[int, str]] = []
        begun: list[tuple[int, str]] = []

        def end() -> None:
            found.extend(_split(begun))
            begun.clear()

        for number, line in enumerate(self.lines, 1):
            plain = re.sub(r"^[ >]+", "", line)
            item = re.match(r"(?:[-*+]|\d+[.)])\s+", plain)
            if not plain or plain.startswith("#") or item or plain.startswith(("|", "!!! ", "??? ")):
                end()
            if plain.startswith("|"):
                for cell in plain.strip("| ").split("|"):
                    found.extend(_split([(number, cell.strip())]))
            elif plain:
                begun.append((number, plain[item.end() :] if item else plain.lstrip("# ")))
                if plain.startswith("#"):
                    end()
        end()
        return found

    def long_sentences(self) -> list[tuple[int, str]]:
        return [(line, text.replace("¤", "`…`")) for line, text in self.sentences if _words(text) > MOST_WORDS]

    def forbidden(self) -> list[str]:
        return [f"line {n}: {match[0]}" for n, line in enumerate(self.lines, 1) for match in _FORBIDDEN.finditer(line)]


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _code(match: re.Match[str]) -> str:
    return "¤" + _blank(match)


def _words(text: str) -> int:
    return sum(any(letter.isalnum() or letter in "¤…" for letter in word) for word in text.split())


def _split(parts: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The sentences of a paragraph, whose lines are given."""
    text = _ABBREVIATIONS.sub(r"\1․", " ".join(part for _, part in parts))
    starts: list[tuple[int, int]] = []
    offset = 0
    for number, part in parts:
        starts.append((offset, number))
        offset += len(part) + 1
    found, begin = [], 0
    for match in [*_ENDS.finditer(text), None]:
        sentence = text[begin : match.start() if match else len(text)].strip()
        if _words(sentence):
            found.append((max(number for start, number in starts if start <= begin), sentence))
        begin = match.end() if match else 0
    return found


def main(names: list[str]) -> int:
    """Print what is to be said of each page; 1 when a sentence is too long or a word is to be avoided."""
    faults = total = 0
    for name in names:
        page = Page(Path(name))
        long, words = page.long_sentences(), page.forbidden()
        share = len(long) / max(1, len(page.sentences))
        print(f"{name}: {page.words:,} words, {len(page.sentences)} sentences, {len(long)} long ({share:.0%})")
        for line, sentence in long:
            print(f"  line {line}, {_words(sentence)} words: {sentence}")
        for fault in words:
            print(f"  {fault}")
        faults += len(long) + len(words)
        total += page.words
    if len(names) > 1:
        print(f"{total:,} words in all")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
