"""What is wrong with a file of a dataset or a patch, line by line: problems that have it refused, and warnings."""

import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from headwater.rdf import BOUNDS, BadRdf
from headwater.rdf.parsing import parsed_files
from headwater.rdf.statements import good_lines, has_blanks, line_blocks, octets
from headwater.rdf.syntaxes import RdfInput
from headwater.rdf.unified_diff import PatchSteps, read_patch

_MOST = 1_000


@dataclass(frozen=True, slots=True)
class RdfFinding:
    """Something about a file. `fails`: it is refused for it. `rule` is a rule id or an error code."""

    rule: str
    message: str
    line: int | None
    fails: bool


@dataclass(slots=True)
class RdfFindings:
    """What there is to say of a file: at most 1,000 findings, and how many more."""

    statements: int = 0
    problems: int = 0
    findings: list[RdfFinding] = field(default_factory=list)
    left_out: int = 0

    def fault(self, error: BadRdf, line: int | None = None) -> None:
        """Add why the file, or a line of it, is refused."""
        self.note(error.rule or error.code, error.said, error.line or line, fails=True)

    def note(self, rule: str, message: str, line: int | None, *, fails: bool) -> None:
        """Add something."""
        self.problems += fails
        if len(self.findings) < _MOST:
            self.findings.append(RdfFinding(rule, message, line, fails))
        else:
            self.left_out += 1


def check_dataset(one: RdfInput) -> RdfFindings:
    """What is wrong with a file of a dataset: in N-Quads each line, elsewhere up to the first fault."""
    notes = RdfFindings()
    blanks = 0
    try:
        for block in _checked_lines(one, notes):
            notes.statements += block.count(b"\n")
            blanks += has_blanks(block)
    except BadRdf as error:
        notes.fault(error)
        if not one.syntax.is_lines:
            notes.note(error.code, "nothing after this problem was checked", None, fails=False)
    if not notes.statements and not notes.problems:
        what = "there is no statement: the file is empty, or JSON-LD without a context"
        notes.note("HW-DAT-04", what, None, fails=False)
    if blanks:
        notes.note("NQUD-A6", "there are blank nodes: patches cannot name them", None, fails=False)
    return notes


def _checked_lines(one: RdfInput, notes: RdfFindings) -> Iterator[bytes]:
    """The statements of a file as blocks of canonical lines: of one of lines without those that are noted."""
    if not one.syntax.is_lines:
        with tempfile.TemporaryDirectory(prefix="rdf-") as folder:
            for _one, path in parsed_files([one], Path(folder), BOUNDS):
                with path.open("rb") as file:
                    yield from line_blocks(octets(file, one.where), one.where)
        return
    line = 1
    with one.path.open("rb") as file:
        for block in line_blocks(octets(file, one.where), one.where):
            yield good_lines(block, line, one.where, one.syntax.parser_format, notes.fault)
            line += block.count(b"\n")


def check_patch(path: Path, where: str, *, scratch: Path) -> RdfFindings:
    """What is wrong with a patch: malformed lines, and what a writer should not write (NQUD-A4, NQUD-A6)."""
    notes = RdfFindings()
    blanks = None
    try:
        with path.open("rb") as file:
            reader = read_patch(file, strict=False, where=where, skipped=notes.fault)
            for _sign, statement, number in reader:
                notes.statements += 1
                if blanks is None and has_blanks(statement):
                    blanks = number
            file.seek(0)
            lines = (line for block in line_blocks(octets(file, where), where) for line in block.splitlines())
            passed = sum(line[:1] not in b"+-#" for line in lines)
    except BadRdf as error:
        notes.fault(error)
        return notes
    if not notes.statements and not notes.problems:
        notes.note("NQUD-02", "no line begins with + or -: the patch changes nothing", None, fails=False)
    elif passed:
        notes.note("NQUD-02", f"{passed:,} lines begin with neither + nor -, and are passed over", None, fails=False)
    if blanks is not None:
        notes.note(
            "NQUD-A6", "there are blank nodes: labels mean the same nodes only by agreement", blanks, fails=False
        )
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder, closing(PatchSteps(Path(folder))) as steps:
        steps.add(path, strict=False)
        for statement, signs in steps.statements():
            if len(signs) > 1:
                what = "is added and removed" if len(set(signs)) > 1 else "stands there twice"
                notes.note("NQUD-A4", f"a statement {what}: {_shown(statement)}", None, fails=False)
    return notes


def _shown(statement: bytes) -> str:
    text = statement.decode().rstrip("\n")
    return text if len(text) <= 200 else text[:200] + " …"
