"""Each rule that a hub has to follow, or should, has a test."""

from __future__ import annotations

import pytest

from tests.rules import exists

HUB, DECISIONS = "notify/test_hub.py", "notify/test_hub_decisions.py"

RULES = {
    "RS-NT-06": (HUB, "test_subscribe_receive_unsubscribe"),
    "RS-NT-07": (HUB, "test_who_has_no_token_hands_in_what_the_topic_has"),
    "RS-NT-09": (HUB, "test_subscribe_receive_unsubscribe"),
    "RS-NT-10": (HUB, "test_subscribe_receive_unsubscribe"),
    "RS-NT-11": (DECISIONS, "test_leases_keep_their_bounds_ws_h_09_rs_nt_11"),
    "RS-NT-14": (HUB, "test_subscribe_receive_unsubscribe"),
    "WS-H-01": (DECISIONS, "test_a_subscription_is_read"),
    "WS-H-02": (DECISIONS, "test_a_form_that_cannot_be_accepted_is_told_why"),
    "WS-H-04": (HUB, "test_a_new_request_that_fails_leaves_the_subscription_as_it_was"),
    "WS-H-05": (DECISIONS, "test_a_callback_keeps_its_query_ws_h_05"),
    "WS-H-06": (HUB, "test_a_topic_at_a_private_address_is_denied"),
    "WS-H-07": (HUB, "test_subscribe_receive_unsubscribe"),
    "WS-H-08": (DECISIONS, "test_answers_to_verifications"),
    "WS-H-09": (HUB, "test_a_lease_ends"),
    "WS-H-10": (HUB, "test_challenges_are_new_each_time"),
    "WS-H-11": (DECISIONS, "test_one_link_header_has_hub_and_self_ws_h_11"),
    "WS-H-13": (HUB, "test_a_failed_delivery_comes_again_in_order_and_delays_nobody"),
    "WS-H-14": (DECISIONS, "test_signatures_are_hmac_over_the_body_ws_h_14"),
    "WS-H-15": (HUB, "test_a_callback_is_used_exactly_as_it_was_given"),
    "WS-H-16": (DECISIONS, "test_a_subscription_is_read"),
    "WS-H-17": (HUB, "test_a_topic_that_does_not_name_the_hub_is_not_believed"),
}
"""All but WS-H-03 and WS-H-12, which a hub may do: redirects to another hub, and new entries of feeds alone."""


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_hubs_has_a_test(rule: str) -> None:
    assert exists(*RULES[rule])
