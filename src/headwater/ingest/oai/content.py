"""The files of a record: rules find their addresses in it or on the page that it names; limits hold for each.

Hosts may be any, but none nearer to this machine than the repository (`transport.access`).
"""

import pyexpat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Final

from headwater.catalog.interface import Metadata
from headwater.errors import StoreFault
from headwater.ingest.harvested import Harvested, file_name, http_time
from headwater.ingest.oai.repository import OaiRepository
from headwater.spec.checks import WriteRefused, media_type
from headwater.spec.discovery import parse_link_header
from headwater.storage.durable import make_folders
from headwater.transport.fetch import FailureKind, Fetch, Fetched

FOLDER: Final = "content"
_MOST_FILES: Final = 50  # of one record
_LARGEST_FILE: Final = 4 << 30
_PAGE_OCTETS: Final = 4 << 20
_PAGES: Final = ("text/html", "application/xhtml+xml")
_IDENTIFIERS: Final = ("http://purl.org/dc/elements/1.1/ identifier", "http://purl.org/dc/terms/ identifier")
_ORE: Final = "http://www.openarchives.org/ore/terms/"
_RULES: Final[dict[str, list[tuple[str, str, str | None]]]] = {
    "mets": [("http://www.loc.gov/METS/ FLocat", "http://www.w3.org/1999/xlink href", None)],
    "ore": [
        (f"{_ORE} aggregates", "http://www.w3.org/1999/02/22-rdf-syntax-ns# resource", None),
        ("http://www.w3.org/2005/Atom link", "href", f"{_ORE}aggregates"),
    ],
}
"""Elements that name a file, the attribute with its address, and what their `rel` says."""


def addresses(octets: bytes, rules: Collection[str]) -> tuple[list[str], list[str]]:
    """The http(s) addresses of the files that a record names by these rules, and those of its identifiers."""
    files, identifiers, text = list[str](), list[str](), list[str]()
    wanted = [one for rule in rules for one in _RULES.get(rule, ())]

    def start(name: str, said: dict[str, str]) -> None:
        files.extend(
            said.get(address, "") for element, address, rel in wanted if (name, said.get("rel")) == (element, rel)
        )
        text.clear()

    def end(name: str) -> None:
        if name in _IDENTIFIERS:
            identifiers.append("".join(text))
        text.clear()

    parser = pyexpat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text.append
    with suppress(pyexpat.ExpatError):  # in an encoding that expat does not know
        parser.Parse(octets, True)  # noqa: FBT003 (takes no name)
    return [*filter(_is_address, map(str.strip, files))], [*filter(_is_address, map(str.strip, identifiers))]


def _is_address(text: str) -> bool:
    return text.lower().startswith(("http://", "https://")) and len(text) < 4_000 and text.isprintable()


def fetch_files(
    repository: OaiRepository, folder: Path, octets: bytes, rules: Collection[str]
) -> tuple[list[Harvested], list[str]]:
    """The files of a record, fetched into `folder`; and what is wrong with those that cannot be had.

    A web page that an identifier leads to is no file. Raises SourceFault where the transfers are stopped, StoreFault.
    """
    wanted, identifiers = addresses(octets, rules)
    found, failed = list[Harvested](), list[str]()
    if "signposting" in rules:
        for page in identifiers[:_MOST_FILES]:
            answer = repository.get(Fetch(page, max_octets=_PAGE_OCTETS))
            failed += _faults(answer)
            links = parse_link_header(answer.headers.get("link", ""), answer.uri or page)
            wanted += [one.href for one in links if "item" in one.rel and _is_address(one.href)]
    wanted += identifiers if "identifier" in rules else []
    wanted = list(dict.fromkeys(wanted))
    if len(wanted) > _MOST_FILES:
        failed.append(f"more than {_MOST_FILES} files: {wanted[_MOST_FILES]}")
    try:
        make_folders(folder / FOLDER)
        for uri in wanted[:_MOST_FILES]:
            path = folder / FOLDER / file_name(uri)
            aside = path.with_name(f".headwater-new-{path.name}")
            aside.unlink(missing_ok=True)  # of a run that was killed
            answer = repository.get(Fetch(uri, into=str(aside), algorithms=("sha-256",), max_octets=_LARGEST_FILE))
            kind = _type_of(answer)
            if faults := _faults(answer):
                failed += faults
            elif kind in _PAGES and uri in identifiers:
                aside.unlink()
            else:
                lastmod, digest = http_time(answer.headers.get("last-modified")), f"sha-256:{answer.digests['sha-256']}"
                metadata = Metadata(lastmod=lastmod, hash=digest, length=answer.octets, type=kind)
                found.append(Harvested(path=f"{FOLDER}/{path.name}", octets=None, metadata=metadata, file=aside))
    except OSError as cause:
        raise StoreFault(f"a file cannot be written: {cause.strerror}", where=str(folder)) from cause
    return found, failed


def _faults(answer: Fetched) -> list[str]:
    """What is wrong with an answer. Raises StoreFault for what is wrong here."""
    if answer.failure is None:
        return [] if answer.ok else [f"HTTP status {answer.status}: {answer.fetch.uri}"]
    if answer.failure.kind is FailureKind.STORE:
        raise StoreFault(f"a file cannot be written: {answer.failure.text}")
    return [f"{answer.failure.text}: {answer.fetch.uri}"]


def _type_of(answer: Fetched) -> str | None:
    try:
        return media_type(answer.headers.get("content-type", ""))
    except WriteRefused:
        return None
