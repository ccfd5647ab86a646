"""Files of `headwater rdf`: `-` for the standard streams, gzip, and results that appear when they are complete."""

from __future__ import annotations

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from headwater.cli.output import STANDARD, json_option, output_faults, standard_input
from headwater.cli.shared_options import option, options
from headwater.cli.stop_signal import terminated
from headwater.errors import HeadwaterError, StoreFault, UsageFault
from headwater.rdf.statements import is_iri
from headwater.rdf.syntaxes import N_QUADS, NAMES, RdfInput, syntax_of
from headwater.storage.gzip_member import GzipCompressor, header

Command = TypeVar("Command", bound=Callable[..., Any])

_READ = "read-"
SYNTAX_NAMES = ("nquads", "ntriples", "turtle", "trig", "rdfxml", "jsonld")
_PIECE = 1 << 20

file_type = click.Path(exists=True, dir_okay=False, allow_dash=True)
output_option = option(
    "-o, --output FILE",
    "Write to FILE when complete, compressed if it ends in .gz.  [default: standard output]",
    click.Path(dir_okay=False, allow_dash=True),
    default=STANDARD,
)
lenient_option = option("--lenient", "Skip malformed lines of patches, and count them.")

reads_rdf = options(
    option("--syntax", "The syntax of the files.  [default: by the suffix, or N-Quads]", click.Choice(SYNTAX_NAMES)),
    option("--base IRI", "What relative IRIs are resolved against; without it they are refused."),
    json_option,
)
"""How files are read."""


def names_blank_nodes(default: str) -> Callable[[Command], Command]:
    """Give a command the options that say what becomes of blank nodes."""
    choice = option(
        "--blank-nodes",
        "What becomes of blank nodes: stable IRIs (with --genid), the labels of RDFC-1.0, or the labels they have."
        f"  [default: {default}]",
        click.Choice(["refuse", "iris", "canonical", "keep"]),
        default=default,
    )
    genid = option("--genid PREFIX", "What the IRIs begin with: https://HOST/.well-known/genid/ of your host.")

    return options(choice, genid)


def genid_prefix(treated: str, genid: str | None) -> str | None:
    """The prefix of IRIs of blank nodes. Raises UsageFault where there is none and one is needed, or it is none."""
    if (treated == "iris") is not (genid is not None):
        raise UsageFault("--blank-nodes iris and --genid belong together", advice="Give both.")
    if genid is not None and not is_iri(genid):
        raise UsageFault(f"{genid!r} is no IRI", advice="Give https://HOST/.well-known/genid/ of a host of yours.")
    return genid


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
            raise StoreFault(
                "there is no room for temporary files",
                where=tempfile.gettempdir(),
                advice="Set TMPDIR to a folder with room for several times what is read.",
            ) from error
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


def rdf_inputs(names: Sequence[str], scratch: Path, syntax: str | None, base: str | None) -> list[RdfInput]:
    """The files of these names as parts of a dataset. Raises UsageFault: a suffix that says nothing, a wrong base."""
    if base is not None and not is_iri(base):
        raise UsageFault(f"--base {base!r} is no absolute IRI", advice="Give one such as https://example.org/people/.")
    paths = local_files(names, scratch)
    inputs = []
    for name, path in zip(names, paths, strict=True):
        found = NAMES[syntax] if syntax else syntax_of(None, name)
        if found is None and (name == STANDARD or not Path(name).suffix.removesuffix(".gz")):
            found = N_QUADS
        if found is None:
            what = "what RDF syntax this is does not follow from its name"
            raise UsageFault(what, where=name, advice=f"Name it with --syntax: {', '.join(SYNTAX_NAMES)}.")
        inputs.append(RdfInput(path, found, base, name="standard input" if name == STANDARD else name))
    return inputs


def deliver(result: Path, output: str) -> None:
    """Give a complete file to standard output or as the file OUTPUT, which is replaced as a whole.

    What is there and no file, a pipe or a device, is written to and stays what it is.

    Raises StoreFault where OUTPUT cannot be written.
    """
    if output == STANDARD and sys.stdout is None:
        raise StoreFault("standard output is closed", advice="Name a file with --output.")
    target = Path(output)
    is_special = target.exists() and not target.is_file()
    aside = target if is_special else target.with_name(f".{target.name}.{os.getpid()}.part")
    with output_faults(output), result.open("rb") as source:
        if output == STANDARD:
            shutil.copyfileobj(source, sys.stdout.buffer, _PIECE)
            sys.stdout.buffer.flush()
            return
        try:
            with aside.open("wb") as file:
                if target.suffix == ".gz":
                    compressor = GzipCompressor()
                    file.write(header(""))
                    while piece := source.read(_PIECE):
                        file.write(compressor.add(piece))
                    file.write(compressor.finish())
                else:
                    shutil.copyfileobj(source, file, _PIECE)
                file.flush()
                if not is_special:
                    os.fsync(file.fileno())
            if not is_special:
                aside.replace(target)
        finally:
            if not is_special:
                with suppress(OSError):
                    aside.unlink(missing_ok=True)
