"""Makes and applies N-Quads Unified Diff of resources in canonical N-Quads or N-Triples (NQUD-A4, NQUD-A5).

Only files whose statements are canonical, in order and without blank nodes have such patches: of those alone the
statements tell the octets. Datasets of any size are patched from file to file (`headwater.rdf.applying`).
"""

from __future__ import annotations

import io
from itertools import pairwise

from headwater.patches.faults import LARGEST, PatchRefused


def make(old: bytes, new: bytes) -> bytes | None:
    """A patch smaller than `new` that `apply` makes `new` of `old` by; None where there is none."""
    try:
        before, after = _statements(old), _statements(new)
    except PatchRefused:
        return None
    removed, added = (sorted(one) for one in (before - after, after - before))
    patch = b"".join([b"-%s\n" % line for line in removed] + [b"+%s\n" % line for line in added])
    return patch if len(patch) < len(new) else None


def apply(old: bytes, patch: bytes) -> bytes:
    """What a patch makes of the octets, in order. Raises PatchRefused."""
    from headwater.rdf.faults import BadRdf, RdfBounds
    from headwater.rdf.patch_lines import read_patch

    statements = _statements(old)
    try:
        for line in read_patch(io.BytesIO(patch), strict=True, bounds=RdfBounds(octets=LARGEST)):
            (statements.add if line.sign == "+" else statements.discard)(line.statement[:-1])
    except BadRdf as cause:
        raise PatchRefused(str(cause)) from cause
    new = b"".join([line + b"\n" for line in sorted(statements)])
    if len(new) > LARGEST:
        raise PatchRefused("it makes too much")
    return new


def _statements(octets: bytes) -> set[bytes]:
    """The lines of a file in canonical form, without their ends. Raises PatchRefused for any other."""
    from headwater.rdf.faults import BadRdf
    from headwater.rdf.lines.statements import canonical_block, has_blanks

    lines = octets.split(b"\n")
    if len(octets) > LARGEST or lines.pop() or any(one >= other for one, other in pairwise(lines)):
        raise PatchRefused("it is not in order")
    try:
        if canonical_block(octets, 1, "the resource") != octets or has_blanks(octets):
            raise PatchRefused("it is not in canonical form")
    except BadRdf as cause:
        raise PatchRefused(str(cause)) from cause
    return set(lines)
