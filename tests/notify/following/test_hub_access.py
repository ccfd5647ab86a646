"""Hubs and topics are asked as sources are: by the same proxy, and with credentials for the source's origin alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli.sync import also_followed
from headwater.sync.options import SyncOptions
from headwater.sync.run import SyncTask
from tests.notify.following.pushing import Hub, PushedSite, following, pushed_site, text
from tests.support.fake_source import Source
from tests.support.forward_proxy import ForwardProxy
from tests.support.program import run_here
from tests.support.waiting import until

TOKEN = "Bearer a-token-of-the-source"


def test_the_topic_gets_the_credentials_of_its_origin_and_the_hub_does_not(source: Source, dest: Path) -> None:
    """WS-P-05: by a proxy, a topic that is not for everybody names its hub; a hub elsewhere learns no secret."""
    with Source() as elsewhere, ForwardProxy() as proxy:
        hub = Hub(elsewhere)
        site = pushed_site(source, hub.url)
        options = {"proxy": proxy.url, "authorization": TOKEN}
        with following((source.base, dest), options=options) as copy:
            copy.at_rest()
            site.put("new.txt", b"new")
            assert hub.deliver(site.topic(), site.notification()) == 202
            until(lambda: text(dest / "new.txt") == "new")
        asked = {head.split(" HTTP/")[0]: head for head in proxy.heads}
        assert TOKEN in asked[f"GET {site.topic()}"]
        assert TOKEN not in asked[f"POST {hub.url}"]
        assert TOKEN in asked[f"GET {source.base}/set/resources/new.txt"]


def test_without_credentials_a_topic_is_asked_without(site: PushedSite, hub: Hub, dest: Path) -> None:
    with ForwardProxy() as proxy, following((site.source.base, dest), options={"proxy": proxy.url}) as copy:
        copy.at_rest()
        assert not any("authorization" in head.lower() for head in proxy.heads)
        assert any(head.startswith(f"POST {hub.url} ") for head in proxy.heads)


def test_a_proxy_that_hubs_cannot_be_asked_by_is_told_at_the_start(dest: Path) -> None:
    named = ("--proxy", "socks5://ben:s3cret@127.0.0.1:1")
    done = run_here("sync", "--follow", "1", "--push", *named, "http://127.0.0.1:1/", dest)
    assert done.returncode == 2
    assert "http://HOST:PORT, not by SOCKS or https" in done.stderr.decode()
    assert "s3cret" not in done.stderr.decode()


@pytest.mark.parametrize(
    ("url", "is_same"),
    [
        ("http://one.example/other", True),
        ("ONE.example:80", True),
        ("https://one.example/", False),
        ("http://two.example/", False),
        ("http://one.example:81/", False),
    ],
)
def test_credentials_stay_with_the_origin_they_were_given_for(url: str, is_same: bool, dest: Path) -> None:
    """One more copy of `--also` is followed with the same options, but for what is secret."""
    secret = SyncOptions(
        authorization=TOKEN, headers=(("X-Key", "secret"),), cert="c.pem", key="k.pem", ca="ca.pem", proxy="http://p:1"
    )
    task = SyncTask(url="http://one.example/", destination=dest, options=secret)
    also = also_followed(task, url, dest / "other").options
    assert also == (task.options if is_same else SyncOptions(ca="ca.pem", proxy="http://p:1"))
