"""What the head of a document of each kind must have, with the rule that says so: warnings for the reader."""

from __future__ import annotations

from typing import Final

from headwater.spec.kinds import RULES, Kind, Need, Root
from headwater.spec.namespaces import INDEX, UP
from headwater.spec.reading.reader_warnings import ReaderWarnings
from headwater.spec.records import Document

MUSTS: Final[dict[Kind, tuple[str, str]]] = {
    Kind.CAPABILITY_LIST: ("", "RS-CAP-02"),
    Kind.CAPABILITY_LIST_INDEX: ("", "RS-CAP-02"),
    Kind.RESOURCE_LIST: ("RS-RL-01", "RS-RL-04"),
    Kind.RESOURCE_LIST_INDEX: ("RS-RLI-01", "RS-RLI-02"),
    Kind.RESOURCE_DUMP: ("RS-RD-01", "RS-RD-02"),
    Kind.RESOURCE_DUMP_INDEX: ("RS-RDI-01", "RS-RDI-01"),
    Kind.RESOURCE_DUMP_MANIFEST: ("RS-RDM-02", "RS-RDM-03"),
    Kind.CHANGE_LIST: ("RS-CL-01", "RS-CL-03"),
    Kind.CHANGE_LIST_INDEX: ("RS-CLI-01", "RS-CLI-01"),
    Kind.CHANGE_DUMP: ("RS-CD-01", "RS-CD-01"),
    Kind.CHANGE_DUMP_INDEX: ("RS-CDI-01", "RS-CDI-01"),
    Kind.CHANGE_DUMP_MANIFEST: ("RS-CDM-02", "RS-CDM-02"),
    Kind.RESOURCE_LIST_ARCHIVE: ("", "RS-ARC-11"),
    Kind.RESOURCE_LIST_ARCHIVE_INDEX: ("", "RS-ARC-21"),
    Kind.RESOURCE_DUMP_ARCHIVE: ("", "RS-ARC-11"),
    Kind.RESOURCE_DUMP_ARCHIVE_INDEX: ("", "RS-ARC-21"),
    Kind.CHANGE_LIST_ARCHIVE: ("", "RS-ARC-11"),
    Kind.CHANGE_LIST_ARCHIVE_INDEX: ("", "RS-ARC-21"),
    Kind.CHANGE_DUMP_ARCHIVE: ("", "RS-ARC-11"),
    Kind.CHANGE_DUMP_ARCHIVE_INDEX: ("", "RS-ARC-21"),
    Kind.CHANGE_NOTIFICATION: ("RS-CN-04", ""),
}
"""For each kind the rule of its time attributes and the rule of its `up` link."""


def judge(document: Document, warnings: ReaderWarnings) -> None:
    """Say what the head lacks although it must have it, and what contradicts itself."""
    rules = RULES[document.kind]
    times, up = MUSTS.get(document.kind, ("", ""))
    if rules.at is Need.MUST and document.at is None:
        warnings.warn(times, "the mandatory attribute at is missing")
    if rules.from_ is Need.MUST and document.from_ is None:
        warnings.warn(times, "the mandatory attribute from is missing")
    if rules.until is Need.MUST and document.until is None:
        warnings.warn(times, "the mandatory attribute until is missing")
    if rules.up is Need.MUST and document.link(UP) is None:
        warnings.warn(up, "the mandatory link up is missing")
    if sum(link.rel == UP for link in document.links) > 1:
        warnings.warn("AMB-43", "several up links; the first counts")
    is_index = rules.root is Root.SITEMAPINDEX or "manifest" in (rules.capability or "")
    if is_index and document.capability is not None and document.link(INDEX) is not None:
        warnings.warn("AMB-44", "a link index on an index or a manifest means nothing")
    if document.at and document.completed and document.completed < document.at:
        warnings.warn("RS-TIME-07", "completed is earlier than at")
    if document.from_ and document.until and document.until < document.from_:
        warnings.warn("RS-TIME-10", "until is earlier than from")
