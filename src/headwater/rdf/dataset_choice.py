"""Chooses the dataset among RDF files: named by the user, flagged, called `dataset.*`, or the only one (TIM-A5)."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from headwater.errors import SourceFault
from headwater.rdf.syntaxes import Syntax, is_patch, syntax_of
from headwater.typed_decoding import from_json

_MOST_SHOWN: Final = 10


class NoSingleDataset(SourceFault):
    """A set has several RDF files, and nothing says which of them is the dataset."""

    code = "HW-DTS-01"


class RdfFile(msgspec.Struct, frozen=True):
    """A file of the copy that is RDF in a known syntax."""

    uri: str
    path: bytes
    syntax: Syntax
    digest: str
    flagged: bool = False  # whether its entry says `isDataset`
    changed_at: int | None = None


def rdf_file(uri: str, path: bytes, media_type: str | None, extra: str | None, digest: str | None) -> RdfFile | None:
    """What is held of a resource, if it is RDF: by its media type if it has one, else by its name (TIM-11, TIM-A8)."""
    name = name_of(uri)
    if is_patch(media_type, name):
        return None
    syntax = syntax_of(media_type, name)
    if syntax is None:
        return None
    told: Iterable[tuple[str, str]] = ()
    if extra and "isDataset" in extra:  # in whatever namespace
        with suppress(msgspec.DecodeError):
            told = from_json(extra, list[tuple[str, str]])
    flagged = any(named.rpartition("}")[2] == "isDataset" and value.strip() in ("true", "1") for named, value in told)
    return RdfFile(uri, path, syntax, digest or "", flagged)


def chosen_dataset(files: Sequence[RdfFile], wanted: str | None) -> RdfFile | None:
    """The dataset: the file that the user names, the one that is flagged, `dataset.*`, or the only one.

    None: there is none. Raises NoSingleDataset, which tells the candidates.
    """
    if wanted is not None:
        return next((one for one in files if wanted in (one.uri, name_of(one.uri))), None)
    for some in ([one for one in files if one.flagged], [one for one in files if is_named(one.uri)], files):
        if len(some) == 1:
            return some[0]
        if some:
            break
    if not files:
        return None
    told = ", ".join(one.uri for one in files[:_MOST_SHOWN]) + (" …" if len(files) > _MOST_SHOWN else "")
    raise NoSingleDataset(f"no file is marked as the dataset: {told:.2000}", rule="TIM-A5")


def is_named(uri: str) -> bool:
    """Whether a file has the name that says that it is the dataset (TIM-07)."""
    return name_of(uri).partition(".")[0] == "dataset"


def name_of(uri: str) -> str:
    """The last part of the path of a URI."""
    return PurePosixPath(unquote(urlsplit(uri).path)).name
