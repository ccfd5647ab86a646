"""What a dataset is made of: a file, a folder of files, a SPARQL endpoint, an Oxigraph store.

Each says cheaply, where it can, whether it is as it was; and gives files that are made canonical together.
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from headwater.copy_state import FOLDER, STATE, CopiedFile, CopyStateReader, copied_sets, files_after, files_at
from headwater.datasets.dataset_folder import InputChanged
from headwater.errors import SourceFault
from headwater.files.patterns import Selection
from headwater.ingest.copy_intake import leads_home, origin_of
from headwater.ingest.folder.walk import RootFault, UnreadableEntry, Walk, path_of
from headwater.rdf.dataset_choice import RdfFile, chosen_dataset, rdf_file
from headwater.rdf.syntaxes import N_QUADS, RdfInput, Syntax, syntax_of
from headwater.spec.records import Link
from headwater.spec.uris import resolve
from headwater.storage.transaction import Transaction
from headwater.triplestores.embedded_store import dump_store
from headwater.triplestores.sparql_endpoint import SparqlEndpoint
from headwater.triplestores.sparql_updates import POSITION_GRAPH

MOST_FILES: Final = 100_000
_ALL: Final = (
    f"{{ {{ ?s ?p ?o }} UNION {{ GRAPH ?g {{ ?s ?p ?o }} FILTER(?g != <{POSITION_GRAPH}>) }} }}"  # none of the dataset
)
_QUADS: Final = f"SELECT ?g ?s ?p ?o WHERE {_ALL}"
_COUNT: Final = f"SELECT (COUNT(*) AS ?count) WHERE {_ALL}"
_STORE_FILES: Final = (".sst", ".log", ".blob")
_SYNTAX: Final = 'Give it a suffix of RDF (.nq, .nt, .ttl, …), or a [[set]] of a configuration with syntax = "nquads".'


class DatasetInput:
    """What a dataset is made of. Methods raise SourceFault and other faults of whoever must act."""

    where: str  # what messages call it
    origin: Link | None = None  # where what was read last has come from, if it was copied

    def signature(self) -> bytes | None:
        """Another one for another state; None where only reading it tells."""
        return None

    def changed_at_ns(self) -> int:
        """When it changed last, as far as can be told; 0 where nothing can."""
        return 0

    def read(self, scratch: Path) -> list[RdfInput]:
        """The files of its present state; what has to be made for that is in `scratch`."""
        raise NotImplementedError


class PathInput(DatasetInput):
    """A file that is replaced, or all files below a folder whose names are those of RDF, whichever is there.

    All files of a folder are taken where the syntax is given. Left out are folders in it that may have come from the
    dataset itself, of which nothing would ever be removed: copies of the source at this base URL, stores that follow a
    dataset, static trees. Relative IRIs of a file are resolved against `base`; of each in a folder against its own,
    which is its path in the folder, resolved against `base`.
    """

    def __init__(self, path: Path, base_url: str, syntax: Syntax | None = None, base: str | None = None) -> None:
        self.where = str(path)
        self._base = base
        self._base_url = base_url
        self._path = path
        self._syntax = syntax

    def signature(self) -> bytes | None:
        """By what the system says of each file."""
        based = (self._base or "").encode()
        if based and self._path.is_dir():
            based = b"\0" + based
        return signature_of_files((uri.encode() + based, found) for _, uri, _, found in self._files())

    def changed_at_ns(self) -> int:
        """The later of the times of content and name, of the file that changed last."""
        return max((max(found.st_mtime_ns, found.st_ctime_ns) for *_, found in self._files()), default=0)

    def read(self, scratch: Path) -> list[RdfInput]:
        """The files, in the order of their paths. Blank nodes of one are never those of another."""
        _ = scratch
        found = []
        for path, uri, syntax, _state in self._files():
            if syntax is None:
                what = "the file name has no suffix of RDF"
                raise SourceFault(what, code="HW-DAT-03", where=self.where, advice=_SYNTAX)
            found.append(RdfInput(path, syntax, resolve(self._base, uri) if self._base and uri else self._base))
        return found

    def _files(self) -> Iterator[tuple[Path, str, Syntax | None, os.stat_result]]:
        """Each file with its relative URI; that of what is no folder is empty."""
        if not self._path.is_dir():
            with _reading(self.where):
                found = self._path.stat()
            if not stat.S_ISREG(found.st_mode):
                raise SourceFault("not a file", code="HW-DAT-03", where=self.where)
            yield self._path, "", self._syntax or syntax_of(None, self._path.name), found
            return
        count, root = 0, os.path.realpath(os.fsencode(self._path)) + b"/"
        try:
            for one in Walk(root, Selection(hidden=False), base_url=self._base_url).everything():
                path = Path(os.fsdecode(one.path))
                if isinstance(one, UnreadableEntry):
                    raise SourceFault(f"cannot be read: {one.error}", code="HW-DAT-03", where=str(path))
                syntax = self._syntax or syntax_of(None, path.name)
                if syntax is None or one.path != root + path_of(one.uri):  # a link
                    continue
                count += 1
                if count > MOST_FILES:
                    what = f"the folder has more than {MOST_FILES:,} RDF files"
                    raise SourceFault(what, code="HW-DAT-03", where=self.where)
                yield path, one.uri, syntax, one.stat
        except RootFault as fault:
            raise SourceFault(f"cannot be read: {fault.__cause__}", code="HW-DAT-03", where=self.where) from fault


class EndpointInput(DatasetInput):
    """The dataset of a SPARQL 1.1 endpoint: its default graph and all named ones but that of positions.

    It counts as changed while it was read where the number of its statements is another one before, in and after.
    """

    def __init__(self, where: str, make: Callable[[], SparqlEndpoint]) -> None:
        self.where = where
        self._make = make

    def read(self, scratch: Path) -> list[RdfInput]:
        """Its statements as N-Quads. Raises InputChanged, and faults of the endpoint."""
        target = scratch / "endpoint.nq"
        with closing(self._make()) as endpoint:
            before = self._count(endpoint)
            rows = self._write(endpoint, target)
            if self._count(endpoint) != before or rows != before:
                raise InputChanged(f"{before:,} statements were counted, {rows:,} were sent", where=self.where)
        return [RdfInput(target, N_QUADS, name=self.where)]

    def _write(self, endpoint: SparqlEndpoint, target: Path) -> int:
        count = 0
        with target.open("w", encoding="utf-8", newline="") as file, closing(endpoint.rows(_QUADS)) as rows:  # type: ignore[type-var]  # a generator
            for graph, *triple in rows:
                if len(triple) != 3 or None in triple:
                    raise SourceFault("a row of the answer is no statement", code="HW-DAT-03", where=self.where)
                file.write(f"{' '.join(map(str, triple))} {graph or ''} .\n")
                count += 1
        return count

    def _count(self, endpoint: SparqlEndpoint) -> int:
        text = endpoint.value(_COUNT) or ""
        digits = text.partition("^^")[0].strip('"')
        if not (digits.isascii() and digits.isdigit()):
            raise SourceFault("the endpoint does not count its statements", code="HW-DAT-03", where=self.where)
        return int(digits)


class StoreInput(DatasetInput):
    """The folder of an Oxigraph store that no other process has open while it is read, under its own lock."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        self._path = path

    def signature(self) -> bytes | None:
        """By what the system says of the files with its data."""
        return signature_of_files((os.fsencode(path.name), found) for path, found in self._files())

    def read(self, scratch: Path) -> list[RdfInput]:
        """Its statements as N-Quads."""
        target = scratch / "store.nq"
        with _reading(self.where), (self._path / "LOCK").open("ab") as lock:
            try:  # the lock by which a store belongs to one process: nobody may write while it is read
                fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as cause:
                what = "another process uses the store"
                advice = "Have that process answer SPARQL, and set `sparql` to its address."
                raise SourceFault(what, code="HW-DAT-03", where=self.where, advice=advice) from cause
            dump_store(self._path, target)
        return [RdfInput(target, N_QUADS, name=self.where)]

    def _files(self) -> Iterator[tuple[Path, os.stat_result]]:
        with _reading(self.where):
            names = sorted(os.listdir(self._path))
        if "CURRENT" not in names:
            raise SourceFault("no Oxigraph store is in this folder", code="HW-DAT-03", where=self.where)
        for name in names:
            is_data = name.endswith(_STORE_FILES) or name.startswith("MANIFEST")
            found = _stat(self._path / name) if is_data else None
            if found is not None and (found.st_size or not name.endswith(".log")):
                yield self._path / name, found


