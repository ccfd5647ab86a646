"""A cheap guard: every MUST that one document can show is named in a test; the others are listed with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__)
TESTS = HERE.parents[1]

DOCUMENT_MUSTS = tuple(
    """
    RS-DOC-01 RS-DOC-02 RS-DOC-03 RS-DOC-04 RS-DOC-06 RS-DOC-08 RS-DOC-09 RS-DOC-10 RS-DOC-12 RS-DOC-13 RS-DOC-15
    RS-DOC-17 RS-LIM-01 RS-TIME-01 RS-TIME-11 RS-MD-01 RS-MD-02 RS-MD-05 RS-MD-09 RS-MD-10 RS-LN-01 RS-LN-03
    RS-SD-03 RS-SD-06 RS-SD-09 RS-CAP-01 RS-CAP-02 RS-CAP-04 RS-CAP-05 RS-CAP-06 RS-RL-01 RS-RL-03 RS-RL-04
    RS-RLI-01 RS-RLI-02 RS-RD-01 RS-RD-02 RS-RDI-01 RS-RDM-02 RS-RDM-03 RS-RDM-04 RS-RDM-05 RS-CL-01 RS-CL-02
    RS-CL-03 RS-CL-05 RS-CL-07 RS-CLI-01 RS-CLI-02 RS-CLI-04 RS-CD-01 RS-CDI-01 RS-CDM-02 RS-CDM-03 RS-CDM-05
    RS-CDM-06 RS-CDM-11 RS-REL-01 RS-REL-02 RS-REL-03 RS-REL-04 RS-REL-05 RS-REL-06 RS-REL-07 RS-REL-08 RS-REL-09
    RS-REL-10 RS-REL-11 RS-REL-12 RS-REL-13 RS-ARC-03 RS-ARC-10 RS-ARC-11 RS-ARC-13 RS-ARC-17 RS-ARC-21 RS-ARC-22
    RS-CN-02 RS-CN-03 RS-CN-04 RS-CN-09 RS-CN-10 RS-CN-12 RS-FN-02 RS-FN-05 RS-FN-06 RS-FN-08 RS-FN-10 RS-CH-05
    """.split()  # noqa: SIM905  one id a line would fill a page
)

ELSEWHERE = {
    "RS-LIM-03": "publish: several documents make an index",
    "RS-TIME-13": "publish: every time comes from the source's own catalog",
    "RS-SD-01": "server and publish: the well-known document",
    "RS-CAP-07": "publish: each set has its own Capability List",
    "RS-CAP-08": "publish: list and changes come from one catalog",
    "RS-CL-08": "only 1.0: the profile `both` writes it, see the table of the wire",
    "RS-CDM-08": "only 1.0: the profile `both` writes it",
    "RS-NAV-01": "publish: links between documents",
    "RS-DISC-04": "server: the Link header of a resource",
    "RS-CD-08": "later: dumps",
    "RS-RDM-01": "later: packages",
    "RS-CDM-01": "later: packages",
    "RS-CDM-10": "later: packages",
    "RS-ARC-04": "later: archives",
    "RS-ARC-20": "later: archives",
    "RS-CN-05": "later: notification, the chain of intervals",
    "RS-FN-09": "later: notification, what is announced",
    "RS-CH-01": "later: notification channels",
    "RS-CH-02": "later: notification channels",
    "RS-CH-03": "later: notification channels",
    "RS-CH-04": "later: notification channels",
}
"""MUSTs that no single document shows: where they are tested, or in what part that is still to come."""


@pytest.fixture(scope="module")
def named() -> set[str]:
    """Every rule id that some other test of this folder names."""
    texts = (path.read_text("utf-8") for path in HERE.parent.glob("test_*.py") if path != HERE)
    return {rule for text in texts for rule in _expanded(text)}


def _expanded(text: str) -> set[str]:
    """Rule ids, `RS-DOC-01, -03` and `RS-DISC-02…08` spelt out."""
    found = set()
    for prefix, first, more in re.findall(r"\b(RS-[A-Z]+)-(\d\d)((?:, -\d\d|…\d\d)*)", text):
        found.add(f"{prefix}-{first}")
        found |= {f"{prefix}-{number}" for number in re.findall(r"-(\d\d)", more)}
        for last in re.findall(r"…(\d\d)", more):
            found |= {f"{prefix}-{number:02d}" for number in range(int(first), int(last) + 1)}
    return found


@pytest.mark.parametrize("rule", DOCUMENT_MUSTS)
def test_every_must_of_a_document_is_named_in_a_test(rule: str, named: set[str]) -> None:
    assert rule in named


def test_no_rule_is_on_both_lists() -> None:
    assert len(set(DOCUMENT_MUSTS)) == len(DOCUMENT_MUSTS)
    assert not set(DOCUMENT_MUSTS) & ELSEWHERE.keys()
    assert all(ELSEWHERE.values())
