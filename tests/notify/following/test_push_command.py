"""`headwater sync --push` on the command line, and what `headwater status` tells of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.notify.following.pushing import Hub, PushedSite, following
from tests.support.program import run_here
from tests.support.waiting import until

FOLLOW = ("--follow", "1", "--push")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--push",), "--push goes with --follow"),
        ((*FOLLOW, "--dry-run"), "not with --dry-run"),
        (("--follow", "1", "--listen", "127.0.0.1:0"), "go with --push"),
        (("--callback-url", "http://me.example/"), "go with --push"),
        ((*FOLLOW, "--listen", "nowhere"), "has to be HOST:PORT"),
        ((*FOLLOW, "--listen", "0.0.0.0:0"), "needs --callback-url"),
        ((*FOLLOW, "--callback-url", "ftp://me.example/"), "--callback-url cannot be used"),
        ((*FOLLOW, "--callback-url", "http://me.example/?a=b"), "it has a query"),
    ],
)
def test_what_does_not_go_together_is_told(options: tuple[str, ...], told: str, dest: Path) -> None:
    done = run_here("sync", *options, "http://127.0.0.1:1/", dest)
    assert done.returncode == 2
    assert told in done.stderr.decode()


@pytest.mark.parametrize("other", ["copy", "copy/", "copy/below/it", ".", "link"])
def test_each_copy_needs_a_folder_of_its_own(other: str, dest: Path) -> None:
    (dest.parent / "link").symlink_to("copy")
    second = f"{dest.parent}/{other}"
    done = run_here("sync", *FOLLOW, "--also", "http://127.0.0.1:2/", second, "http://127.0.0.1:1/", dest)
    assert done.returncode == 2
    assert "each copy needs a folder of its own" in done.stderr.decode()


def test_the_status_shows_subscriptions_and_their_leases(site: PushedSite, hub: Hub, dest: Path) -> None:
    with following((site.source.base, dest)) as copy:
        copy.at_rest()
        site.put("new.txt", b"new")
        assert hub.deliver(site.topic(), site.notification()) == 202
        told = json.loads(run_here("status", "--json", dest).stdout)["push"]
        (one,) = told["subscriptions"]
        assert (told["mode"], one["state"], one["hub"], one["topic"]) == ("push", "active", hub.url, site.topic())
        assert one["lease_ends"] > one["next_request"] > told["last_delivery"] == one["last_delivery"]
        words = run_here("status", dest).stdout.decode()
        assert "followed by push; last notification" in words
        until(lambda: "by its notifications" in run_here("status", dest).stdout.decode())
        (channel,) = json.loads(run_here("status", "--json", dest).stdout)["push"]["channels"]
        assert channel["capability_list"] == f"{site.root}/capabilitylist.xml"
        assert not channel["has_gap"]
        assert f"change-notification at {hub.url}: active, lease until" in words
        assert site.topic() in words
        assert hub.asked[0].secret.decode() not in json.dumps(told) + words


def test_the_status_tells_when_no_process_follows_any_more(site: PushedSite, hub: Hub, dest: Path) -> None:
    """However the process ended: its lock has ended with it."""
    with following((site.source.base, dest)) as copy:
        copy.at_rest()
        told = json.loads(run_here("status", "--json", dest).stdout)
        assert (told["push"]["is_followed"], told["running"]) == (True, True)
        assert "\nfollowed by push" in run_here("status", dest).stdout.decode()
    told = json.loads(run_here("status", "--json", dest).stdout)
    assert (told["push"]["is_followed"], told["running"]) == (False, False)
    assert "\nnot followed at present; it was followed by push" in run_here("status", dest).stdout.decode()
    with following((site.source.base, dest)) as copy:
        copy.at_work()
        assert "\nfollowed by push" in run_here("status", dest).stdout.decode()
    (dest / ".headwater/push.lock").unlink()
    assert json.loads(run_here("status", "--json", dest).stdout)["push"]["is_followed"] is None


def test_of_many_copies_nothing_false_is_told(site: PushedSite, hub: Hub, dest: Path, tmp_path: Path) -> None:
    """A process of many copies holds no lock of each, and removes one that would tell that nobody follows."""
    with following((site.source.base, dest)) as copy:
        copy.at_rest()
    more = [(site.source.base, tmp_path / f"more{number}") for number in range(16)]
    with following((site.source.base, dest), *more):
        until(lambda: not (dest / ".headwater/push.lock").exists())
        assert json.loads(run_here("status", "--json", dest).stdout)["push"]["is_followed"] is None


def test_a_copy_that_was_never_followed_by_push_says_nothing_of_it(site: PushedSite, dest: Path) -> None:
    run_here("sync", "--quiet", site.source.base, dest)
    assert json.loads(run_here("status", "--json", dest).stdout)["push"] is None
