"""Every published example is read, and what had to be forgiven in it is known beforehand."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.spec.kinds import Kind
from headwater.spec.writer import WriteRefused, write_document
from tests.support.documents import EXAMPLES, Read

K = Kind
RELATIVE, MODIFIED = "AMB-07", "AMB-38"

EXPECTED: dict[str, tuple[Kind, int, set[str]]] = {
    "archives-0.9.1/archives_ex_2_1": (K.CAPABILITY_LIST, 8, set()),
    "archives-0.9.1/archives_ex_2_2": (K.CHANGE_LIST, 2, set()),
    "archives-0.9.1/archives_ex_3_1": (K.RESOURCE_LIST_ARCHIVE, 3, set()),
    "archives-0.9.1/archives_ex_4_1": (K.RESOURCE_DUMP_ARCHIVE, 2, set()),
    "archives-0.9.1/archives_ex_5_1": (K.CHANGE_LIST_ARCHIVE, 3, set()),
    "index/resourcedump-index": (K.RESOURCE_DUMP_INDEX, 3, set()),
    "notification-1.0.1/change_notification_ex_1": (K.CHANGE_NOTIFICATION, 2, set()),
    "notification-1.0.1/framework_notification_ex_1": (K.FRAMEWORK_NOTIFICATION, 1, set()),
    "notification-1.0.1/framework_notification_ex_8": (K.CAPABILITY_LIST, 5, set()),
    "own/linked-data-capabilitylist": (K.CAPABILITY_LIST, 1, set()),
    "own/linked-data-resourcelist": (K.RESOURCE_LIST, 2, {"RS-RL-01"}),
    "own/linked-data-sourcedescription": (K.SOURCE_DESCRIPTION, 2, set()),
    "resync-fixtures/archives1-caps1": (K.CAPABILITY_LIST, 8, {RELATIVE, MODIFIED}),
    "resync-fixtures/archives1-caps2": (K.CAPABILITY_LIST, 0, {MODIFIED, "RS-CAP-02"}),
    "resync-fixtures/archives1-resourcelist": (K.RESOURCE_LIST, 3, {RELATIVE, MODIFIED, "RS-RL-01", "RS-RL-04"}),
    "resync-fixtures/archives1-resourcesync": (K.SOURCE_DESCRIPTION, 2, {RELATIVE, MODIFIED}),
    "resync-fixtures/explore1-caps1": (K.CAPABILITY_LIST, 4, {RELATIVE, MODIFIED, "RS-CAP-02"}),
    "resync-fixtures/explore1-caps3": (K.CAPABILITY_LIST, 4, {RELATIVE, MODIFIED, "RS-CAP-02"}),
    "resync-fixtures/explore1-resourcelist": (K.RESOURCE_LIST, 3, {RELATIVE, MODIFIED, "RS-RL-01", "RS-RL-04"}),
    "resync-fixtures/find1-resourcesync": (K.SOURCE_DESCRIPTION, 1, {RELATIVE}),
    "resync-fixtures/find3-plain-sitemap": (K.RESOURCE_LIST, 1, {RELATIVE, MODIFIED, "RS-RL-01"}),
    "resync-fixtures/sitemapindex1-sitemap": (K.SITEMAP_INDEX, 3, {"AMB-02"}),
    "resync-fixtures/sitemapindex1-sitemap00000": (K.SITEMAP, 6, {"AMB-02", "RS-DOC-18"}),
    "resync-fixtures/unknown1": (K.UNKNOWN, 2, {RELATIVE, "AMB-12"}),
}
CORE: dict[int, tuple[Kind, int, set[str]]] = {  # examples 1 to 5 have no link `up`, 27 no hex digests
    1: (K.RESOURCE_LIST, 2, {"RS-RL-04"}),
    2: (K.RESOURCE_LIST, 2, {"RS-RL-04"}),
    3: (K.CHANGE_LIST, 2, {"RS-CL-03"}),
    5: (K.RESOURCE_DUMP_MANIFEST, 2, {"RS-RDM-03"}),
    6: (K.CAPABILITY_LIST, 3, set()),
    7: (K.SOURCE_DESCRIPTION, 1, set()),
    12: (K.SOURCE_DESCRIPTION, 3, set()),
    13: (K.CAPABILITY_LIST, 4, set()),
    14: (K.RESOURCE_LIST, 2, set()),
    15: (K.RESOURCE_LIST_INDEX, 3, set()),
    17: (K.RESOURCE_DUMP, 3, set()),
    19: (K.CHANGE_LIST, 4, set()),
    20: (K.CHANGE_LIST_INDEX, 3, set()),
    22: (K.CHANGE_DUMP, 3, set()),
    24: (K.CHANGE_LIST, 1, set()),
    25: (K.CHANGE_LIST, 1, set()),
    27: (K.CHANGE_LIST, 2, {"AMB-28"}),
    29: (K.CHANGE_LIST, 1, set()),
    31: (K.CHANGE_LIST, 1, set()),
    32: (K.CHANGE_LIST, 1, set()),
}
for version in ("1.0", "1.1"):
    EXPECTED |= {f"core-{version}/resourcesync_ex_{number}": row for number, row in CORE.items()}

EXPECTED["core-1.1/resourcesync_ex_3"] = (K.CHANGE_LIST, 3, {"RS-CL-03"})

NOT_WRITTEN = {
    "archives-0.9.1/archives_ex_2_2": "AMB-17",
    "core-1.0/resourcesync_ex_14": "RS-MD-05",
    "core-1.1/resourcesync_ex_14": "RS-MD-05",
    "notification-1.0.1/change_notification_ex_1": "RS-MD-05",
    "core-1.0/resourcesync_ex_25": "AMB-17",
    **{f"core-1.{minor}/resourcesync_ex_{number}": "AMB-17" for minor in (0, 1) for number in (19, 24, 29, 31, 32)},
}
"""Their changes have no time, or have it in `lastmod` only, or a hash is none: a strict writer cannot say the same."""


def name_of(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}"


def test_every_example_is_expected() -> None:
    assert {name_of(path) for path in EXAMPLES.glob("*/*.xml")} == EXPECTED.keys()


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/*.xml")), ids=name_of)
def test_example_is_read(path: Path, quick: bool) -> None:
    kind, count, rules = EXPECTED[name_of(path)]
    read = Read(path.read_bytes(), quick=quick)
    assert read.fault is None
    assert read.document is not None
    assert (read.document.kind, len(read.entries), read.rules) == (kind, count, rules)


CONFORMING = sorted(EXAMPLES / f"{name}.xml" for name, (_, _, rules) in EXPECTED.items() if not rules)


@pytest.mark.parametrize("path", CONFORMING, ids=name_of)
def test_conforming_example_is_written_again(path: Path) -> None:
    read = Read(path.read_bytes())
    assert read.document is not None
    if name_of(path) in NOT_WRITTEN:
        with pytest.raises(WriteRefused) as refused:
            b"".join(write_document(read.document, read.entries))
        assert refused.value.rule == NOT_WRITTEN[name_of(path)]
        return
    data = b"".join(write_document(read.document, read.entries))
    again = Read(data)
    assert (again.document, again.entries, again.warnings) == (read.document, read.entries, ())
