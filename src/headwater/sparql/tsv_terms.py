"""Rows of the SPARQL 1.1 TSV results format, with every term as N-Triples has it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

Row = tuple[str | None, ...]
"""A term for each variable; None where it is unbound."""

_XSD: Final = "http://www.w3.org/2001/XMLSchema#"
_LITERAL = re.compile(r'"[^"\\\n\r]*+(?:\\.[^"\\\n\r]*+)*+"(?:@[A-Za-z0-9-]+|\^\^<[^<>"{}|^`\\\x00-\x20]+>)?')
_IRI = re.compile(r'<[^<>"{}|^`\x00-\x20]*>')
_BLANK = re.compile(r"_:\S+")
_ABBREVIATED = (
    (re.compile(r"[+-]?[0-9]+"), "integer"),
    (re.compile(r"[+-]?[0-9]*\.[0-9]+"), "decimal"),
    (re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][+-]?[0-9]+"), "double"),
    (re.compile(r"true|false"), "boolean"),
)


class BadRow(ValueError):
    """A line is no row of the TSV format."""


def rows(lines: Iterable[bytes]) -> Iterator[Row]:
    """The rows after the line of variables. Raises BadRow where the lines are something else."""
    count = None
    for line in lines:
        try:
            text = line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as cause:
            raise BadRow("the answer is not UTF-8") from cause
        fields = text.split("\t")
        if count is None:
            if not all(name[:1] in ("?", "$") for name in fields):
                raise BadRow(f"the answer begins with {text[:100]!r}, not with variables")
            count = len(fields)
            continue
        if len(fields) != count:
            raise BadRow(f"a row has {len(fields)} terms, not {count}: {text[:100]!r}")
        yield tuple(map(_term, fields))
    if count is None:
        raise BadRow("the answer is empty")


def _term(text: str) -> str | None:
    """A term as N-Triples has it: numbers and booleans may be abbreviated in TSV, as in Turtle."""
    if not text:
        return None
    for pattern in (_IRI, _LITERAL, _BLANK):
        if pattern.fullmatch(text):
            return text
    for pattern, name in _ABBREVIATED:
        if pattern.fullmatch(text):
            return f'"{text}"^^<{_XSD}{name}>'
    raise BadRow(f"{text[:100]!r} is no term")
