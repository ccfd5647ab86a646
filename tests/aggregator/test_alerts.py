"""Alerts: told once when something begins and once when it is over, silenced by source or tag, delivered or kept."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from headwater.aggregator import alerts
from headwater.aggregator.alerts import (
    Alert,
    AlertMessage,
    AlertNotDelivered,
    AlertService,
    RuleMemory,
    check_mail,
    deliver,
    judge,
    mail_of,
)
from headwater.aggregator.configuration import AlertRule, FollowedSource
from headwater.aggregator.status import FleetStatus, fleet_status
from headwater.aggregator.store import DeadLetter, Life, Question
from headwater.errors import HeadwaterError, StoreFault
from headwater.typed_decoding import from_values
from tests.aggregator.fleet import HOSTILE, NOW, ago, configuration, put, store_at

SOURCES = tuple(
    FollowedSource(name=name, url=f"https://{name}.example.org/", tags=tags)
    for name, tags in (("museum", ("de",)), ("maps", ("fr",)), ("archive", ()))
)
GOOD: dict[str, Any] = {"life": Life.FOLLOWING, "sound_at": ago(minutes=10), "next_at": NOW + dt.timedelta(minutes=50)}
BAD: dict[str, Any] = GOOD | {"life": Life.FAILING}


class Fleet:
    """Three sources whose states a test sets, and what the rules remember."""

    def __init__(self, folder: Path, *rules: AlertRule) -> None:
        self.store = store_at(folder)
        self.store.enrol_sinks(["index", "hook"], NOW)
        self.rules = rules
        self.config = configuration(folder, SOURCES, alerts=rules)
        self.memory: dict[str, RuleMemory] = {}
        for one in SOURCES:
            put(self.store, one.name, one.url, **GOOD)

    def status(self, free: int = 10) -> FleetStatus:
        return fleet_status(self.config, self.store, NOW, is_alive=True, free=free)

    def look(self, local: dt.datetime | None = None, free: int = 10) -> list[AlertMessage]:
        """The messages of this look; each is delivered."""
        found = []
        for one in self.rules:
            before = self.memory.get(one.name, RuleMemory())
            message, self.memory[one.name] = judge(one, self.status(free), before, local or NOW)
            found += [] if message is None else [message]
        return found

    def told(self, **more: Any) -> list[tuple[str | None, str, bool]]:
        found = [one for each in self.look(**more) for one in each.alerts]
        return [(one.source or one.sink, one.condition, one.is_over) for one in found]


def rule(*on: str, **fields: Any) -> AlertRule:
    return AlertRule(**{"name": "night", "kind": "command", "command": "true", "on": on} | fields)


def test_each_change_of_state_is_told_once(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, rule("failing", "dead", "recovered"))
    assert fleet.told() == []
    fleet.store.change("museum", **BAD)
    assert fleet.told() == [("museum", "failing", False)]
    assert fleet.told() == []
    fleet.store.change("museum", life=Life.DEAD)
    assert fleet.told() == [("museum", "dead", False)], "it has been failing before"
    fleet.store.change("museum", **GOOD)
    assert fleet.told() == [("museum", "failing", True), ("museum", "dead", True)]
    assert fleet.told() == []


def test_without_recovered_the_end_is_not_told(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, rule("failing"))
    fleet.store.change("museum", **BAD)
    assert len(fleet.told()) == 1
    fleet.store.change("museum", **GOOD)
    assert fleet.told() == []
    fleet.store.change("museum", **BAD)
    assert len(fleet.told()) == 1


def test_what_can_be_told(tmp_path: Path) -> None:
    on = (
        "degraded",
        "question",
        "held_back",
        "stale:2d",
        "stale",
        "disk",
        "sink",
        "sink:1h",
        "dead_letters:2",
        "dead_letters:3",
    )
    fleet = Fleet(tmp_path, rule(*on))
    assert fleet.told() == []
    fleet.store.change("museum", life=Life.DEGRADED, held_back=7)
    fleet.store.change("maps", question=Question.MOVED, question_text="to https://new.example.org/")
    fleet.store.change("archive", sound_at=ago(days=3))
    fleet.store.refused("hook", "500", NOW)
    letters = [DeadLetter(sink="index", number=n, at=NOW, reason="bad", tries=n) for n in range(3)]
    fleet.store.acknowledge("index", 0, letters)  # the first is held back by a rule
    assert fleet.told(free=0) == [
        ("museum", "degraded", False),
        ("maps", "question", False),
        ("museum", "held_back", False),
        ("archive", "stale", False),
        ("archive", "stale", False),
        (None, "disk", False),
        ("hook", "sink", False),
        ("index", "dead_letters", False),
    ]


def test_a_copy_that_never_came_is_out_of_date_too(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, rule("stale:2d"))
    fleet.store.change("maps", life=Life.FIRST_COPY, sound_at=None, life_since=ago(days=3))
    assert fleet.told() == [("maps", "stale", False)]


def test_silence_by_source_and_by_tag(tmp_path: Path) -> None:
    fleet = Fleet(
        tmp_path,
        rule("failing", silent=("museum", "fr"), name="one"),
        rule("failing", tags=("de",), name="two"),
    )
    for one in SOURCES:
        fleet.store.change(one.name, **BAD)
    assert [(one.rule, [each.source for each in one.alerts]) for one in fleet.look()] == [
        ("one", ["archive"]),
        ("two", ["museum"]),
    ]


def test_nothing_is_said_of_the_end_of_what_was_silenced(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, rule("failing", "recovered"))
    fleet.store.change("museum", **BAD)
    assert len(fleet.told()) == 1
    fleet.rules = (rule("failing", "recovered", silent=("de",)),)
    assert fleet.told() == []


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"command": None}, "needs the key `command`"),
        ({"kind": "webhook"}, "needs the key `url`"),
        ({"kind": "mail"}, "needs the key `mail`"),
        ({"on": ("failling",)}, "'failling' is none of "),
        ({"on": ("stale:often",)}, "'stale:often' is none of "),
        ({"on": ("failing:2d",)}, "'failing:2d' is none of "),
        ({"summary": "7 o'clock"}, "is no time of day"),
    ],
)
def test_a_rule_that_could_tell_nothing_is_refused(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        rule("failing", **fields)
    with pytest.raises(msgspec.ValidationError, match=told):
        from_values({"name": "a", "kind": "command", "command": "true", "on": ["failing"]} | fields, AlertRule)


def test_many_alerts_of_one_look_are_one_message(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, rule("failing"))
    for one in SOURCES:
        fleet.store.change(one.name, **BAD)
    (message,) = fleet.look()
    assert message.subject.startswith("3 alerts, the first: ")
    assert message.text.splitlines()[-1] == "3 failing"
    assert len(message.alerts) == 3


def test_a_summary_comes_once_a_day(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, rule("failing", summary="07:00"))
    day = dt.datetime(2026, 12, 1, 9, 0, tzinfo=dt.UTC)
    assert fleet.look(day) == [], "the service was started after the time"
    assert fleet.look(day + dt.timedelta(hours=21)) == []
    fleet.store.change("museum", is_paused=True)
    (message,) = fleet.look(day + dt.timedelta(hours=22, minutes=1))
    assert message.subject == "1 of 3 sources are not well"
    assert message.counts == {"paused": 1, "following": 2}
    assert "museum: paused" in message.text
    assert fleet.look(day + dt.timedelta(hours=23)) == []
    fleet.store.change("museum", is_paused=False)
    assert fleet.look(day + dt.timedelta(days=5))[0].subject == "all sources are well"


# -- delivery

MESSAGE = AlertMessage(
    rule="night",
    at=NOW,
    subject=f"museum: {HOSTILE}\nBcc: x@example.org",
    text="museum: failing",
    alerts=(Alert(condition="failing", text="failing", since=NOW, source="museum"),),
)


def test_a_command_gets_the_alert_as_json(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import os, sys, pathlib\n"
        f"pathlib.Path({str(tmp_path / 'got')!r}).write_text(sys.stdin.read() + os.environ['HEADWATER_ALERT'])\n"
    )
    deliver(rule("failing", command=f"{sys.executable} '{script}'"), MESSAGE)
    got = (tmp_path / "got").read_text()
    assert got.endswith("night")
    found = json.loads(got.removesuffix("night"))
    assert (found["rule"], found["alerts"][0]["source"]) == ("night", "museum")


@pytest.mark.parametrize("command", ["false", "/nowhere/at/all", f"{sys.executable} -c 'import time; time.sleep(99)'"])
def test_a_command_that_fails_is_told(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "SECONDS", 0.5)
    with pytest.raises(AlertNotDelivered) as caught:
        deliver(rule("failing", command=command), MESSAGE)
    assert caught.value.code == "HW-AGG-50"


@contextmanager
def web_hook(status: int) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    got: list[tuple[dict[str, str], bytes]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append(({name.lower(): text for name, text in self.headers.items()}, body))
            self.send_response(status)
            self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_webhook_is_signed() -> None:
    with web_hook(204) as (url, got):
        deliver(AlertRule(name="night", kind="webhook", on=(), url=url, secret="hush"), MESSAGE)
    ((headers, body),) = got
    signed = headers["webhook-timestamp"].encode() + b"." + body
    assert headers["webhook-signature"] == "sha256=" + hmac.new(b"hush", signed, hashlib.sha256).hexdigest()
    assert headers["content-type"] == "application/json"
    assert json.loads(body)["subject"] == MESSAGE.subject


@pytest.mark.parametrize("status", [302, 400, 500])
def test_a_webhook_that_refuses_is_told_once(status: int) -> None:
    with web_hook(status) as (url, got), pytest.raises(AlertNotDelivered):
        deliver(AlertRule(name="night", kind="webhook", on=(), url=url), MESSAGE)
    assert len(got) == 1


def test_a_mail_has_one_line_of_subject_and_no_further_head() -> None:
    mail = AlertRule(name="night", kind="mail", on=(), mail="ops@example.org", sender="us@example.org")
    made = mail_of(mail, MESSAGE)
    text = made.as_bytes()
    assert b"\nBcc:" not in text
    assert made["To"] == "ops@example.org"
    assert str(made["Subject"]).startswith("[Headwater] museum: ")


class _Mailbox(socketserver.StreamRequestHandler):
    """As much of SMTP as a mail needs."""

    got: ClassVar[list[bytes]] = []

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                lines = []
                while (one := self.rfile.readline()) != b".\r\n":
                    lines.append(one)
                self.got.append(b"".join(lines))
            is_last = line.upper().startswith(b"QUIT")
            self.wfile.write(b"221 bye\r\n" if is_last else b"250 yes\r\n")
            if is_last:
                return


def test_a_mail_is_sent() -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _Mailbox) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        smtp = f"127.0.0.1:{server.server_address[1]}"
        mail = AlertRule(name="night", kind="mail", on=(), mail="ops@example.org", sender="us@example.org", smtp=smtp)
        deliver(mail, MESSAGE)
        thread.join(10)
    assert len(_Mailbox.got) == 1
    assert b"museum: failing" in _Mailbox.got[0]
    with pytest.raises(AlertNotDelivered):
        deliver(mail, MESSAGE)


def test_a_delivery_that_fails_is_made_again_with_what_holds_then(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, rule("failing", "recovered"), rule("degraded", name="other"))
    faults: list[HeadwaterError] = []
    delivered: list[tuple[str, list[str | None]]] = []
    is_down = True

    def send(one: AlertRule, message: AlertMessage) -> None:
        if is_down and one.name == "night":
            raise AlertNotDelivered("the alert night could not be delivered: no", where=message.subject)
        delivered.append((one.name, [each.source for each in message.alerts]))

    service = AlertService(fleet.config, fleet.store, on_fault=faults.append, deliver=send)
    fleet.store.change("museum", **BAD)
    fleet.store.change("archive", **BAD)
    fleet.store.change("maps", life=Life.DEGRADED)
    service.look(NOW)
    assert (delivered, len(faults)) == ([("other", ["maps"])], 1)
    service.look(NOW + dt.timedelta(seconds=5))
    assert (len(delivered), len(faults)) == (1, 1), "not before its time, and no other again"
    fleet.store.change("archive", **GOOD)
    is_down = False
    service.look(NOW + dt.timedelta(seconds=60))
    assert delivered[1:] == [("night", ["museum"])], "of the other nothing was told, neither its begin nor its end"
    again = AlertService(fleet.config, fleet.store, on_fault=faults.append, deliver=send)
    for one in (service, again):
        one.look(NOW + dt.timedelta(seconds=600))
    assert len(delivered) == 2
    fleet.store.change("museum", **GOOD)
    again.look(NOW + dt.timedelta(seconds=700))
    assert delivered[2:] == [("night", ["museum"])]


def test_a_store_that_takes_nothing_repeats_no_alert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise StoreFault("the disk is full")

    fleet = Fleet(tmp_path, rule("failing"), rule("failing", name="other"))
    fleet.store.change("museum", **BAD)
    told: list[str] = []
    service = AlertService(fleet.config, fleet.store, deliver=lambda one, _message: told.append(one.name))
    with monkeypatch.context() as patch:
        patch.setattr(type(fleet.store), "keep_fact", full)
        for n in range(3):
            with pytest.raises(StoreFault):
                service.look(NOW + dt.timedelta(seconds=10 * n))
    assert told == ["night", "other"]
    service.look(NOW + dt.timedelta(seconds=60))
    AlertService(fleet.config, fleet.store, deliver=lambda one, _message: told.append(one.name)).look(NOW)
    assert told == ["night", "other"]


@pytest.mark.parametrize("address", ["a@b, <", '"', "a@[", "<@", "a@b\r\nBcc: x@y"])
def test_a_rule_whose_mail_cannot_be_made_silences_no_other(tmp_path: Path, address: str) -> None:
    with socketserver.TCPServer(("127.0.0.1", 0), _Mailbox) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        smtp = f"127.0.0.1:{server.server_address[1]}"
        bad = rule("failing", name="bad", kind="mail", mail=address, smtp=smtp)
        fleet = Fleet(tmp_path, bad, rule("failing", command=f"touch {tmp_path / 'told'}"))
        fleet.store.change("museum", **BAD)
        faults: list[HeadwaterError] = []
        AlertService(fleet.config, fleet.store, on_fault=faults.append).look(NOW)
        assert [one.code for one in faults] == ["HW-AGG-50"]
        assert (tmp_path / "told").exists()
        with pytest.raises(AlertNotDelivered):
            check_mail(bad)
        server.shutdown()


def test_a_store_that_fails_does_not_end_the_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(tmp_path, rule("failing"))
    monkeypatch.setattr(alerts, "_LOOK_SECONDS", 0.01)
    heard = threading.Event()
    faults: list[HeadwaterError] = []

    def hear(fault: HeadwaterError) -> None:
        faults.append(fault)
        if len(faults) > 2:
            heard.set()

    monkeypatch.setattr(type(fleet.store), "fact", lambda *_: 1 / 0)
    service = AlertService(fleet.config, fleet.store, on_fault=hear)
    service.start()
    assert heard.wait(20)
    service.stop()
