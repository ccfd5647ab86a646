"""Every MUST that one document can show is named by a test that runs; of the others the test is told, or the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import exists, named_in

HERE = Path(__file__)

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
    "RS-LIM-03": "publish/test_publisher.py::test_set_of_several_pages_is_an_index",
    "RS-SD-01": "http/test_http.py::test_everything_listed_is_served_as_listed",
    "RS-CAP-07": "ingest/test_dit_published.py::test_dit_a18_one_file_in_two_sets",
    "RS-CAP-08": "publish/test_consistency.py::test_every_look_is_one_state_of_the_catalog",
    "RS-CL-08": "publish/test_publisher.py::test_lastmod_of_changes",
    "RS-CDM-08": "spec/test_serialisation.py::test_profile_both_repeats_the_time_of_the_change",
    "RS-RDM-01": "sync/dumps/test_bad_dumps.py::test_a_package_that_cannot_be_used",
    "RS-CDM-01": "sync/dumps/test_bad_dumps.py::test_a_change_package_that_cannot_be_used",
    "RS-CD-08": "publish/test_change_dumps.py::test_a_package_holds_every_change_of_a_segment_in_order",
    "RS-CDM-10": "publish/test_change_dumps.py::test_octets_that_cannot_be_had_make_the_dump_begin_anew",
    "RS-ARC-04": "publish/archives/test_archives.py::test_past_states_come_out_of_the_archives",
    "RS-ARC-20": "sync/archives/test_closing_gaps.py::test_an_archive_index",
    "RS-NAV-01": "publish/test_publisher.py::test_set_of_several_pages_is_an_index",
    "RS-DISC-04": "http/test_http.py::test_resources_lead_to_their_capability_list",
    "RS-CN-05": "notify/test_publisher.py::test_source_and_hub_are_killed_and_nothing_is_lost",
    "RS-CH-01": "notify/test_publisher.py::test_an_edit_reaches_a_subscriber_through_a_hub",
    "RS-FN-09": "notify/test_framework.py::test_what_is_announced_can_be_had_and_no_index_is",
    "RS-CH-02": "notify/test_framework.py::test_documents_that_appear_change_and_go",
    "RS-CH-04": "notify/test_framework.py::test_documents_that_appear_change_and_go",
    "RS-CH-03": "notify/test_publisher.py::test_a_change_in_two_sets_is_told_in_both_channels",
}
"""MUSTs that no single document shows, and the tests that show them."""

NOT_SHOWN = {
    "RS-TIME-13": "whose view a time is from cannot be read off it; ours are given by the source's own catalog",
}
"""MUSTs that nothing shows, and why."""


@pytest.fixture(scope="module")
def named() -> set[str]:
    """Every rule id in the cases of the other tests of this folder; comments and docstrings do not count."""
    return set().union(*(named_in(path) for path in HERE.parent.glob("test_*.py") if path != HERE))


@pytest.mark.parametrize("rule", DOCUMENT_MUSTS)
def test_every_must_of_a_document_is_named_in_a_test(rule: str, named: set[str]) -> None:
    assert rule in named


@pytest.mark.parametrize("rule", ELSEWHERE)
def test_what_many_documents_show_has_a_test(rule: str) -> None:
    assert exists(*ELSEWHERE[rule].split("::"))


def test_no_rule_is_on_two_lists() -> None:
    every = [*DOCUMENT_MUSTS, *ELSEWHERE, *NOT_SHOWN]
    assert len(set(every)) == len(every)


def test_comments_and_docstrings_do_not_count(tmp_path: Path) -> None:
    source = tmp_path / "test_one.py"
    source.write_text(
        '"""RS-DOC-01."""\n# RS-DOC-02\nCASES = ["RS-DOC-03"]\n"""RS-DOC-04"""\n\n'
        'def test_it():\n    """RS-DOC-05."""\n    assert f"RS-DOC-06 {CASES}"  # RS-DOC-07\n'
    )
    assert named_in(source) == {"RS-DOC-03", "RS-DOC-06"}
