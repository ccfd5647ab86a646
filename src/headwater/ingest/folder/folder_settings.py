"""The settings of a set that is a folder, and what its scans call in the middle of their work."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headwater.catalog.interface import Metadata, SetState
from headwater.deletion_guard import DEFAULT_SHARE
from headwater.errors import UsageFault
from headwater.files.file_placement import LINK
from headwater.files.patterns import Selection
from headwater.versions.history import History
from headwater.versions.predecessors import Predecessors
from headwater.versions.store import VersionStore


class FolderUnusable(UsageFault):
    """The folder to publish does not exist, is not a folder, or cannot be read."""

    code = "HW-ING-02"


class CanonicalHashes(msgspec.Struct, frozen=True, kw_only=True):
    """RDF documents are stated with the hash of their canonical N-Quads, relative IRIs resolved below `prefix`; where
    it `replaces` digests and length, these are not stated: the octets that are served vary."""

    prefix: str
    replaces: bool = False


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that is a set: where it is, which files of it belong, how they are published.

    `avoid` are real paths of what is never published: folders (state, published tree), and files that the source needs
    itself, wherever these lie. Nor are copies of the source at `base_url`. `place` is the folder in which every file of
    the set gets its place, as `place_mode` (link or copy) says; None when files are served from where they are.
    `uri_prefix_length` is the length of what is put before a relative URI. `processes` read files beside this one
    (None: one for each core). `canonical`: by what RDF documents are stated. A file that was written to less than
    `settle_seconds` ago, and may be open for writing, is left as it is published.
    """

    root: bytes
    selection: Selection = msgspec.field(default_factory=Selection)
    algorithms: tuple[str, ...] = ("md5", "sha-256")
    max_delete: float = DEFAULT_SHARE
    avoid: tuple[bytes, ...] = ()
    base_url: str | None = None
    place: bytes | None = None
    place_mode: str = LINK
    uri_prefix_length: int = 0
    processes: int | None = None
    canonical: CanonicalHashes | None = None
    settle_seconds: float = 0.0


class ScanHooks(msgspec.Struct, frozen=True, kw_only=True):
    """Functions of whoever has a folder scanned; without them a scan goes on to its end.

    `stop` and `breathe` are called often: the first ends the pass (Stopped), the second may do something urgent.
    `before_change` is called before anything is placed or recorded, and may raise. `seen` is what the set must still be
    when something is recorded (`Catalog.record`, `after`); None: whatever it is. `versions` is where the octets of
    changes are kept before they are recorded; None: nowhere; of resources of which `keeps` says so, and with
    `keeps_first` of those of the first load as well. `predecessors` notes what updates replace, `history`
    which state a resource had when: then the present state of all is kept. Files of an open set of more than
    `apart_octets` are left to another pass.
    """

    stop: Callable[[], bool] = lambda: False
    breathe: Callable[[], None] = lambda: None
    before_change: Callable[[], None] = lambda: None
    seen: Callable[[], SetState | None] = lambda: None
    versions: VersionStore | None = None
    predecessors: Predecessors | None = None
    history: History | None = None
    keeps_first: bool = False
    apart_octets: int | None = None
    keeps: Callable[[Metadata], bool] = lambda _metadata: True
