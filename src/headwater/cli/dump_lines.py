"""How the dumps and the archives of a set stand, as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from headwater.cli.output import counted, printable
from headwater.quantities import human_octets

if TYPE_CHECKING:
    from headwater.catalog.interface import Catalog
    from headwater.publish.site import SetSettings
    from headwater.publish.status import ArchiveStatus, ChangeDumpStatus, ResourceDumpStatus, SourceSetStatus


def dump_lines(status: SourceSetStatus) -> Iterator[str]:
    """A line for each dump that the set offers, or is about to offer."""
    if status.resource_dump is not None:
        yield _resource_dump_line(status.name, status.resource_dump)
    if status.change_dump is not None:
        yield _change_dump_line(status.name, status.change_dump)
    if status.archive is not None:
        yield _archive_line(status.name, status.archive)


def withdrawn_offers(sets: Sequence[SetSettings], catalog: Catalog) -> dict[str, list[str]]:
    """What sets offer beside their lists that this run takes back, since it is not asked to offer it; by set."""
    from headwater.publish.status import set_statuses
    from headwater.source.configured_source import utc_now

    asked = {one.name: one for one in sets if not (one.dump and one.change_dump and one.archive)}
    withdrawn: dict[str, list[str]] = {}
    for status in set_statuses(catalog, utc_now(), list(asked)) if asked else ():
        now = asked[status.name]
        offers = (
            ("Resource Dump", status.resource_dump, now.dump),
            ("Change Dump", status.change_dump, now.change_dump),
            ("archive", status.archive, now.archive),
        )
        if titles := [title for title, held, is_asked in offers if held is not None and not is_asked]:
            withdrawn[status.name] = titles
    return withdrawn


def _resource_dump_line(name: str, dump: ResourceDumpStatus) -> str:
    packages = f"{counted(dump.packages, 'package')}, {human_octets(dump.octets)}"
    at = f", of {dump.at:%Y-%m-%d %H:%M:%S} UTC" if dump.at else ""
    waiting = f", {counted(dump.pages_waiting, 'page')} to be packed" if dump.pages_waiting else ""
    offered = "" if dump.offered else ", not offered yet"
    left_out = f", without {counted(dump.left_out, 'resource')} whose octets could not be had" if dump.left_out else ""
    return f"Resource Dump of {printable(name)}: {packages}{at}{waiting}{offered}{left_out}"


def _change_dump_line(name: str, dump: ChangeDumpStatus) -> str:
    waiting = f", {counted(dump.changes_waiting, 'change')} not packed yet" if dump.changes_waiting else ""
    packages = f"{counted(dump.packages, 'package')}, {human_octets(dump.octets)}"
    return f"Change Dump of {printable(name)}: {packages}, from {dump.from_:%Y-%m-%d %H:%M:%S} UTC{waiting}"


def _archive_line(name: str, archive: ArchiveStatus) -> str:
    counts = (
        (archive.resource_lists, "Resource List"),
        (archive.change_lists, "Change List"),
        (archive.resource_dumps, "Resource Dump"),
        (archive.change_dumps, "Change Dump"),
    )
    listed = ", ".join(counted(count, title) for count, title in counts if count) or "nothing yet"
    since = f", from {archive.since:%Y-%m-%d %H:%M:%S} UTC" if archive.since else ""
    return f"archive of {printable(name)}: {listed}, {human_octets(archive.octets)}{since}"
