"""`headwater rdf`: datasets made canonical, hashed and compared, patches applied, combined and checked."""

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from headwater.catalog.dump import written
from headwater.catalog.interface import UnknownSet
from headwater.cli.catalog_argument import CatalogArgument, existing
from headwater.cli.output import (
    STANDARD,
    counted,
    json_document,
    json_option,
    listening,
    output_faults,
    printable,
    show_result,
    show_some,
    standard_input,
)
from headwater.cli.shared_options import EXISTING, Command, dest_argument, option, options
from headwater.cli.stop_signal import terminated
from headwater.copy_state import CopyStateReader, copied_sets, files_after
from headwater.datasets.dataset_folder import BrokenSeries, DatasetFolder, replayed
from headwater.datasets.rows import DatasetPatch, DatasetState, patches_from, read_dataset
from headwater.errors import Exit, HeadwaterError, StoreFault, UsageFault
from headwater.quantities import human_octets
from headwater.rdf.canonical import (
    LABELS_KEPT,
    NO_BLANK_NODES,
    BlankNodes,
    DatasetSummary,
    RdfOptions,
    write_canonical,
    write_syntax,
)
from headwater.rdf.checking import check_dataset, check_patch
from headwater.rdf.statements import is_iri
from headwater.rdf.syntaxes import N_QUADS, NAMES, RdfInput, syntax_of
from headwater.rdf.syntaxes import is_patch as named_patch
from headwater.rdf.unified_diff import PatchSummary, merge_patches, write_composed, write_dataset_patch
from headwater.source.config import read_config
from headwater.triplestores.embedded_store import EmbeddedStore

# files: `-` for the standard streams, gzip, and results that appear when they are complete

_PAGE = 1_000


_READ = "read-"
SYNTAX_NAMES = ("nquads", "ntriples", "turtle", "trig", "rdfxml", "jsonld")
_PIECE = 1 << 20

file_type = click.Path(exists=True, dir_okay=False, allow_dash=True)
output_option = option(
    "-o, --output FILE",
    "Write the complete result to FILE, compressed if it ends in .gz.  [default: standard output]",
    click.Path(dir_okay=False, allow_dash=True),
    default=STANDARD,
)
lenient_option = option("--lenient", "Skip and count malformed lines of patches.")

reads_rdf = options(
    option("--syntax", "The syntax of the files.  [default: by the suffix, or N-Quads]", click.Choice(SYNTAX_NAMES)),
    option("--base IRI", "Resolve relative IRIs against this IRI; without it they are refused."),
    json_option,
)
"""How files are read."""


def names_blank_nodes(default: str) -> Callable[[Command], Command]:
    """Give a command the options that say what becomes of blank nodes; a patch is not made of canonical labels."""
    labelled, words = (["canonical"], " by RDFC-1.0 or") if default == "canonical" else ([], "")
    return options(
        option(
            "--blank-nodes",
            f"Refuse blank nodes, make them IRIs (with --genid), or label them{words} as they are.",
            click.Choice(["refuse", "iris", *labelled, "keep"]),
            default=default,
            show_default=True,
        ),
        option("--genid PREFIX", "Start of these IRIs: https://HOST/.well-known/genid/ of your host."),
    )


def _rdf_options(options: dict[str, Any]) -> RdfOptions:
    """How RDF is taken. Raises UsageFault where a prefix of IRIs is needed and none is given, or is none."""
    treated, genid = BlankNodes(options["blank_nodes"]), options["genid"]
    if (treated is BlankNodes.REPLACED) is not (genid is not None):
        raise UsageFault("--blank-nodes iris and --genid belong together", advice="Give both.")
    if genid is not None and not is_iri(genid):
        raise UsageFault(f"{genid!r} is not an IRI", advice="Give https://HOST/.well-known/genid/ of a host of yours.")
    return RdfOptions(treated, genid)


