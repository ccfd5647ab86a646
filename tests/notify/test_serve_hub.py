"""The hub in the process of `headwater serve`: `--hub` for one machine, and the `[hub]` table."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from tools.engines.launch import free_port

from headwater.errors import UsageFault
from headwater.http.server import listen
from headwater.source.config import read_config
from tests.notify.subscriber import Subscriber
from tests.notify.test_framework import told as told_of_documents
from tests.notify.test_publisher import is_chain, names
from tests.support.copying import DONE, STORE, go
from tests.support.documents import read_bytes
from tests.support.fake_source import Site, Source
from tests.support.program import run_here
from tests.support.serving import Process, request
from tests.support.waiting import until

pytestmark = pytest.mark.long(8)

USAGE = 2


@pytest.fixture
def far() -> Iterator[Subscriber]:
    one = Subscriber()
    yield one
    one.close()


def post(url: str, fields: dict[str, str]) -> int:
    try:
        with urllib.request.urlopen(url, urlencode(fields).encode(), timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code


def subscribed(hub: str, topic: str, callback: str) -> None:
    before = health(hub)["subscriptions"]
    assert post(hub, {"hub.mode": "subscribe", "hub.topic": topic, "hub.callback": callback}) == 202
    until(lambda: health(hub)["subscriptions"] == before + 1)


def health(hub: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{hub}health", timeout=30) as answer:
        return json.load(answer)  # type: ignore[no-any-return]


def test_one_command_starts_source_publisher_and_hub(tmp_path: Path, far: Subscriber) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "a.txt").write_text("a")
    options = ("--files", str(files), "--state", str(tmp_path / "state"), "--port", "0", "--hub", "--workers", "2")
    with Process(*options) as server:
        url = server.ready()
        listed = read_bytes(request(url, "/files/capabilitylist.xml").body)[1]
        channels = {one.capability: one for one in listed if one.links}
        topic = channels["change-notification"].loc
        assert [link.href for link in channels["framework-notification"].links] == [server.hub]
        subscribed(server.hub, topic, f"{far.url}/in")
        for number in range(3):
            (files / f"{number}.txt").write_text("new")
            far.wait(lambda number=number: f"{number}.txt" in names(far.deliveries("/in")))  # type: ignore[misc]
        assert is_chain(far.deliveries("/in"))
        # whoever does not know the token is believed only by what the topic itself has
        forged = urllib.request.Request(
            server.hub,
            b"<urlset/>",
            {"Content-Type": "application/xml", "Link": f'<{topic}>; rel="self", <{server.hub}>; rel="hub"'},
        )
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(forged, timeout=30)
        refused.value.close()
        status, said = server.stop()
    assert status == DONE
    assert "public addresses and this machine" in said
    assert server.hub in said
    assert (tmp_path / "state" / "hub").is_dir()


@pytest.mark.parametrize(("key", "status"), [("", 404), ('token = "of-another-publisher"\n', 202)])
def test_a_hub_knows_the_topics_of_its_only_source(tmp_path: Path, far: Subscriber, key: str, status: int) -> None:
    """One that has other publishers takes subscriptions to their topics. What is kept can always be ended."""
    (tmp_path / "files").mkdir()
    config = tmp_path / "source.toml"
    config.write_text(
        f'state = "state"\nport = {free_port()}\n[[set]]\nfiles = "files"\n'
        f'[hub]\nlisten = "127.0.0.1:{free_port()}"\nallow_private = ["127.0.0.1"]\n{key}'
    )
    with Process("--quiet", str(config)) as server:
        url = server.ready()
        for topic, mode, expected in (
            (f"{url}/files/changenotification.xml", "subscribe", 202),
            (f"{url}/%66iles/frameworknotification.xml", "subscribe", 202),
            (f"{url}/nix/changenotification.xml", "subscribe", status),
            (f"{url}/nix/changenotification.xml", "unsubscribe", 202),
        ):
            fields = {"hub.mode": mode, "hub.topic": topic, "hub.callback": f"{far.url}/in"}
            assert post(server.hub, fields) == expected, topic


def test_a_hub_of_a_table_goes_on_after_a_kill(tmp_path: Path, far: Subscriber) -> None:
    (tmp_path / "files").mkdir()
    config = tmp_path / "source.toml"
    config.write_text(
        f'state = "state"\nport = {free_port()}\n[[set]]\nfiles = "files"\n'
        f'[hub]\nlisten = "127.0.0.1:{free_port()}"\nallow_private = ["127.0.0.1"]\nlease_bounds = "60..600"\n'
    )
    with Process("--quiet", str(config)) as server:
        topic = f"{server.ready()}/files/changenotification.xml"
        subscribed(server.hub, topic, f"{far.url}/in")
        server.kill()
    (tmp_path / "files" / "a.txt").write_text("a")
    with Process("--quiet", str(config)) as server:
        server.ready()
        assert health(server.hub)["subscriptions"] == 1
        far.wait(lambda: names(far.deliveries("/in")) == ["a.txt"])


def test_a_source_whose_own_hub_does_not_take_its_address_is_told_what_to_set(tmp_path: Path) -> None:
    """HW-NTF-02: without `allow_private` the hub at a loopback address takes nothing of the source beside it."""
    (tmp_path / "files").mkdir()
    config = tmp_path / "source.toml"
    hub = f'[hub]\nlisten = "127.0.0.1:{free_port()}"\n'
    config.write_text(f'state = "state"\nport = {free_port()}\n[[set]]\nfiles = "files"\n{hub}')
    with Process(str(config)) as server:
        server.ready()
        (tmp_path / "files" / "a.txt").write_text("a")
        until(lambda: b"HW-NTF-02" in request(server.url, "/health").body)
        _, said = server.stop()
    assert "127.0.0.1 is not a public address" in said
    assert "allow_private of [hub]" in said


def test_sets_that_a_copy_gets_are_told_of_while_it_is_served(tmp_path: Path, far: Subscriber) -> None:  # RS-CH-04
    with Source() as origin:
        dest = tmp_path / "copy"

        def publish(*names: str) -> None:
            site = Site(origin, names[-1])
            site.put("f.txt", b"content")
            site.clock = 10.0
            site.publish(since=10.0)
            site.publish_description(*names)
            assert go(origin.base, dest).status == DONE

        publish("one")
        with Process("--copy", str(dest), "--port", "0", "--state", str(tmp_path / "state"), "--hub") as server:
            topic = f"{server.ready()}/one/frameworknotification.xml"
            subscribed(server.hub, topic, f"{far.url}/hub")
            publish("one", "two")
            far.wait(lambda: ("/.well-known/resourcesync", "updated") in told_of_documents(far, topic))
            assert b"/two/" in request(server.url, "/.well-known/resourcesync").body
            assert health(server.hub)["subscriptions"] == 1, "the hub goes on while the source begins anew"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--files", ".", "--hub", "--host", "0.0.0.0", "--base-url", "http://s.example"), "one machine"),
        (("--files", ".", "--hub", "--no-publish", "--base-url", "http://s.example"), "--hub"),
        (("CONFIG", "--hub"), "[hub] table"),
    ],
)
def test_where_one_command_is_not_enough(tmp_path: Path, options: tuple[str, ...], text: str) -> None:
    config = tmp_path / "source.toml"
    config.write_text(f'state = "{tmp_path}/state"\nport = 0\n[[set]]\nfiles = "{tmp_path}"\n')
    given = [config if one == "CONFIG" else one for one in options]
    ended = run_here("serve", *given, "--state", tmp_path / "state", "--port", 0)
    assert ended.returncode == USAGE
    assert text in ended.stderr.decode()


@pytest.mark.parametrize("by_option", [True, False])
def test_a_port_in_use_is_told_as_that_of_the_hub(tmp_path: Path, by_option: bool) -> None:
    port = free_port() + 1
    with listen("127.0.0.1", port):
        config = tmp_path / "source.toml"
        table = f'state = "{tmp_path}/state"\n[[set]]\nfiles = "{tmp_path}"\n[hub]\nlisten = "127.0.0.1:{port}"\n'
        config.write_text(table)
        given = ("--files", tmp_path, "--hub", "--port", port - 1) if by_option else (config, "--port", 0)
        ended = run_here("serve", *given, "--state", tmp_path / "state")
    assert ended.returncode == STORE
    told = ended.stderr.decode()
    assert "the hub: the address is in use" in told
    assert f"127.0.0.1:{port}" in told
    assert ("another --port" in told) is by_option


@pytest.mark.parametrize(
    "table",
    [
        'listen = "8080"',
        'listen = "0.0.0.0:8080"',
        'base_url = "ftp://hub.example/"',
        'lease_bounds = "5"',
        'allow_private = ["somewhere"]',
        'trusted_proxies = ["my-proxy.example"]',
        'signature = "md5"',
        'hubs = ["http://h.example/"]',
    ],
)
def test_tables_that_are_refused(tmp_path: Path, table: str) -> None:
    config = tmp_path / "source.toml"
    config.write_text(f'state = "s"\n[[set]]\nfiles = "f"\n[hub]\n{table}\n')
    with pytest.raises(UsageFault):
        read_config(config)


def test_paths_of_a_table_are_beside_the_configuration(tmp_path: Path) -> None:
    config = tmp_path / "source.toml"
    config.write_text('state = "s"\n[[set]]\nfiles = "f"\n[hub]\nstate = "h"\ntoken_file = "t"\n')
    (tmp_path / "t").write_text("0123456789abcdef")
    hub = read_config(config).hub
    assert hub is not None
    assert hub.state == str(tmp_path / "h")
    assert hub.tokens().accepts(b"0123456789abcdef")
