"""Finds the records of an answer that is written as nearly all are, without a look at their elements; no I/O.

expat sees whether the answer is well-formed. Without comments, CDATA and processing instructions, whatever looks like a
tag is one: a record ends at the next end tag of its name, if no tag that begins like it stands before.
"""

import pyexpat
import re
from typing import NamedTuple

IS_ON = True

_MOST_OCTETS = 8 << 20
_HEADER = re.compile(
    rb"\s*(<record>)\s*<header(?:\s+status=\"(deleted)\")?\s*>\s*<identifier>([^<&]{1,4000})</identifier>\s*"
    rb"<datestamp>([^<&]{1,100})</datestamp>((?:\s*<setSpec>[^<&]{0,4000}</setSpec>){0,200})\s*</header>"
)
_SPEC = re.compile(rb">\s*([^<&\s][^<&]*?)\s*<")


class FoundRecords(NamedTuple):
    """The records of an answer: identifier, datestamp, sets, whether it is deleted, octets behind its first tag.

    `rest` is the answer with `<record/>` in their place.
    """

    records: list[tuple[str, str, tuple[str, ...], bool, bytes]]
    rest: bytes


class _Unusual(Exception):
    """Something stands in the answer that may look like a tag and be none."""


def _refuse(*_said: object) -> None:
    raise _Unusual


def find_records(text: bytes) -> FoundRecords | None:
    """The records of an answer in UTF-8; None: another way has to be taken."""
    begin = at = text.find(b"<record>")
    if begin < 0 or begin != text.find(b"<record") or len(text) > _MOST_OCTETS:
        return None
    found = []
    while (header := _HEADER.match(text, at)) is not None:
        behind, (deleted, identifier, datestamp, specs) = header.end(), header.group(2, 3, 4, 5)
        at = text.find(b"</record>", behind) + len(b"</record>")
        if at < behind or text.find(b"<record", behind, at) >= 0 or not identifier.strip():
            return None
        sets = tuple(one.decode() for one in _SPEC.findall(specs)) if specs else ()
        name, stamp = identifier.decode().strip(), datestamp.decode().strip()
        octets = b"" if deleted else text[header.end(1) : at]
        found.append((name, stamp, sets, deleted is not None, octets))
    if not found or text.find(b"<record", at) >= 0:
        return None
    parser = pyexpat.ParserCreate("utf-8", " ")
    parser.CommentHandler = parser.StartCdataSectionHandler = parser.StartDoctypeDeclHandler = _refuse
    parser.ProcessingInstructionHandler = _refuse
    try:
        parser.Parse(text, True)  # noqa: FBT003 (takes no name)
    except (pyexpat.ExpatError, _Unusual):
        return None
    return FoundRecords(found, text[:begin] + b"<record/>" + text[at:])