@contextmanager
def result_for(output: str, *, as_json: bool) -> Iterator[Path]:
    """A scratch folder; its file `result` is delivered as OUTPUT in the end. Raises StoreFault.

    Raises UsageFault where standard output would have the result and a summary as JSON.
    """
    if as_json and output == STANDARD:
        raise UsageFault("standard output cannot have the result and a summary", advice="Give --output with --json.")
    with scratch_folder() as scratch:
        yield scratch
        deliver(scratch / "result", output)


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder for what a command keeps on disk, below TMPDIR, for its time.

    An error in what was read into it is said to be one of standard input. Nothing is left where a signal ends the
    command. Raises StoreFault where there is no room for it.
    """
    with terminated(), tempfile.TemporaryDirectory(prefix="headwater-rdf-") as folder:
        try:
            yield Path(folder)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            what = "there is no room for temporary files"
            advice = "Set TMPDIR to a folder with room for several times what is read."
            raise StoreFault(what, where=tempfile.gettempdir(), advice=advice) from error
        except HeadwaterError as error:
            if error.where is not None and error.where.startswith(folder) and _READ in error.where:
                error.where = "standard input"
            raise


def local_files(names: Sequence[str], scratch: Path) -> list[Path]:
    """The files of these names; what comes on standard input (`-`, once) or by a pipe lies in the scratch folder."""
    if names.count(STANDARD) > 1:
        raise UsageFault("standard input can be read once", advice="Give - for one of the files only.")
    paths = []
    for number, name in enumerate(names):
        paths.append(Path(name))
        if name != STANDARD and paths[-1].is_file():
            continue
        paths[-1] = scratch / f"{_READ}{number}"
        with (
            nullcontext(standard_input()) if name == STANDARD else open(name, "rb") as source,
            paths[-1].open("xb") as file,
        ):
            shutil.copyfileobj(source, file, _PIECE)
    return paths


def rdf_inputs(names: Sequence[str], scratch: Path, options: dict[str, Any]) -> list[RdfInput]:
    """The files of these names as parts of a dataset. Raises UsageFault: a suffix that says nothing, a wrong base."""
    syntax, base = options["syntax"], options["base"]
    if base is not None and not is_iri(base):
        raise UsageFault(f"--base {base!r} is no absolute IRI", advice="Give one such as https://example.org/people/.")
    paths = local_files(names, scratch)
    inputs = []
    for name, path in zip(names, paths, strict=True):
        found = NAMES[syntax] if syntax else syntax_of(None, name)
        if found is None and (name == STANDARD or not Path(name).suffix.removesuffix(".gz")):
            found = N_QUADS
        if found is None:
            what = "the file name has no suffix of RDF"
            raise UsageFault(what, where=name, advice=f"Name it with --syntax: {', '.join(SYNTAX_NAMES)}.")
        inputs.append(RdfInput(path, found, base, name="standard input" if name == STANDARD else name))
    return inputs


def deliver(result: Path, output: str) -> None:
    """Give a complete file to standard output or as the file OUTPUT, which is replaced as a whole.

    What is there and no file, a pipe or a device, is written to and stays what it is. Raises StoreFault.
    """
    if output == STANDARD and sys.stdout is None:
        raise StoreFault("standard output is closed", advice="Name a file with --output.")
    with output_faults(output), result.open("rb") as source:
        if output == STANDARD:
            shutil.copyfileobj(source, sys.stdout.buffer, _PIECE)
            sys.stdout.buffer.flush()
            return
        with written(Path(output), 0o666) as out:
            while piece := source.read(_PIECE):
                out.write(piece)


# the commands


@click.group("rdf")
def command() -> None:
    """Convert, compare, patch and check RDF datasets in files (patches: N-Quads Unified Diff).

    Files are N-Quads, N-Triples, Turtle, TriG, RDF/XML or JSON-LD, of any size, and may be gzip; - is standard input. A
    command writes its result only when it is complete. After an error it has written nothing.
    """


def _tell(value: dict[str, Any], words: str, *, as_json: bool) -> Exit:
    """Say on standard error what was written, or as JSON on standard output, which has not the result then."""
    if as_json:
        json_document(value)
    elif words:
        click.echo(words, err=True)
    return Exit.DONE


def _tell_patch(found: PatchSummary, *, as_json: bool) -> Exit:
    words = f"{counted(found.removed, 'statement')} removed, {found.added:,} added"
    return _tell(asdict(found), words, as_json=as_json)


def _recorded(place: Path, name: str) -> tuple[DatasetFolder, DatasetState, list[DatasetPatch]]:
    """The folder of a dataset, and what the catalog has of it. Raises UsageFault."""
    with listening(bars=False) as listener, existing(CatalogArgument(str(place)), listener) as catalog:
        try:
            state = read_dataset(catalog, name)
            patches = list(patches_from(catalog, name))
        except UnknownSet:
            state, patches = None, []
    if state is None:
        raise UsageFault(f"no dataset named {name!r}", where=str(place), code="HW-DAT-05")
    folder = DatasetFolder(Path(read_config(place).state) if place.is_file() else place, name)
    return folder, state, [one for one in patches if state.first <= one.seq <= state.seq]


@command.command("dump", short_help="Write the RDF of a copy as one N-Quads file.")
@dest_argument
@option("--set NAME", "Only this set of the copy (repeatable).", name="names", multiple=True)
@output_option
@names_blank_nodes("canonical")
@json_option
def dump(dest: Path, names: tuple[str, ...], output: str, as_json: bool, **options: Any) -> Exit:
    """Write what all RDF documents of the copy DEST say as canonical N-Quads; change nothing.

    Headwater knows RDF documents by the media type that the source lists, or else by the suffix. It resolves relative
    IRIs against the document's URI, and keeps the blank nodes of each document apart.
    """
    treated = _rdf_options(options)
    state = CopyStateReader(dest)
    try:
        inputs = list(_documents(state, dest, names))
    finally:
        state.close()
    with result_for(output, as_json=as_json) as scratch:
        found = write_canonical(inputs, scratch / "result", scratch=scratch, durable=False, options=treated)
    words = f"{counted(found.quads, 'statement')} of {counted(len(inputs), 'document')}"
    return _tell({"documents": len(inputs), **asdict(found)}, words, as_json=as_json)


def _documents(state: CopyStateReader, dest: Path, names: tuple[str, ...]) -> Iterator[RdfInput]:
    """The RDF documents of sets of a copy, of all without names. Raises UsageFault for a set that there is not."""
    with state.read() as t:
        sets = copied_sets(t)
        if unknown := set(names) - {one.name for one in sets}:
            what = f"the copy has no set {min(unknown)!r}"
            raise UsageFault(what, where=str(dest), advice="`headwater status DEST` shows its sets.")
        for one in sets:
            after = ""
            while (not names or one.name in names) and (files := files_after(t, one.id, after, _PAGE)):
                after = files[-1].uri
                for file in files:
                    path = os.fsdecode(file.path)
                    syntax = syntax_of(file.type, path)
                    if syntax is not None:
                        yield RdfInput(dest / path, syntax, base=file.uri, name=file.uri)


_place = click.argument("place", metavar="STATE", type=EXISTING)


@command.command("replay", short_help="Prove that the patches of a published dataset lead to it.")
@_place
@click.argument("name", metavar="SET")
@json_option
def replay(place: Path, name: str, as_json: bool) -> Exit:
    """Apply all patches of the dataset SET to nothing, and compare the result with the dataset.

    STATE is the state folder of a source, or its configuration (.toml). The command only reads; a server may run
    meanwhile.

    Exit statuses: 0 the patches lead to the dataset; 1 they do not, or a patch is lost or damaged; 2 usage; 6 fault of
    our own store.
    """
    folder, state, patches = _recorded(place, name)
    problem = None
    try:
        with scratch_folder() as scratch:
            _, made = replayed(folder, patches, scratch)
        folder.check(folder.dataset_of(state), state.sha256, state.octets)
        if made.sha256 != state.sha256:
            problem = "the patches do not lead to the dataset"
    except BrokenSeries as fault:
        problem = f"{fault.what} ({fault.where})"
    told = {"set": name, "patches": len(patches), "statements": state.quads, "sha256": state.sha256}
    words = f"{counted(len(patches), 'patch')}, {counted(state.quads, 'statement')}: in agreement, {state.sha256}"
    if problem is not None:
        words = f"{printable(name)}: {printable(problem)}"
    show_result({**told, "problem": problem}, words, as_json=as_json)
    return Exit.DONE if problem is None else Exit.FINDINGS


@command.command("restart", short_help="Begin the patches of a published dataset anew.")
@_place
@click.argument("name", metavar="SET")
@option("--dry-run", "Show what would be dropped; change nothing.")
@json_option
def restart(place: Path, name: str, dry_run: bool, as_json: bool) -> Exit:
    """Begin the Change Lists of the dataset SET anew, with one patch that adds everything; drop earlier patches.

    The server that publishes STATE, or else the next `headwater publish`, does it. Copies find a gap and load the
    dataset again. Use it when patches are lost, or to drop old ones.

    Exit statuses: 0 done; 2 usage; 6 fault of our own store.
    """
    folder, _state, patches = _recorded(place, name)
    octets = sum(one.octets for one in patches)
    if not dry_run:
        folder.restart_note.touch()
    value = {"set": name, "patches": len(patches), "octets": octets, "dry_run": dry_run}
    words = f"{counted(len(patches), 'patch')} of {human_octets(octets)} {'would' if dry_run else 'will'} be replaced"
    show_result(value, f"{words} by one of everything", as_json=as_json)
    return Exit.DONE


_SHOWN = 20
_NO_LINES = "no line of what was given as patch begins with + or -: nothing is changed by it [NQUD-02]"


@command.command("canonical", short_help="Write a dataset as canonical N-Quads.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=file_type)
@output_option
@names_blank_nodes("canonical")
@reads_rdf
def canonical(files: Sequence[str], output: str, as_json: bool, **options: Any) -> Exit:
    """Write the dataset of all FILEs as canonical N-Quads: sorted by bytes, each statement once."""
    with result_for(output, as_json=as_json) as scratch:
        found = _made_canonical(files, scratch, options)
    return _tell(asdict(found), "", as_json=as_json)


def _made_canonical(files: Sequence[str], scratch: Path, options: dict[str, Any]) -> DatasetSummary:
    inputs, treated = rdf_inputs(files, scratch, options), _rdf_options(options)
    return write_canonical(inputs, scratch / "result", scratch=scratch, options=treated, durable=False)


@command.command("hash", short_help="Print the SHA-256 of a dataset.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=file_type)
@names_blank_nodes("canonical")
@reads_rdf
def hash_of(files: Sequence[str], as_json: bool, **options: Any) -> Exit:
    """Print the SHA-256 of what `rdf canonical` writes: equal datasets have equal hashes, in any syntax and order."""
    with scratch_folder() as scratch:
        found = _made_canonical(files, scratch, options)
    show_result(asdict(found), found.sha256, as_json=as_json)
    return Exit.DONE


@command.command("diff", short_help="Write the patch from one dataset to another.")
@click.argument("old", type=file_type)
@click.argument("new", type=file_type)
@output_option
@names_blank_nodes("refuse")
@reads_rdf
def diff(old: str, new: str, output: str, as_json: bool, **options: Any) -> Exit:
    """Write the patch (N-Quads Unified Diff) from the dataset OLD to the dataset NEW.

    It removes first and then adds, each sorted by bytes. A patch cannot name blank nodes (NQUD-A6): they are refused,
    unless --blank-nodes makes them IRIs or keeps their labels.
    """
    with result_for(output, as_json=as_json) as scratch:
        first, second = rdf_inputs([old, new], scratch, options)
        with (scratch / "result").open("w+b") as file:
            found = write_dataset_patch((first, second), file, scratch=scratch, options=_rdf_options(options))
    return _tell_patch(found, as_json=as_json)


@command.command("apply", short_help="Apply patches to a dataset.")
@click.argument("dataset", metavar="BASE", type=file_type)
@click.argument("patches", nargs=-1, required=True, metavar="PATCH...", type=file_type)
@output_option
@option("--refuse-blank-nodes", "Refuse patches and datasets that have blank nodes.")
@lenient_option
@reads_rdf
def apply(dataset: str, patches: Sequence[str], output: str, as_json: bool, lenient: bool, **options: Any) -> Exit:
    """Apply PATCHes in this order to the dataset BASE (/dev/null: to nothing), and write canonical N-Quads.

    The same label of a blank node means the same node in all files.
    """
    with result_for(output, as_json=as_json) as scratch:
        if [dataset, *patches].count(STANDARD) > 1:
            raise UsageFault("standard input can be read once", advice="Give - for one of the files only.")
        (start,) = rdf_inputs([dataset], scratch, options)
        base, given = scratch / "base", scratch / "patches"
        treated = NO_BLANK_NODES if options["refuse_blank_nodes"] else LABELS_KEPT
        write_canonical([start], base, scratch=scratch, options=treated, durable=False)
        given.mkdir()
        found = merge_patches(
            base, local_files(patches, given), scratch / "result", scratch=scratch, strict=not lenient, options=treated
        )
    if not any((found.added, found.removed, found.already_there, found.not_there, found.skipped)):
        click.echo(f"note: {_NO_LINES}", err=True)
    words = (
        f"{counted(found.added, 'statement')} added, {found.removed:,} removed;"
        f" additions that were there: {found.already_there:,}, removals that were not: {found.not_there:,}"
    )
    skipped = f"; {counted(found.skipped, 'malformed line')} skipped" if found.skipped else ""
    return _tell(asdict(found), words + skipped, as_json=as_json)


@command.command("inverse", short_help="Write the patch that undoes a patch.")
@click.argument("patch", type=file_type)
@output_option
@lenient_option
@json_option
def inverse(patch: str, output: str, lenient: bool, as_json: bool) -> Exit:
    """Write the patch that undoes PATCH, if each of its lines had an effect. To undo several patches, compose their
    inverses in reverse order."""
    with result_for(output, as_json=as_json) as scratch:
        (path,) = local_files([patch], scratch)
        with (scratch / "result").open("xb") as file:
            found = write_composed([path], file, scratch=scratch, strict=not lenient, inverse=True)
    return _tell_patch(found, as_json=as_json)


@command.command("compose", short_help="Write one patch for several.")
@click.argument("patches", nargs=-1, required=True, metavar="PATCH...", type=file_type)
@output_option
@lenient_option
@json_option
def compose(patches: Sequence[str], output: str, lenient: bool, as_json: bool) -> Exit:
    """Write one patch with the effect of all PATCHes in this order."""
    with result_for(output, as_json=as_json) as scratch, (scratch / "result").open("xb") as file:
        found = write_composed(local_files(patches, scratch), file, scratch=scratch, strict=not lenient)
    return _tell_patch(found, as_json=as_json)


@command.command("check", short_help="Show what is wrong with a dataset or a patch.")
@click.argument("file", type=file_type)
@option("--patch", "The file is a patch.  [default: by the suffix .nqud]", name="is_patch")
@reads_rdf
def check(file: str, is_patch: bool, as_json: bool, **options: Any) -> Exit:
    """Show what is wrong with FILE, with line numbers; change nothing.

    Problems make Headwater refuse the file. Warnings do not, but may not say what you meant.

    Exit statuses: 0 no problem; 1 problems; 2 usage.
    """
    with scratch_folder() as scratch:
        if is_patch or named_patch(None, file):
            (path,) = local_files([file], scratch)
            found = check_patch(path, file, scratch=scratch)
        else:
            found = check_dataset(rdf_inputs([file], scratch, options)[0])
    if as_json:
        json_document(asdict(found))
    else:
        lines = [
            f"{'problem' if one.fails else 'warning'}: [{one.rule}] "
            + (f"line {one.line}: " if one.line is not None else "")
            + printable(one.message)
            for one in found.findings
        ]
        show_some(lines, _SHOWN, count=len(lines) + found.left_out, rest=" (--json shows more)")
        click.echo(f"{counted(found.statements, 'statement')}, {counted(found.problems, 'problem')}")
    return Exit.FINDINGS if found.problems else Exit.DONE


@command.command("convert", short_help="Write a dataset in another syntax.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=file_type)
@option("--to", "The syntax to write.  [default: by the suffix of --output]", click.Choice(SYNTAX_NAMES))
@output_option
@reads_rdf
def convert(files: Sequence[str], to: str | None, output: str, as_json: bool, **options: Any) -> Exit:
    """Write the dataset of all FILEs in another syntax; equal datasets give equal bytes.

    The command reads the result again and compares it. It refuses what a syntax cannot say: named graphs in most, some
    predicates in RDF/XML. Blank nodes get the labels of RDFC-1.0.
    """
    wanted = NAMES[to] if to is not None else syntax_of(None, output)
    if wanted is None:
        raise UsageFault("the syntax to write is unknown", advice="Name it with --to.")
    with result_for(output, as_json=as_json) as scratch:
        inputs = rdf_inputs(files, scratch, options)
        found = write_syntax(inputs, scratch / "result", wanted, scratch=scratch)
    told = {"syntax": wanted.name, "media_type": wanted.media_type, **asdict(found)}
    return _tell(told, f"{counted(found.quads, 'statement')} in {wanted.title}", as_json=as_json)


_SETS_SHOWN = 10


@command.command("query", short_help="Query the store that follows a dataset.")
@click.argument("store", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("query", metavar="QUERY")
@option(
    "--as",
    "Format of rows and answers; triples (CONSTRUCT, DESCRIBE) are N-Triples.",
    click.Choice(("tsv", "csv", "json", "xml")),
    name="form",
    default="tsv",
    show_default=True,
)
@option("--positions", "Also query the graph in which `sync` keeps its progress.")
def query(store: Path, query: str, form: str, positions: bool) -> Exit:
    """Print the answer to the SPARQL query QUERY (or @FILE; - for standard input) from STORE.

    STORE is the store of a set that `headwater sync --store DIR` keeps: DIR/SET. The command only reads, and sees the
    last complete change. It leaves out the graph in which `sync` keeps its progress, unless you ask for it
    (--positions).

    Exit statuses: 0 done; 2 usage, or no query; 6 fault of the store.
    """
    folder = store / "oxigraph" if (store / "oxigraph").is_dir() else store
    if not (folder / "CURRENT").exists():
        sets = ", ".join(sorted(one.parent.name for one in store.glob("*/oxigraph"))[:_SETS_SHOWN])
        raise UsageFault(
            "there is no store in this folder" + (f", but there are those of sets: {printable(sets)}" if sets else ""),
            where=str(store),
            advice="Name DIR/SET, of the DIR that `headwater sync --store DIR` keeps.",
        )
    try:
        if query == "-":
            query = standard_input().read().decode()
        elif query.startswith("@"):
            query = Path(query[1:]).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as cause:
        raise UsageFault(f"the query cannot be read: {cause}", advice="Name a file of UTF-8 text.") from cause
    found = EmbeddedStore(folder).query(query, form, with_positions=positions)
    sys.stdout.buffer.write(found)
    if not found.endswith(b"\n"):
        click.echo()
    return Exit.DONE
