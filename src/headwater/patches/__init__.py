"""Patches by media type (RS-REL-04): what makes them, for which resources, and within which bounds.

One more kind of patch is one more row here: a media type, the media types of the resources that it fits, a suffix for
files, and what makes one. Those of N-Quads Unified Diff are made here (NQUD-A4, NQUD-A5): only resources whose
statements are canonical, in order and without blank nodes have such patches, for of those alone the statements tell the
octets. They are applied from file to file, as those of datasets are (`headwater.rdf.unified_diff`), of any size.
"""

from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NamedTuple

from headwater.rdf import N_QUADS_DIFF

LARGEST: Final = 16 << 20
"""Octets of a resource, of a patch and of its result: everything is held in memory."""
MOST_OPERATIONS: Final = 10_000
"""In one patch."""
DEEPEST: Final = 50
"""So many levels of arrays and objects are descended into."""
MOST_VALUES: Final = 600_000
"""In one JSON text; each takes some hundred octets of memory."""


class PatchRefused(Exception):
    """A patch cannot be applied, or costs too much: it is not for this state, is malformed, or grows beyond bounds.

    Never told as an error: the resource is fetched whole (DST-S1).
    """


class PatchFormat(NamedTuple):
    """A kind of patch. `name` is what settings call it, `media_type` that of the patches.

    `make(old, new)` gives a patch smaller than `new` that leads from the old octets exactly to the new ones, or None.
    It is bounded in size, depth, values and operations.
    """

    name: str
    media_type: str
    suffix: str
    essences: tuple[str, ...]
    """Media types of resources; one that begins with `+` is a structured syntax suffix (RFC 6838, 4.2.8)."""

    make: Callable[[bytes, bytes], bytes | None]

    def fits(self, media_type: str) -> bool:
        """Whether patches of this kind are for resources of a media type."""
        essence = essence_of(media_type)
        return any(essence.endswith(one) if one.startswith("+") else essence == one for one in self.essences)


def _make_json(old: bytes, new: bytes) -> bytes | None:
    from headwater.patches import json_patch  # imported where it is used: most runs meet no patch

    return json_patch.make(old, new)


def _make_nquads(old: bytes, new: bytes) -> bytes | None:
    """A patch smaller than `new` that makes `new` of `old`; None where there is none."""
    try:
        before, after = _statements(old), _statements(new)
    except PatchRefused:
        return None
    removed, added = (sorted(one) for one in (before - after, after - before))
    patch = b"".join([b"-%s\n" % line for line in removed] + [b"+%s\n" % line for line in added])
    return patch if len(patch) < len(new) else None


def _statements(octets: bytes) -> set[bytes]:
    """The lines of a file in canonical form, without their ends. Raises PatchRefused for any other."""
    from headwater.rdf import BadRdf
    from headwater.rdf.statements import canonical_block, has_blanks

    lines = octets.split(b"\n")
    if len(octets) > LARGEST or lines.pop() or any(one >= other for one, other in pairwise(lines)):
        raise PatchRefused("it is not in order")
    try:
        if canonical_block(octets, 1, "the resource") != octets or has_blanks(octets):
            raise PatchRefused("it is not in canonical form")
    except BadRdf as cause:
        raise PatchRefused(str(cause)) from cause
    return set(lines)


JSON: Final = PatchFormat(
    "json", "application/json-patch+json", "json", ("application/json", "text/json", "+json"), _make_json
)
N_QUADS: Final = PatchFormat(
    "nquads", N_QUADS_DIFF, "nqud", ("application/n-quads", "application/n-triples"), _make_nquads
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
