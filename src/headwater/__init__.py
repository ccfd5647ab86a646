"""Keeps copies of web collections exactly in step with their source (ResourceSync, ANSI/NISO Z39.99).

Everything in `__all__` is the library; it is imported when it is first used. The manual has an example of each.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from headwater.version import __version__

if TYPE_CHECKING:
    from headwater.errors import Exit as Exit
    from headwater.errors import HeadwaterError as HeadwaterError
    from headwater.errors import SourceFault as SourceFault
    from headwater.errors import StoreFault as StoreFault
    from headwater.errors import TransferFault as TransferFault
    from headwater.errors import Undetermined as Undetermined
    from headwater.errors import UsageFault as UsageFault
    from headwater.library import PublishedFolder as PublishedFolder
    from headwater.library import publish_folder as publish_folder
    from headwater.progress import Notice as Notice
    from headwater.progress import Progress as Progress
    from headwater.spec.hashes import Digest as Digest
    from headwater.spec.kinds import Kind as Kind
    from headwater.spec.reader import Reader as Reader
    from headwater.spec.reader import read_bytes as read_bytes
    from headwater.spec.reader import read_document as read_document
    from headwater.spec.records import Change as Change
    from headwater.spec.records import Document as Document
    from headwater.spec.records import Entry as Entry
    from headwater.spec.records import Link as Link
    from headwater.spec.writer import DocumentWriter as DocumentWriter
    from headwater.spec.writer import Profile as Profile
    from headwater.spec.writer import write_document as write_document

__all__ = [
    "Change",
    "Digest",
    "Document",
    "DocumentWriter",
    "Entry",
    "Exit",
    "HeadwaterError",
    "Kind",
    "Link",
    "Notice",
    "Profile",
    "Progress",
    "PublishedFolder",
    "Reader",
    "SourceFault",
    "StoreFault",
    "TransferFault",
    "Undetermined",
    "UsageFault",
    "__version__",
    "publish_folder",
    "read_bytes",
    "read_document",
    "write_document",
]

_HOMES = {
    "headwater.errors": "Exit HeadwaterError SourceFault StoreFault TransferFault Undetermined UsageFault",
    "headwater.library": "PublishedFolder publish_folder",
    "headwater.progress": "Notice Progress",
    "headwater.spec.hashes": "Digest",
    "headwater.spec.kinds": "Kind",
    "headwater.spec.reader": "Reader read_bytes read_document",
    "headwater.spec.records": "Change Document Entry Link",
    "headwater.spec.writer": "DocumentWriter Profile write_document",
}
"""Where each public name lives; `tests/test_library.py` holds this, `__all__` and the imports above together."""


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'headwater' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
