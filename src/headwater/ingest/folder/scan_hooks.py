"""What a scan calls in the middle of its work, for those that have it scan."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from headwater.catalog.interface import Metadata, SetState
from headwater.versions.history import History
from headwater.versions.interface import VersionStore
from headwater.versions.predecessors import Predecessors


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