def signature_of_files(files: Iterator[tuple[bytes, os.stat_result]] | list[tuple[bytes, os.stat_result]]) -> bytes:
    """Another one where one of the files is another one, as far as the system tells."""
    digest = hashlib.sha256()
    for name, one in files:
        digest.update(b"%s\0%d %d %d %d\0" % (name, one.st_size, one.st_mtime_ns, one.st_ctime_ns, one.st_ino))
    return digest.digest()


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None


@contextmanager
def _reading(where: Path | str) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        text = f"cannot be read: {cause.strerror or cause}"
        raise SourceFault(text, code="HW-DAT-03", where=str(where or cause.filename)) from cause


_DEEPEST: Final = 64
_AT_ONCE: Final = 1_000


class CopiedInput(DatasetInput):
    """The dataset below a folder of a copy, or the one that a file of it is.

    Nothing that is placed is under way: files of a copy are renamed to their names.
    """

    def __init__(self, path: Path, copy: Path, base_url: str) -> None:
        self.where = str(path)
        self.copy = copy
        self._below = os.fsencode(os.path.relpath(os.path.abspath(path), copy))
        self._base_url = base_url

    def signature(self) -> bytes | None:
        """By what the state says of the file, and by what the system says."""
        file, _dataset = self._found()
        said = f"{file.uri}\0{file.digest}\0{file.unconfirmed}\0{file.links}"
        return signature_of_files([(said.encode("utf-8", "surrogatepass"), self._stat(file))])

    def read(self, scratch: Path) -> list[RdfInput]:
        """The file. Raises InputChanged where it is not as it was placed, for the moment at least."""
        _ = scratch
        file, dataset = self._found()
        path, seen = self.copy / os.fsdecode(file.path), self._stat(file)
        if file.unconfirmed:
            raise SourceFault("no list confirms the copy's dataset yet", code="HW-DAT-03", where=str(path))
        if (seen.st_size, seen.st_mtime_ns) != (file.size, file.mtime_ns):
            raise InputChanged("the dataset of the copy is not as it was placed", where=str(path))
        self.origin = origin_of(file)
        if leads_home([self.origin], self._base_url):
            raise SourceFault("the copy's dataset came from this source", code="HW-DAT-03", where=self.origin.href)
        return [RdfInput(path, dataset.syntax, dataset.uri, str(path))]

    def _found(self) -> tuple[CopiedFile, RdfFile]:
        """The file of the dataset by the present state, and how it is written. Raises SourceFault, NoSingleDataset, and
        faults of the state."""
        with closing(CopyStateReader(self.copy)) as state, state.read() as t:
            files = ((one, rdf_file(one.uri, one.path, one.type, one.extra, one.digest)) for one in self._files(t))
            some = [(one, rdf) for one, rdf in files if rdf is not None]
        chosen = chosen_dataset([rdf for _, rdf in some], None)
        if chosen is None:
            raise SourceFault("the copy has no RDF dataset here", code="HW-DAT-03", where=self.where)
        return next((one, rdf) for one, rdf in some if rdf is chosen)

    def _files(self, t: Transaction) -> list[CopiedFile]:
        for one in copied_sets(t):
            if (found := files_at(t, one.id, [self._below]).get(self._below)) is not None:
                return [found]
        if Path(self.where).is_file():
            what = "the copy does not hold this file"
            raise SourceFault(
                what, code="HW-DAT-03", where=self.where, advice="Name a file that `headwater sync` has placed."
            )
        sets = [one for one in copied_sets(t) if self._below in (b".", os.fsencode(one.folder or "."))]
        if len(sets) != 1:
            told = ", ".join(one.folder or "." for one in copied_sets(t))[:200]
            what = "this folder is not a set of the copy" if not sets else "the copy has several sets"
            raise SourceFault(what, code="HW-DAT-03", where=self.where, advice=f"Name the folder of one set: {told}.")
        return files_after(t, sets[0].id, "", _AT_ONCE)

    def _stat(self, file: CopiedFile) -> os.stat_result:
        path = self.copy / os.fsdecode(file.path)
        with _reading(path):
            return path.stat(follow_symlinks=False)


def input_at(path: Path, base_url: str, base: str | None = None) -> DatasetInput:
    """What is at a path by now: something of a copy, or a file or a folder of none, which `base` is for."""
    whole = Path(os.path.abspath(path))
    copies = (one for one in (whole, *whole.parents)[:_DEEPEST] if (one / FOLDER / STATE).is_file())
    copy = next(copies, None)
    return PathInput(path, base_url, None, base) if copy is None else CopiedInput(path, copy, base_url)
