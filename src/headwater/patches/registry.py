"""The registry of patches by media type (RS-REL-04): what makes and applies them, and which resources they are for.

One more kind of patch is one more row here: a media type, the media types of the resources that it fits, a suffix for
files, and two functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple


class PatchFormat(NamedTuple):
    """A kind of patch. `name` is what settings call it, `media_type` that of the patches.

    `make(old, new)` gives a patch smaller than `new`, or None; `apply(old, patch)` the new octets exactly, or raises
    PatchRefused. Both are bounded in size, depth, operations and work.
    """

    name: str
    media_type: str
    suffix: str
    essences: tuple[str, ...]
    """Media types of resources; one that begins with `+` is a structured syntax suffix (RFC 6838, 4.2.8)."""

    make: Callable[[bytes, bytes], bytes | None]
    apply: Callable[[bytes, bytes], bytes]

    def fits(self, media_type: str) -> bool:
        """Whether patches of this kind are for resources of a media type."""
        essence = essence_of(media_type)
        return any(essence.endswith(one) if one.startswith("+") else essence == one for one in self.essences)


def _make_json(old: bytes, new: bytes) -> bytes | None:
    from headwater.patches.json import making  # these are imported where they are used: most runs meet no patch

    return making.make(old, new)


def _apply_json(old: bytes, patch: bytes) -> bytes:
    from headwater.patches.json import applying

    return applying.apply(old, patch)


def _make_nquads(old: bytes, new: bytes) -> bytes | None:
    from headwater.patches import nquads

    return nquads.make(old, new)


def _apply_nquads(old: bytes, patch: bytes) -> bytes:
    from headwater.patches import nquads

    return nquads.apply(old, patch)


JSON: Final = PatchFormat(
    "json",
    "application/json-patch+json",
    "json",
    ("application/json", "text/json", "+json"),
    _make_json,
    _apply_json,
)
N_QUADS_DIFF: Final = "application/vnd.timbuctoo-rdf.nquads_unified_diff"
"""N-Quads Unified Diff (NQUD-03); destinations apply it to files of any size (`headwater.rdf.applying`)."""
N_QUADS: Final = PatchFormat(
    "nquads",
    N_QUADS_DIFF,
    "nqud",
    ("application/n-quads", "application/n-triples"),
    _make_nquads,
    _apply_nquads,
)
FORMATS: Final = {one.media_type: one for one in (JSON, N_QUADS)}
NAMES: Final = tuple(one.name for one in FORMATS.values())


def is_of_dataset(media_type: str | None) -> bool:
    """Whether a patch is one of an RDF dataset."""
    return media_type is not None and essence_of(media_type) == N_QUADS_DIFF


def format_of_patch(media_type: str | None) -> PatchFormat | None:
    """The kind of patch that has this media type; None: it is not known (RS-DST-12)."""
    return FORMATS.get(essence_of(media_type or ""))


def format_for(media_type: str | None, names: Iterable[str]) -> PatchFormat | None:
    """The kind of patch, among those of these names, for resources of a media type."""
    wanted = frozenset(names)
    return next((one for one in FORMATS.values() if one.name in wanted and one.fits(media_type or "")), None)


def essence_of(media_type: str) -> str:
    """A media type without its parameters."""
    return media_type.partition(";")[0].strip().lower()
