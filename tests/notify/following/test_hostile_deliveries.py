"""Deliveries that are forged, replayed, reordered, truncated, too long, hostile or of something else do no harm."""

from __future__ import annotations

import gzip
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.errors import HeadwaterError
from headwater.http import callbacks as listener
from headwater.http.server import ServerLimits
from headwater.notify import subscriber
from headwater.notify.websub import SignatureMethod
from headwater.storage.transaction import DatabaseFull
from tests.notify.following.pushing import (
    CHANGES,
    Following,
    Hub,
    PushedSite,
    following,
    get,
    polls,
    post,
    signed,
    text,
)
from tests.support.fake_source import at, document, ln, url
from tests.support.waiting import until

pytestmark = pytest.mark.long(15)


def changed(site: PushedSite) -> bytes:
    site.put("new.txt", b"new")
    return site.notification()


def sound(site: PushedSite, hub: Hub, dest: Path) -> None:
    """Whatever has come, the next good payload is applied, if it joins what was told."""
    site.put("sound.txt", b"sound")
    site.until = 10.0
    assert hub.deliver(site.topic(), site.notification()) == 202
    until(lambda: text(dest / "sound.txt") == "sound")


def test_a_request_that_meets_a_bug_is_told(
    site: PushedSite, hub: Hub, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answered with 500, so that the hub sends it once more, which is taken."""
    heard: list[HeadwaterError] = []
    with following((site.source.base, dest), on_fault=heard.append) as copy:
        copy.at_rest()
        asked, body = hub.subscription(site.topic()), changed(site)
        with monkeypatch.context() as broken:
            broken.setattr(subscriber, "judge", lambda *_, **__: int("odd"))
            assert post(asked.callback, body, signed(asked.secret, body)) == 500
        assert [str(one) for one in heard] == ["ValueError: invalid literal for int() with base 10: 'odd' [HW-000]"]
        sound(site, hub, dest)


def test_a_store_that_takes_no_delivery_is_told_once(
    site: PushedSite, hub: Hub, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk without room: one line until a delivery is taken again, and each is answered with 503."""
    heard: list[HeadwaterError] = []
    with following((site.source.base, dest), on_fault=heard.append) as copy:
        copy.at_rest()
        asked, body = hub.subscription(site.topic()), changed(site)
        for count in (1, 2):
            with monkeypatch.context() as full:
                full.setattr(subscriber, "judge", refuse_for_want_of_room)
                for _ in range(3):
                    assert post(asked.callback, body, signed(asked.secret, body)) == 503
            assert [one.code for one in heard] == [DatabaseFull.code] * count
            sound(site, hub, dest)


def refuse_for_want_of_room(*_: object, **__: object) -> None:
    raise DatabaseFull("the disk is full", where="push.sqlite")


FORGED: tuple[tuple[dict[str, str], int], ...] = (
    (signed(b"a guess", b""), 202),  # WebSub, 7.1.2: a wrong one is ignored, and answered as a right one is
    ({"X-Hub-Signature": "sha256="}, 202),
    ({}, 403),  # 3.1: one that is missing is rejected
    ({"X-Hub-Signature": "md5=d41d8cd98f00b204e9800998ecf8427e"}, 403),
    ({"X-Hub-Signature": "sha256"}, 403),
    ({"X-Hub-Signature": "\u00e2\u00e2"}, 403),
)


def test_forged_and_unsigned_deliveries_are_not_applied(
    copy: Following, site: PushedSite, hub: Hub, dest: Path
) -> None:
    asked, body = hub.subscription(site.topic()), changed(site)
    for headers, status in FORGED:
        assert post(asked.callback, body, headers) == status
    assert copy.heard("its signature is wrong")
    assert copy.heard("it is not signed")
    assert copy.heard("its signature is of no known method")
    sound(site, hub, dest)
    assert not (dest / "new.txt").exists()


def test_every_method_of_signatures_is_taken(copy: Following, site: PushedSite, hub: Hub, dest: Path) -> None:
    """SHA-1 too, which is the one that most hubs use (WS-H-14)."""
    asked = hub.subscription(site.topic())
    for method in SignatureMethod:
        site.put(f"{method}.txt", b"new")
        body = site.notification()
        assert post(asked.callback, body, signed(asked.secret, body, method)) == 202
        until(lambda name=f"{method}.txt": text(dest / name) == "new")  # type: ignore[misc]


def test_a_truncated_delivery_is_not_applied(copy: Following, site: PushedSite, hub: Hub, dest: Path) -> None:
    body, asked = changed(site), hub.subscription(site.topic())
    assert post(asked.callback, body[:-20], signed(asked.secret, body)) == 202  # its signature is wrong
    assert hub.deliver(site.topic(), body[:-20]) == 202  # one that the hub itself has cut off
    until(lambda: copy.heard("the payload cannot be read"))
    until(lambda: polls(site) > 0)
    assert not (dest / "new.txt").exists()
    site.publish_changes(10.0)
    sound(site, hub, dest)


def test_a_delivery_that_breaks_off_is_not_taken(copy: Following, site: PushedSite, hub: Hub, dest: Path) -> None:
    body, asked = changed(site), hub.subscription(site.topic())
    parts = urlsplit(asked.callback)
    head = f"POST {parts.path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
    fields = "".join(f"{name}: {value}\r\n" for name, value in signed(asked.secret, body).items())
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as client:
        client.sendall(f"{head}{fields}\r\n".encode() + body[:-1])
    sound(site, hub, dest)
    assert not (dest / "new.txt").exists()


def test_replayed_deliveries_do_nothing_twice(copy: Following, site: PushedSite, hub: Hub, dest: Path) -> None:
    first = changed(site)
    site.put("f0.txt", b"second")
    second = site.notification()
    for body in (first, second):
        assert hub.deliver(site.topic(), body) == 202
    until(lambda: text(dest / "f0.txt") == "second")
    site.drop("new.txt")
    third = site.notification()
    for body in (third, first, second, first, third):
        assert hub.deliver(site.topic(), body) == 202
    sound(site, hub, dest)
    assert not (dest / "new.txt").exists()
    assert len(site.source.requests("/set/resources/new.txt")) == 1
    assert polls(site) == 0


def test_reordered_deliveries_come_to_the_same(site: PushedSite, hub: Hub, dest: Path) -> None:
    """That they were out of order is seen, and the list is read (RS-CN-06)."""
    with following((site.source.base, dest), seconds=0.5) as copy:
        copy.at_rest()
        bodies = []
        for content in (b"one", b"two", b"three"):
            site.put("f0.txt", content)
            bodies.append(site.notification())
        site.drop("f1.txt")
        bodies.append(site.notification())
        site.publish_changes(10.0)
        before = polls(site)
        assert hub.deliver(site.topic(), bodies[3]) == 202
        until(lambda: not (dest / "f1.txt").exists())  # by the list
        for number in (0, 2, 1):
            assert hub.deliver(site.topic(), bodies[number]) == 202
        until(lambda: text(dest / "f0.txt") == "three")
        until(lambda: polls(site) > before)
        sound(site, hub, dest)
        assert (text(dest / "f0.txt"), text(dest / "f1.txt")) == ("three", None)


def test_a_missing_payload_is_seen_and_the_change_list_read(
    copy: Following, site: PushedSite, hub: Hub, dest: Path
) -> None:
    changed(site)  # and never delivered
    site.put("later.txt", b"later")
    late = site.notification()
    site.publish_changes(10.0)
    assert hub.deliver(site.topic(), late) == 202
    until(lambda: text(dest / "later.txt") == "later")
    until(lambda: text(dest / "new.txt") == "new")
    before = polls(site)
    assert before >= 1
    sound(site, hub, dest)


def test_oversize_deliveries_are_refused(
    copy: Following, site: PushedSite, hub: Hub, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.http.callbacks.PAYLOAD_OCTETS", 50_000)
    asked = hub.subscription(site.topic())
    body = document([], capability=CHANGES) + b" " * 60_000
    assert post(asked.callback, body, signed(asked.secret, body)) == 413
    parts = urlsplit(asked.callback)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as client:  # of a length nobody states
        head = f"POST {parts.path} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sendall(head.encode() + b"ea60\r\n" + b" " * 60_000)
        assert client.recv(1 << 12).startswith(b"HTTP/1.1 413")
    until(lambda: polls(site) > 0)  # the list has what it may have told
    sound(site, hub, dest)


LAUGHS = b"".join(b'<!ENTITY l%d "%s">' % (n, b"&l%d;" % (n - 1) * 10) for n in range(1, 10))
BOMBS = {
    "entities": b'<!DOCTYPE u [<!ENTITY l0 "lol">' + LAUGHS + b"]><urlset>&l9;</urlset>",
    "an external entity": b'<!DOCTYPE u [<!ENTITY x SYSTEM "file:///etc/passwd">]><urlset>&x;</urlset>',
    "an external DTD": b'<!DOCTYPE u SYSTEM "http://127.0.0.1:1/u.dtd"><urlset/>',
    "depth": b"<urlset>" + b"<a>" * 100_000,
    "attributes": b"<urlset " + b" ".join(b'a%d="x"' % n for n in range(5_000)) + b"/>",
    "no XML": b"\x00\xff" * 1_000,
    "nothing": b"",
    "an index": document([], root="sitemapindex", capability=CHANGES),
    "a Capability List": document([], capability="capabilitylist"),
}


def test_xml_bombs_and_other_documents_are_refused(copy: Following, site: PushedSite, hub: Hub, dest: Path) -> None:
    bombs = [*BOMBS.values(), gzip.compress(b"<urlset>" + b" " * (100 << 20), 1)]
    for bomb in bombs:
        assert hub.deliver(site.topic(), bomb) == 202
    until(lambda: len([one for one in copy.notices if one.message.startswith("the payload")]) == len(bombs))
    until(lambda: polls(site) > 0)
    sound(site, hub, dest)


def test_a_delivery_for_another_topic_is_ignored(copy: Following, site: PushedSite, hub: Hub, dest: Path) -> None:
    asked, body = hub.subscription(site.topic()), changed(site)
    other = {"Link": f'<{site.topic()}2>; rel="self", <{hub.url}>; rel="hub"'}
    assert post(asked.callback, body, other | signed(asked.secret, body)) == 202
    until(lambda: copy.heard("it is of another topic"))
    until(lambda: polls(site) > 0)
    assert not (dest / "new.txt").exists()


def test_a_hub_that_lies_about_the_topic_is_not_believed(
    copy: Following, site: PushedSite, hub: Hub, dest: Path
) -> None:
    """A payload of another set, signed for this one; resources of other hosts; what the source does not have."""
    site.put("new.txt", b"new")
    up = ln("up", f"{site.source.base}/other/capabilitylist.xml")
    assert hub.deliver(site.topic(), site.notification(links=up)) == 202
    until(lambda: copy.heard("the payload is of another set"))
    assert not (dest / "new.txt").exists()
    until(lambda: polls(site) == 1)
    lies = [
        url("http://127.0.0.1:1/far.txt", change="created", datetime=at(site.clock)),
        url(site.uri("none.txt"), change="created", datetime=at(site.clock)),
        url(site.uri("f0.txt"), change="updated", datetime=at(site.clock), hash="sha-256:" + "0" * 64, length=1),
        url("file:///etc/passwd", change="created", datetime=at(site.clock)),
    ]
    body = document(lies, capability=CHANGES, **{"from": at(site.clock), "until": at(site.clock + 1)})
    assert hub.deliver(site.topic(), body) == 202
    until(lambda: polls(site) > 1)
    assert sorted(path.name for path in dest.iterdir() if path.is_file()) == ["f0.txt", "f1.txt", "f2.txt"]
    assert text(dest / "f0.txt") == "body 0\n"
    site.publish_changes(10.0)
    sound(site, hub, dest)
    assert all(one.exit_status == 0 for one in copy.reports if one.sets[0].process != "push")


def test_a_payload_of_the_far_future_does_not_stop_what_comes_after(site: PushedSite, hub: Hub, dest: Path) -> None:
    with following((site.source.base, dest), seconds=0.5, longest=0.5) as copy:
        copy.at_rest()
        empty = document([], links=site.up(), capability=CHANGES, **{"from": at(10), "until": "2999-01-01T00:00:00Z"})
        assert hub.deliver(site.topic(), empty) == 202
        sound(site, hub, dest)  # while the list is stale
        site.put("new.txt", b"new")
        site.publish_changes(10.0)
        until(lambda: text(dest / "new.txt") == "new")


def test_what_a_payload_tells_after_a_gap_is_awaited_from_the_lists(site: PushedSite, hub: Hub, dest: Path) -> None:
    """It is not applied; as long as the list is stale it is read again and again, and what comes late joins."""
    with following((site.source.base, dest), seconds=0.3, longest=600) as copy:
        copy.at_rest()
        bodies = []
        for name, content in (("late.txt", b"late"), ("f0.txt", b"old"), ("f0.txt", b"newest")):
            site.put(name, content)
            bodies.append(site.notification())
        assert hub.deliver(site.topic(), bodies[2]) == 202
        before = polls(site)
        until(lambda: polls(site) > before + 5)
        assert text(dest / "f0.txt") == "body 0\n"
        for number in (0, 1):
            assert hub.deliver(site.topic(), bodies[number]) == 202
        until(lambda: text(dest / "late.txt") == "late")
        before = polls(site)
        until(lambda: polls(site) > before + 2)
        site.publish_changes(10.0)
        sound(site, hub, dest)
        until(lambda: text(dest / "f0.txt") == "newest")


def test_old_publishers_are_understood(copy: Following, site: PushedSite, hub: Hub, dest: Path) -> None:
    """Payloads of 0.9 to 1.0, and plain Change Lists (section G); for one without an interval the list is read."""
    for capability in ("changelist-notification", "changelist"):
        site.put(f"{capability}.txt", b"old")
        assert hub.deliver(site.topic(), site.notification(capability)) == 202
        until(lambda name=capability: text(dest / f"{name}.txt") == "old")  # type: ignore[misc]
    site.put("bare.txt", b"old")
    assert polls(site) == 0
    assert hub.deliver(site.topic(), document([site.change(*site.changes[-1])])) == 202
    until(lambda: polls(site) > 1)  # the list is stale
    site.publish_changes(10.0)
    until(lambda: text(dest / "bare.txt") == "old")


def test_slow_lorises_are_cut_off_and_delay_nobody(
    site: PushedSite, hub: Hub, dest: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = ServerLimits(head_seconds=2.0, connections=500, shutdown_seconds=1)
    monkeypatch.setattr(listener, "_LIMITS", limits)
    monkeypatch.setattr("headwater.http.requests._BODY_SECONDS", 2.0)
    with following((site.source.base, dest)) as copy:
        copy.at_rest()
        parts = urlsplit(hub.subscription(site.topic()).callback)
        slow = [socket.create_connection((parts.hostname, parts.port), timeout=20) for _ in range(50)]
        for number, client in enumerate(slow):
            head = f"POST {parts.path} HTTP/1.1\r\nHost: x\r\n"
            client.sendall((head if number % 2 else f"{head}Content-Length: 100\r\n\r\n<").encode())
        sound(site, hub, dest)
        for number, client in enumerate(slow):
            answer = client.recv(1 << 12)
            assert answer == b"" if number % 2 else answer.startswith(b"HTTP/1.1 408")
            client.close()


def test_nobody_else_is_answered(copy: Following, site: PushedSite, hub: Hub) -> None:
    """Unknown callbacks, other methods, queries of nobody."""
    callback = hub.subscription(site.topic()).callback
    stranger = callback.rpartition("/")[0] + "/unknown"
    assert post(stranger, b"<urlset/>", {}) == 410
    assert get(stranger, {"hub.mode": "subscribe", "hub.topic": site.topic(), "hub.challenge": "x"})[0] == 404
    assert get(callback, {})[0] == 404
    assert get(callback, {"hub.mode": "subscribe", "hub.topic": site.topic() + "2", "hub.challenge": "x"})[0] == 404
