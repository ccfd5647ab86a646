"""Canonical N-Quads: one form for each dataset, sorted bytewise, each statement once; its SHA-256 is a document's hash.

That hash is what `headwater rdf hash --base URI` prints: equal for documents that say the same, in whatever octets.
Lines that do not fit into memory are sorted by sort(1).
"""

import errno
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from pyoxigraph import Quad, RdfFormat, Triple, parse, serialize

from headwater.errors import Undetermined, UsageFault
from headwater.processes.pool import (
    JobEnded,
    LimitedProcess,
    ProcessPool,
    WorkerProgram,
    limit_memory,
    processors,
    widen,
)
from headwater.rdf import BOUNDS, PREFIXES, BadRdf, BlankNodesRefused, Fault, RdfBounds, RdfTooCostly, bad_rdf, fault_of
from headwater.rdf.blank_nodes import BlankNodes as BlankNodes
from headwater.rdf.blank_nodes import NamedLines, bounded_forms
from headwater.rdf.parsing import parsed_files, statements_of
from headwater.rdf.statements import (
    BLOCK,
    canonical_and_blanks,
    canonical_block,
    good_lines,
    has_blanks,
    line_blocks,
    octets,
    refuse_blanks,
)
from headwater.rdf.syntaxes import N_TRIPLES, NAMES, RdfInput, Syntax

