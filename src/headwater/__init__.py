"""Keeps copies of web collections exactly in step with their source (ResourceSync, ANSI/NISO Z39.99).

Everything in `__all__` is the library; it is imported when it is first used. The manual has an example of each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headwater.version import __version__

if TYPE_CHECKING:
    from headwater.errors import Exit, HeadwaterError, Interrupted, SourceFault, StoreFault, Undetermined, UsageFault
    from headwater.library import PublishReport, publish_folder, write_file
    from headwater.progress import Done, Listener, Notice, Progress
    from headwater.spec.kinds import Kind
    from headwater.spec.reader import Reader, Reading, WholeReading, read_bytes, read_document
    from headwater.spec.records import ChangeKind, Digest, Document, Entry, Link
    from headwater.spec.text_values import Warned
    from headwater.spec.writer import DocumentWriter, Profile, write_document
    from headwater.sync.audit.auditor import audit as audit_folder
    from headwater.sync.copy_status import CopyStatus, copy_status
    from headwater.sync.explore import ExploreReport
    from headwater.sync.explore import explore as explore_source
    from headwater.sync.options import SyncOptions
    from headwater.sync.reports import AuditReport, SetAudit, SetReport, SyncReport
    from headwater.sync.run import sync as sync_folder

__all__ = [
    "AuditReport",
    "ChangeKind",
    "CopyStatus",
    "Digest",
    "Document",
    "DocumentWriter",
    "Done",
    "Entry",
    "Exit",
    "ExploreReport",
    "HeadwaterError",
    "Interrupted",
    "Kind",
    "Link",
    "Listener",
    "Notice",
    "Profile",
    "Progress",
    "PublishReport",
    "Reader",
    "Reading",
    "SetAudit",
    "SetReport",
    "SourceFault",
    "StoreFault",
    "SyncOptions",
    "SyncReport",
    "Undetermined",
    "UsageFault",
    "Warned",
    "WholeReading",
    "__version__",
    "audit_folder",
    "copy_status",
    "explore_source",
    "publish_folder",
    "read_bytes",
    "read_document",
    "sync_folder",
    "write_document",
    "write_file",
]

_HOMES = {
    "headwater.errors": "Exit HeadwaterError Interrupted SourceFault StoreFault Undetermined UsageFault",
    "headwater.library": "PublishReport publish_folder write_file",
    "headwater.progress": "Done Listener Notice Progress",
    "headwater.spec.kinds": "Kind",
    "headwater.spec.text_values": "Warned",
    "headwater.spec.reader": "Reader Reading WholeReading read_bytes read_document",
    "headwater.spec.records": "ChangeKind Digest Document Entry Link",
    "headwater.spec.writer": "DocumentWriter Profile write_document",
    "headwater.sync.audit.auditor": "audit=audit_folder",
    "headwater.sync.explore": "ExploreReport explore=explore_source",
    "headwater.sync.options": "SyncOptions",
    "headwater.sync.reports": "AuditReport SetAudit SetReport SyncReport",
    "headwater.sync.run": "sync=sync_folder",
    "headwater.sync.copy_status": "CopyStatus copy_status",
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
