"""The registry of kinds of patches, by media types of patches and of resources."""

from __future__ import annotations

import pytest

from headwater.patches import JSON, N_QUADS, NAMES, PatchFormat, format_for, format_of_patch


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [
        ("application/json", JSON),
        ("application/ld+json; profile=x", JSON),
        ("Text/JSON", JSON),
        ("application/xml", None),
        ("image/svg+xml", None),
        ("application/n-quads", N_QUADS),
        ("application/n-triples", N_QUADS),
        ("text/html", None),
        (None, None),
    ],
)
def test_which_patches_are_for_which_resources(media_type: str | None, expected: PatchFormat | None) -> None:
    assert format_for(media_type, NAMES) is expected
    assert format_for(media_type, ()) is None


def test_a_patch_of_an_unknown_type_is_of_no_kind() -> None:
    """RS-DST-12: such a link is ignored. The printed example of core section 14 has no `+json` (RS-EXT-09)."""
    assert format_of_patch("application/json-patch+json; charset=utf-8") is JSON
    assert format_of_patch("application/vnd.timbuctoo-rdf.nquads_unified_diff") is N_QUADS
    for unknown in ("application/json-patch", "application/xml-patch+xml", "application/vnd.example-patch", "", None):
        assert format_of_patch(unknown) is None
