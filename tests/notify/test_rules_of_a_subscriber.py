"""Each rule that a subscriber has to follow, or should, has a test."""

from __future__ import annotations

import pytest

from tests.rules import exists

FOLDER = "notify/following/"
DECISIONS, FOLLOWING = f"{FOLDER}test_subscriber_decisions.py", f"{FOLDER}test_following.py"
HOSTILE, LIFE = f"{FOLDER}test_hostile_deliveries.py", f"{FOLDER}test_subscriptions.py"
SETS, KILLED = f"{FOLDER}test_sets_and_sources.py", f"{FOLDER}test_killed.py"

RULES = {
    "RS-CN-06": (HOSTILE, "test_a_missing_payload_is_seen_and_the_change_list_read"),
    "RS-CN-07": (DECISIONS, "test_a_chain_without_a_gap_leads_on_rs_cn_07"),
    "RS-CN-08": (HOSTILE, "test_a_hub_that_lies_about_the_topic_is_not_believed"),
    "RS-FN-04": (SETS, "test_framework_notifications_add_and_remove_sets"),
    "RS-FN-05": (SETS, "test_framework_notifications_add_and_remove_sets"),
    "RS-FN-14": (LIFE, "test_channels_that_are_gone_are_unsubscribed_from"),
    "RS-CH-02": (FOLLOWING, "test_a_change_payload_at_the_framework_callback_does_nothing"),
    "RS-CH-05": (DECISIONS, "test_what_is_discovered_of_a_topic"),
    "RS-CH-06": (FOLLOWING, "test_several_hubs_are_subscribed_at_and_one_that_is_dead_does_no_harm"),
    "RS-NT-08": (DECISIONS, "test_the_forms_have_what_hubs_need_rs_nt_08_ws_s_02"),
    "RS-NT-12": (DECISIONS, "test_only_what_was_asked_for_is_confirmed_ws_s_06"),
    "RS-NT-13": (LIFE, "test_a_subscription_is_renewed_with_another_callback_and_secret"),
    "RS-NT-15": (FOLLOWING, "test_an_acknowledged_payload_is_applied_while_the_change_list_is_still_stale"),
    "RS-NT-16": (HOSTILE, "test_xml_bombs_and_other_documents_are_refused"),
    "RS-NT-17": (LIFE, "test_a_subscription_is_renewed_with_another_callback_and_secret"),
    "WS-S-01": (DECISIONS, "test_what_is_discovered_of_a_topic"),
    "WS-S-02": (DECISIONS, "test_the_forms_have_what_hubs_need_rs_nt_08_ws_s_02"),
    "WS-S-03": (DECISIONS, "test_what_is_discovered_of_a_topic"),
    "WS-S-04": (LIFE, "test_a_subscription_has_a_secret_and_a_callback_of_its_own"),
    "WS-S-05": (LIFE, "test_a_subscription_has_a_secret_and_a_callback_of_its_own"),
    "WS-S-06": (LIFE, "test_verifications_of_what_nobody_asked_for_are_refused"),
    "WS-S-07": (DECISIONS, "test_only_what_was_asked_for_is_confirmed_ws_s_06"),
    "WS-S-08": (DECISIONS, "test_a_subscription_is_renewed_within_its_lease_ws_s_08"),
    "WS-S-09": (KILLED, "test_a_kill_between_the_acknowledgement_and_the_application_loses_nothing"),
    "WS-S-10": (HOSTILE, "test_nobody_else_is_answered"),
    "WS-S-11": (HOSTILE, "test_a_delivery_for_another_topic_is_ignored"),
    "WS-S-12": (HOSTILE, "test_forged_and_unsigned_deliveries_are_not_applied"),
    "WS-S-13": (LIFE, "test_a_denied_subscription_is_not_asked_for_again"),
    "WS-S-14": (DECISIONS, "test_what_is_discovered_of_a_topic"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_of_subscribers_has_a_test(rule: str) -> None:
    assert exists(*RULES[rule])
