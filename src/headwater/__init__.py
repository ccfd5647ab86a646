"""Keeps copies of web collections exactly in step with their source (ResourceSync, ANSI/NISO Z39.99).

Everything in `__all__` is the library; it is imported when it is first used. The manual has an example of each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headwater.version import __version__

# isort: off
if TYPE_CHECKING:
    from headwater.aggregator.events import ServiceEvents as events
    from headwater.aggregator.events import changes
    from headwater.aggregator.store import Event
    from headwater.errors import Exit, HeadwaterError, Interrupted, SourceFault, StoreFault, Undetermined, UsageFault
    from headwater.library import Placing, PublishReport, publish_folder, write_file
    from headwater.progress import Listener, Notice, Progress
    from headwater.spec.checks import WriteRefused
    from headwater.spec.extensions import DumpLimits
    from headwater.spec.kinds import Kind, ReadLimits
    from headwater.spec.reader import Reader, Reading, WholeReading, read_bytes, read_document
    from headwater.spec.records import AbsenceReason, AbsentResource, ChangeKind, Digest, Document, Entry, Extra, Link
    from headwater.spec.text_values import DocumentFault, Warned
    from headwater.spec.writer import DocumentWriter, Profile, write_document
    from headwater.sync.audit.auditor import audit as audit_folder
    from headwater.sync.copy_status import CopyStatus, FailedResource, HeldBackDeletion, RunStatus, SetStatus
    from headwater.sync.copy_status import copy_records, copy_status
    from headwater.sync.explore import ExploreNode, ExploreReport, ExploreWarning
    from headwater.sync.explore import SourceChanges
    from headwater.sync.explore import explore as explore_source
    from headwater.sync.export import ExportReport, export_bag, export_manifest
    from headwater.sync.export import restore as restore_copy
    from headwater.sync.options import SyncOptions
    from headwater.sync.reports import (
        AuditReport,
        CopyRecord,
        DatasetReport,
        Done,
        FailedTransfer,
        Finding,
        PlannedAction,
        SetAudit,
    )
    from headwater.sync.reports import SetReport, StoreAudit, StoreReport, SyncReport, TransferWay, UnverifiedVersion
    from headwater.sync.run import sync as sync_folder
# isort: on

__all__ = [
    "AbsenceReason", "AbsentResource", "AuditReport", "ChangeKind", "CopyRecord", "CopyStatus", "DatasetReport",
    "Digest", "Document", "DocumentFault", "DocumentWriter", "Done", "DumpLimits", "Entry", "Event", "Exit",
    "ExploreNode", "ExploreReport", "ExploreWarning", "ExportReport", "Extra", "FailedResource", "FailedTransfer",
    "Finding", "HeadwaterError", "HeldBackDeletion", "Interrupted", "Kind", "Link", "Listener", "Notice", "Placing",
    "PlannedAction", "Profile", "Progress", "PublishReport", "ReadLimits", "Reader", "Reading", "RunStatus",
    "SetAudit", "SetReport", "SetStatus", "SourceChanges", "SourceFault", "StoreAudit", "StoreFault", "StoreReport",
    "SyncOptions", "SyncReport", "TransferWay", "Undetermined", "UnverifiedVersion", "UsageFault", "Warned",
    "WholeReading", "WriteRefused", "__version__", "audit_folder", "changes", "copy_records", "copy_status",
    "events", "explore_source", "export_bag", "export_manifest", "publish_folder", "read_bytes", "read_document",
    "restore_copy", "sync_folder", "write_document", "write_file",
]  # fmt: skip

_HOMES = {
    "headwater.aggregator.events": "ServiceEvents=events changes",
    "headwater.aggregator.store": "Event",
    "headwater.errors": "Exit HeadwaterError Interrupted SourceFault StoreFault Undetermined UsageFault",
    "headwater.library": "Placing PublishReport publish_folder write_file",
    "headwater.progress": "Listener Notice Progress",
    "headwater.spec.checks": "WriteRefused",
    "headwater.spec.extensions": "DumpLimits",
    "headwater.spec.kinds": "Kind ReadLimits",
    "headwater.spec.text_values": "DocumentFault Warned",
    "headwater.spec.reader": "Reader Reading WholeReading read_bytes read_document",
    "headwater.spec.records": "AbsenceReason AbsentResource ChangeKind Digest Document Entry Extra Link",
    "headwater.spec.writer": "DocumentWriter Profile write_document",
    "headwater.sync.audit.auditor": "audit=audit_folder",
    "headwater.sync.copy_status": "CopyStatus FailedResource HeldBackDeletion RunStatus SetStatus "
    "copy_records copy_status",
    "headwater.sync.explore": "ExploreNode ExploreReport ExploreWarning SourceChanges explore=explore_source",
    "headwater.sync.export": "ExportReport export_bag export_manifest restore=restore_copy",
    "headwater.sync.options": "SyncOptions",
    "headwater.sync.reports": "AuditReport CopyRecord DatasetReport Done FailedTransfer Finding PlannedAction "
    "SetAudit SetReport StoreAudit StoreReport SyncReport TransferWay UnverifiedVersion",
    "headwater.sync.run": "sync=sync_folder",
}
"""Where each public name lives, `inside=outside` where it has another name there. A test holds this, `__all__` and the
imports above together."""


if not TYPE_CHECKING:  # else a type checker would take every misspelt name for one of these

    def __getattr__(name: str) -> object:
        for module, names in _HOMES.items():
            for pair in names.split():
                inside, _, outside = pair.partition("=")
                if name == (outside or inside):
                    return getattr(import_module(module), inside)
        raise AttributeError(f"module 'headwater' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
