"""What a destination remembers, as earlier versions have written it down."""

import msgspec
import pytest

from headwater.sync.state.set_rows import CHANGE_LIST, RESOURCE_LIST, Offer, decode_offer

BEFORE = {
    "identity": "http://a.example/capabilitylist.xml",
    "name": "set",
    "capability_list": "http://a.example/capabilitylist.xml",
    "description": None,
    "resource_list": "http://a.example/resourcelist.xml",
    "change_list": None,
    "is_sitemap": False,
    "others": [["resourcedump", "http://a.example/dump.xml"]],
}


def test_an_offer_of_two_lists_and_others_is_read_as_a_mapping() -> None:
    """Written before an offer was a mapping by capability."""
    offer = decode_offer(msgspec.json.encode(BEFORE).decode())
    assert offer.resource_list == "http://a.example/resourcelist.xml"
    assert offer.change_list is None
    assert offer.documents == {
        RESOURCE_LIST: "http://a.example/resourcelist.xml",
        "resourcedump": "http://a.example/dump.xml",
    }


@pytest.mark.parametrize("documents", [{}, {RESOURCE_LIST: "r"}, {CHANGE_LIST: "c", "changedump": "d"}])
def test_an_offer_is_read_as_it_was_written(documents: dict[str, str]) -> None:
    offer = Offer(identity="i", name="n", documents=documents)
    assert decode_offer(msgspec.json.encode(offer).decode()) == offer


def test_a_document_of_an_offer_is_replaced_or_taken_out() -> None:
    offer = Offer(identity="i", name="n", documents={RESOURCE_LIST: "r", "resourcedump": "d"})
    assert offer.with_document(RESOURCE_LIST, "s").documents == {RESOURCE_LIST: "s", "resourcedump": "d"}
    assert offer.with_document(RESOURCE_LIST, None).documents == {"resourcedump": "d"}
    assert offer.with_document(CHANGE_LIST, "c").change_list == "c"