_PIECE_OCTETS: Final = 4 << 20
"""So much of a file is made canonical by a process at once."""
_AHEAD: Final = 2
BAD_LINES_SHOWN: Final = 20
"""Of the bad lines that are left out, so many are told of each piece."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RdfOptions:
    """How RDF is taken: what becomes of its blank nodes, and within which bounds.

    `genid` is the prefix of the IRIs by which blank nodes are REPLACED (`https://…/.well-known/genid/`). With
    `bad_lines` those of N-Quads and N-Triples are left out, and it is told their number and the first of them; else the
    first is raised.
    """

    blank_nodes: BlankNodes = BlankNodes.REFUSED
    genid: str | None = None
    bounds: RdfBounds = BOUNDS
    bad_lines: Callable[[int, Sequence[BadRdf]], None] | None = None


NO_BLANK_NODES = RdfOptions()
"""Blank nodes are refused, and the usual bounds hold."""
LABELS_KEPT = RdfOptions(BlankNodes.KEPT)
"""Blank nodes keep their labels."""


@dataclass(frozen=True, slots=True)
class DatasetSummary:
    """What was written: the number of statements, the octets and their SHA-256 (hexadecimal)."""

    quads: int
    octets: int
    sha256: str


def write_canonical(
    inputs: Iterable[RdfInput],
    target: Path,
    *,
    scratch: Path,
    options: RdfOptions = NO_BLANK_NODES,
    durable: bool = True,
) -> DatasetSummary:
    """Write the union of files as canonical N-Quads at `target`, which is replaced as a whole or not touched.

    What is sorted on the way lies in a folder of its own below `scratch`. Unless it is `durable` a power failure may
    take the file away. Raises BadRdf and its kinds.
    """
    bounds, treated = options.bounds, options.blank_nodes
    named = NamedLines(bounds, options.genid if treated is BlankNodes.REPLACED else None)
    kept: RdfInput | None = None
    with (
        tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as folder,
        closing(LineSorter(Path(folder), bounds)) as sorter,
    ):
        for number, one, block, blanks in _canonical_pieces(inputs, Path(folder), options):
            sorter.add(block)
            if blanks and treated is BlankNodes.KEPT:
                kept = kept or one
                if kept is not one:
                    what = "labels of blank nodes cannot be kept of two files"
                    raise BlankNodesRefused(what, where=one.where, rule="NQUD-A6")
            elif blanks:
                named.take(blanks, number, one.where)
        for block in named.blocks():
            sorter.add(canonical_block(block, 1, ""))
        return write_blocks(sorter.blocks(), target, durable=durable)


def _canonical_pieces(
    inputs: Iterable[RdfInput], folder: Path, options: RdfOptions
) -> Iterator[tuple[int, RdfInput, bytes, bytes]]:
    """The files in canonical pieces, each with its number: lines, and those with blank nodes that are to be treated."""
    seen = [(one, _signature(one.path)) for one in inputs]
    documents = (one for one, _ in seen if not one.syntax.is_lines)
    lines = ((one, one.path) for one, _ in seen if one.syntax.is_lines)
    pieces = _pieces(chain(lines, parsed_files(documents, folder, options.bounds)), options.bounds)
    settings = options.blank_nodes.value, options.bad_lines is not None
    for (number, one), (block, blanks, faults, left_out) in in_processes(canonical_maker, settings, pieces):
        numbered = one.syntax.is_lines
        told = [bad_rdf((code, said, line if numbered else None, rule), one.where) for code, said, line, rule in faults]
        if left_out and options.bad_lines is not None:
            options.bad_lines(left_out, told)
        elif told:
            raise told[0]
        yield number, one, block, blanks
    for one, signature in seen:
        if _signature(one.path) != signature:
            raise Undetermined("the file changes while Headwater reads it", code="HW-RDF-06", where=one.where)


def _pieces(
    files: Iterable[tuple[RdfInput, Path]], bounds: RdfBounds
) -> Iterator[tuple[tuple[int, RdfInput], tuple[bytes, int, bool]]]:
    """The pieces of files of lines, each with the number of its first line, and with whether it is N-Triples."""
    most = min(_PIECE_OCTETS, bounds.run_octets)
    for number, (one, path) in enumerate(files):
        line, triples = 1, one.syntax is N_TRIPLES
        blocks: list[bytes] = []
        with path.open("rb") as stream:
            for block in line_blocks(octets(stream, one.where, bounds), one.where, bounds):
                blocks.append(block)
                if sum(map(len, blocks)) >= most:
                    piece, blocks = b"".join(blocks), []
                    yield (number, one), (piece, line, triples)
                    line += piece.count(b"\n")
        if blocks:
            yield (number, one), (b"".join(blocks), line, triples)


def canonical_maker(settings: tuple[str, bool]) -> Callable[[Any], Any]:
    """What a process does that makes pieces canonical, with blank nodes treated in this way: lines, and those with
    blank nodes, which are taken out of them to be named, or the first of them where all keep their labels; what is
    wrong (`fault_of`), if anything is; and, where bad lines are left out, their number, with the first of these."""
    treated, leaves_out = settings

    def made(job: tuple[bytes, int, bool]) -> tuple[bytes, bytes, Sequence[Fault], int]:
        piece, first, triples = job
        parser_format = RdfFormat.N_TRIPLES if triples else RdfFormat.N_QUADS
        faults: list[Fault] = []
        left_out = 0

        def leave_out(fault: BadRdf) -> None:
            nonlocal left_out
            left_out += 1
            if left_out <= BAD_LINES_SHOWN:
                faults.append(fault_of(fault))

        try:
            if leaves_out:
                block = good_lines(piece, first, "", parser_format, leave_out)
                has_some = has_blanks(block)
            else:
                block, has_some = canonical_and_blanks(piece, first, "", parser_format)
            if has_some and treated == BlankNodes.REFUSED.value:  # on which line?
                for number, text in enumerate(piece.split(b"\n")[:-1], first):
                    line = b""
                    with suppress(BadRdf):  # which is left out
                        line = canonical_block(text + b"\n", number, "", parser_format)
                    refuse_blanks(line, "", number)
        except BadRdf as error:
            return b"", b"", [fault_of(error)], 0
        if not has_some:
            return block, b"", faults, left_out
        lines = block.splitlines(keepends=True)
        blanks = list(filter(has_blanks, lines))
        if treated == BlankNodes.KEPT.value:
            return block, blanks[0], faults, left_out
        taken = set(blanks)
        return b"".join([line for line in lines if line not in taken]), b"".join(blanks), faults, left_out

    return made


class NotCanonical(Exception):
    """The file at `path` is not what `write_canonical` would make of it."""

    def __init__(self, path: Path):
        super().__init__(str(path))
        self.path = path


def canonical_checker(keeps_blanks: bool) -> Callable[[Any], bool]:  # noqa: FBT001 - the settings of a process
    """What a process does that looks at pieces of files: whether each line is canonical, and has no blank nodes unless
    these are kept."""

    def is_sound(job: tuple[bytes]) -> bool:
        try:
            canonical, has_some = canonical_and_blanks(job[0], 1, "")
        except BadRdf:
            return False
        return canonical == job[0] and (keeps_blanks or not has_some)

    return is_sound


def plain_blocks(file: BinaryIO, octets: int) -> Generator[bytes]:
    """The lines of a file in blocks of so many octets, as they are: nobody looks whether they are canonical."""
    while block := file.read(octets):
        yield block + file.readline(BOUNDS.line_octets)


def in_processes(
    function: Callable[[Any], Callable[[Any], Any]], settings: Any, jobs: Iterable[tuple[T, Any]], few: int = 1
) -> Generator[tuple[T, Any]]:
    """What `function(settings)` makes of each job, in order; so `few` alone are done in this process."""
    source, here = iter(jobs), function(settings)
    begun = list(islice(source, few + 1))
    if len(begun) <= few:
        yield from ((item, here(tuple(job))) for item, job in begun)
        return
    program = WorkerProgram(function=function, settings=settings, libraries=True)
    pool = ProcessPool[T](program, here, processes=processors(), ahead=_AHEAD)
    with closing(pool.answers((item, tuple(job)) for item, job in chain(begun, source))) as answers:
        yield from answers


def _signature(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def write_blocks(blocks: Iterable[bytes], target: Path, *, durable: bool = True) -> DatasetSummary:
    """Write blocks of lines that are in order to a file, which gets its name at the end."""
    digest = hashlib.sha256()
    quads = length = 0
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            for block in blocks:
                digest.update(block)
                length += file.write(block)
                quads += block.count(b"\n")
            file.flush()
            if durable:
                os.fsync(file.fileno())
        aside.replace(target)
    finally:
        aside.unlink(missing_ok=True)
    return DatasetSummary(quads, length, digest.hexdigest())


_WITH_GRAPHS = ("nquads", "trig", "jsonld")
_WITH_PREFIXES = ("turtle", "trig", "rdfxml")
_MOST_PREFIXES = 50
_MOST_COUNTED = 10_000
_TYPE = b"<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_NAMESPACE = re.compile(rb"<([^<>]*[#/])[A-Za-z_][A-Za-z0-9_-]*>")
_DATATYPE = re.compile(rb'"\^\^(<[^<>]*>)')


def write_syntax(inputs: Sequence[RdfInput], target: Path, syntax: Syntax, *, scratch: Path) -> DatasetSummary:
    """Write the dataset of files in a syntax at `target`: the same octets for the same dataset. Gives the dataset.

    Raises BadRdf for what the syntax cannot say: named graphs in most, some predicates and characters in RDF/XML.
    """
    with tempfile.TemporaryDirectory(prefix="rdf-", dir=scratch) as name:
        folder = Path(name)
        dataset = _canonical(inputs, folder / "dataset")
        with _says_all(inputs, syntax):
            _serialise(folder / "dataset", target, syntax)
            again = _canonical([RdfInput(target, syntax, name="what was written")], folder / "again")
            if again.sha256 != dataset.sha256:
                raise ValueError(_ANOTHER)
    return dataset


def write_small_syntax(dataset: Path, target: Path, syntax: Syntax) -> None:
    """The same of a file that we have made canonical, which has no blank nodes and fits into memory."""
    one = RdfInput(target, syntax)
    with _says_all([RdfInput(dataset, syntax)], syntax):
        _serialise(dataset, target, syntax)
        with target.open("rb") as file:
            lines = b"".join(statements_of(one, file, BOUNDS)).splitlines(keepends=True)
        if b"".join(sorted(set(lines))) != dataset.read_bytes():
            raise ValueError(_ANOTHER)


_ANOTHER = "a second reading gave another dataset"


def _serialise(dataset: Path, target: Path, syntax: Syntax) -> None:
    quads = parse(path=dataset, format=RdfFormat.N_QUADS)
    statements = quads if syntax.name in _WITH_GRAPHS else (_triple(quad) for quad in quads)
    prefixes = _prefixes(dataset) if syntax.name in _WITH_PREFIXES else None
    serialize(statements, str(target), syntax.parser_format, prefixes=prefixes)


@contextmanager
def _says_all(inputs: Sequence[RdfInput], syntax: Syntax) -> Iterator[None]:
    try:
        yield
    except (BadRdf, OSError, ValueError) as error:
        where, why = ", ".join(one.where for one in inputs[:3]), str(error)[:300]
        raise BadRdf(f"{syntax.title} cannot say this: {why}", where=where) from error


def _prefixes(dataset: Path) -> dict[str, str]:
    """Prefixes for the namespaces of properties, classes and datatypes of canonical lines: the most frequent ones."""
    counts = Counter[bytes]()
    with dataset.open("rb") as file:
        for line in file:
            _subject, predicate, rest = line.split(b" ", 2)
            others = [rest.partition(b" ")[0]] if predicate == _TYPE else _DATATYPE.findall(rest)
            for found in map(_NAMESPACE.fullmatch, [predicate, *others]):
                if found is not None and (found[1] in counts or len(counts) < _MOST_COUNTED):
                    counts[found[1]] += 1
    frequent = sorted(counts, key=lambda one: (-counts[one], one))[:_MOST_PREFIXES]
    usual = {iri: prefix for prefix, iri in PREFIXES.items()}
    spaces = sorted(one.decode() for one in frequent)
    new = (one for one in spaces if one not in usual)
    return {usual[one]: one for one in spaces if one in usual} | {f"ns{n}": one for n, one in enumerate(new, 1)}


def _canonical(inputs: Sequence[RdfInput], target: Path) -> DatasetSummary:
    options = RdfOptions(BlankNodes.CANONICAL)
    return write_canonical(inputs, target, scratch=target.parent, durable=False, options=options)


def _triple(quad: Quad) -> Triple:
    if (graph := str(quad.graph_name)) != "DEFAULT":
        raise ValueError(f"it has no named graphs, and there is {graph}")
    return quad.triple


# the hash of a document: parser and canonicaliser run in a process that is ended at one that takes too long or too much

HASHED_OCTETS: Final = 16 << 20
"""Of one document, inflated: it and its statements are held in memory."""
_HASHER_SECONDS: Final = 20.0
_HASHER_MEMORY: Final = 1 << 30
_MOST_ENDED: Final = 5
"""After so many documents at which the process was ended no other is tried: each takes its time."""


class CanonicalHasher:
    """Hashes documents by their canonical form. Close it."""

    def __init__(self, *, octets: int = HASHED_OCTETS, seconds: float | None = None) -> None:
        self._most = octets
        self._seconds = _HASHER_SECONDS if seconds is None else seconds
        self._left = _MOST_ENDED
        self._process = LimitedProcess(document_hasher, _HASHER_MEMORY)

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def digest(self, path: Path, syntax: Syntax, uri: str, octets: bytes | None = None) -> str:
        """The SHA-256, hexadecimal, of a file, or of its octets where they are given; `uri` is the base of its IRIs.

        Raises BadRdf for what is no RDF in its syntax, RdfTooCostly, OSError.
        """
        if (path.stat().st_size if octets is None else len(octets)) > self._most:
            raise RdfTooCostly(f"the document has more than {self._most:,} octets", where=uri)
        if not self._left:
            raise RdfTooCostly("too many documents before it took too long", where=uri)
        job = (str(path), octets, syntax.name, uri, self._most)
        try:
            digest, fault = self._process.do(job, self._seconds)
        except JobEnded as error:
            self._left -= 1
            raise RdfTooCostly(f"the document cannot be canonicalised: {error}", where=uri) from error
        if fault:
            raise bad_rdf(fault, uri)
        return str(digest)


def document_hasher(memory: int) -> Callable[[Any], Any]:
    """What the process does: the digest of a document, or what is wrong with it (`fault_of`)."""
    limit_memory(memory)

    def hashed(job: tuple[str, bytes | None, str, str, int]) -> tuple[str, Fault | tuple[()]]:
        path, given, syntax, uri, most = job
        one = RdfInput(Path(path), NAMES[syntax], uri, uri)
        try:
            with Path(path).open("rb") if given is None else BytesIO(given) as stream:
                plain, blanks = set[bytes](), set[bytes]()
                for block in statements_of(one, stream, RdfBounds(octets=most)):
                    for line in block.splitlines(keepends=True):
                        (blanks if has_blanks(line) else plain).add(line)
            if blanks:
                (form,) = bounded_forms([b"".join(sorted(blanks))], memory)
                plain.update(form.splitlines(keepends=True))
            return hashlib.sha256(b"".join(sorted(plain))).hexdigest(), ()
        except BadRdf as error:
            return "", fault_of(error)
        except OSError as error:
            return "", fault_of(BadRdf(f"the document cannot be read: {error.strerror}"))

    return hashed


# lines in order

_PLACES = "/usr/bin:/bin"
"""Where sort(1) is looked for, whatever PATH says."""
_SORT_MEMORY = "64M"
"""What sort(1) holds in memory; of long lines, one for each of the files that it merges."""
_DISK_FAULTS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EMFILE, errno.EACCES)


class LineSorter:
    """Takes lines in blocks, and gives them sorted bytewise, each once. The caller closes it.

    What does not fit into memory lies in the folder `scratch`, which the caller removes. Raises OSError as writing to a
    file there does.
    """

    def __init__(self, scratch: Path, bounds: RdfBounds = BOUNDS) -> None:
        self._scratch = scratch
        self._bounds = bounds
        self._held = bytearray()
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, block: bytes) -> None:
        """Take whole lines, each ended by LF, without CR."""
        if self._process is not None:
            self._send(block)
        else:
            self._held += block
            if len(self._held) > self._bounds.run_octets:
                program = shutil.which("sort", path=_PLACES)
                if program is None:
                    raise UsageFault(f"sort(1) is not in {_PLACES}", advice="Install coreutils.")
                # it ends with this process, since it then reads its end and has nobody to write to
                process = self._process = subprocess.Popen(
                    [program, "-u", "-S", _SORT_MEMORY, "-T", os.fspath(self._scratch)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={"LC_ALL": "C", "PATH": _PLACES, "TMPDIR": os.fspath(self._scratch)},
                )
                assert process.stdin is not None
                assert process.stdout is not None
                widen(process.stdin)
                widen(process.stdout)
                self._send(self._held)
                self._held.clear()

    def blocks(self) -> Iterator[bytes]:
        """All lines that were taken, sorted, each once, in blocks. Once only."""
        if self._process is None:
            lines = sorted(set(bytes(self._held).splitlines(keepends=True)))
            if lines:
                yield b"".join(lines)
            return
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        unbounded = replace(self._bounds, line_octets=self._bounds.octets)
        yield from line_blocks(iter(lambda: process.stdout.read(BLOCK), b""), "", unbounded)  # type: ignore[union-attr]
        if process.wait():
            raise self._fault(process)

    def lines(self) -> Iterator[bytes]:
        """The same line by line, each with its LF."""
        for block in self.blocks():
            yield from block.splitlines(keepends=True)

    def close(self) -> None:
        """End the process, whatever it still does."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for stream in (process.stdin, process.stdout, process.stderr):
                with suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
            process.wait()

    def _send(self, block: bytes | bytearray) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(block)
        except BrokenPipeError as cause:
            raise self._fault(self._process) from cause

    def _fault(self, process: subprocess.Popen[bytes]) -> OSError:
        assert process.stderr is not None
        said = process.stderr.read().decode(errors="replace").strip()
        number = next((one for one in _DISK_FAULTS if os.strerror(one) in said), errno.EIO)
        return OSError(number, said[-300:] or "sort(1) was ended", os.fspath(self._scratch))
