"""Delivers alerts by command, webhook or mail, in a thread: what fails is told, kept, and tried again.

A message is kept before it is sent, so that a kill delivers it twice rather than never.
"""

from __future__ import annotations

import datetime as dt
import email.message
import hashlib
import shlex
import smtplib
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from typing import ClassVar, Final
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from headwater.aggregator.alerts import AlertMemory, AlertMessage, WaitingMessage, judge
from headwater.aggregator.configuration import AggregatorConfig, AlertRule
from headwater.aggregator.sink_kinds import post_signed, run_command
from headwater.aggregator.status import read_fleet
from headwater.aggregator.store import AggregatorStore
from headwater.errors import HeadwaterError, StoreFault, as_fault
from headwater.retry import Backoff
from headwater.typed_decoding import from_json

SECONDS: Final = 30
"""How long a command, a server or a mail server may take."""

_MEMORY: Final = "alerts"
_LOOK_SECONDS: Final = 10.0
_END_SECONDS: Final = 3.0
_AGAIN: Final = Backoff(first=30.0, longest=3_600.0)
_MOST_TRIES: Final = 50  # about two days
_MOST_WAITING: Final = 1_000


class AlertNotDelivered(StoreFault):
    """An alert could not be delivered: the command, the server or the mail server does not take it."""

    code: ClassVar[str] = "HW-AGG-50"


def deliver(rule: AlertRule, message: AlertMessage) -> None:
    """Deliver a message by the way of its rule. Raises AlertNotDelivered."""
    body = msgspec.json.encode(message)
    try:
        if rule.kind == "command":
            _run(rule.command or "", message, body)
        elif rule.kind == "webhook":
            _post(rule, body)
        else:
            _mail(rule, message)
    except (OSError, ValueError, subprocess.SubprocessError, smtplib.SMTPException, HeadwaterError) as cause:
        what = f"the alert {rule.name} could not be delivered: {_said(cause)}"
        raise AlertNotDelivered(what, where=message.subject) from cause


def _said(cause: Exception) -> str:
    if isinstance(cause, HeadwaterError):
        return cause.what
    if isinstance(cause, subprocess.TimeoutExpired):
        return f"the command ran for more than {SECONDS} s"
    return (str(cause) or type(cause).__name__)[:300]


def _run(command: str, message: AlertMessage, body: bytes) -> None:
    """Run a command with the message as JSON on its standard input, and its first line in HEADWATER_ALERT."""
    variables = {"HEADWATER_ALERT": message.rule, "HEADWATER_SUBJECT": message.subject.replace("\0", "")}
    if failed := run_command(shlex.split(command), body, SECONDS, variables):
        raise ValueError(failed)


def _post(rule: AlertRule, body: bytes) -> None:
    answer = post_signed(rule.url or "", body, rule.secret, SECONDS)
    if not answer.ok:
        failed = answer.failure.text if answer.failure else "no answer"
        raise ValueError(f"HTTP status {answer.status}" if answer.status else failed)


def mail_of(rule: AlertRule, message: AlertMessage) -> email.message.EmailMessage:
    """The mail of a message. No text of a source gets into its head but as the subject, in one line."""
    made = email.message.EmailMessage()
    made["Subject"] = "[Headwater] " + " ".join(message.subject.split())
    made["From"] = rule.sender or f"headwater@{socket.getfqdn()}"
    made["To"] = rule.mail or ""
    made["Date"] = message.at
    made["Message-ID"] = f"<{hashlib.sha256(msgspec.json.encode(message)).hexdigest()[:32]}@headwater>"
    made["Auto-Submitted"] = "auto-generated"
    made.set_content(message.text)
    return made


def _mail(rule: AlertRule, message: AlertMessage) -> None:
    """Send a mail by `smtp`: `host`, `host:25`, `smtp://user:password@host:587` or `smtps://…`."""
    text = rule.smtp or "localhost"
    parts = urlsplit(text if "://" in text else f"smtp://{text}")
    host, context = parts.hostname or "localhost", ssl.create_default_context()
    client: smtplib.SMTP
    if parts.scheme == "smtps":
        client = smtplib.SMTP_SSL(host, parts.port or 465, timeout=SECONDS, context=context)
    else:
        client = smtplib.SMTP(host, parts.port or 25, timeout=SECONDS)
    with client:
        client.ehlo_or_helo_if_needed()
        if parts.scheme == "smtp" and client.has_extn("starttls"):
            client.starttls(context=context)
        if parts.username is not None:
            if parts.scheme == "smtp" and not client.has_extn("starttls") and host != "localhost":
                raise ValueError("the mail server offers no TLS, and gets no password without it")
            client.login(unquote(parts.username), unquote(parts.password or ""))
        client.send_message(mail_of(rule, message))


class AlertService:
    """Looks at the fleet again and again, and delivers what is to be told, in a thread of its own."""

    def __init__(
        self,
        config: AggregatorConfig,
        store: AggregatorStore,
        *,
        on_fault: Callable[[HeadwaterError], None] = lambda _fault: None,
        deliver: Callable[[AlertRule, AlertMessage], None] = deliver,
    ) -> None:
        """`on_fault` hears of each failed delivery. `deliver` may be another one in tests."""
        self.config = config
        """May be replaced by a newer one at any time."""

        self._store = store
        self._on_fault = on_fault
        self._deliver = deliver
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def stop(self) -> None:
        """End soon. A delivery that takes longer is given up, and made again by the next service."""
        self._stopped.set()
        self._thread.join(_END_SECONDS)

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                self.look(dt.datetime.now(dt.UTC))
            except Exception as error:  # noqa: BLE001 - a look that fails is followed by the next one
                self._on_fault(as_fault(error))
            self._stopped.wait(_LOOK_SECONDS)

    def look(self, now: dt.datetime) -> None:
        """Look once, and deliver what is due. Raises StoreFault."""
        rules = self.config.alerts
        if not rules:
            return
        kept = self._store.fact(_MEMORY)
        before = AlertMemory() if kept is None else from_json(kept, AlertMemory)
        memory = judge(rules, read_fleet(self.config, self._store, is_alive=True), before, now.astimezone())
        memory = replace(memory, waiting=memory.waiting[-_MOST_WAITING:])
        self._keep(memory, before)
        named = {one.name: one for one in rules}
        for waiting in memory.waiting:
            if self._stopped.is_set():
                return
            if waiting.next_at is None or waiting.next_at <= now:
                left = self._try(named[waiting.message.rule], waiting, now)
                others = [one if one is not waiting else left for one in memory.waiting]
                after = replace(memory, waiting=tuple(one for one in others if one is not None))
                self._keep(after, memory)
                memory = after

    def _try(self, rule: AlertRule, waiting: WaitingMessage, now: dt.datetime) -> WaitingMessage | None:
        """Deliver a message; returns it as it waits on where that fails, None where it waits no more."""
        try:
            self._deliver(rule, waiting.message)
        except AlertNotDelivered as fault:
            self._on_fault(fault)
            tries = waiting.tries + 1
            if tries >= _MOST_TRIES:
                return None
            return replace(waiting, tries=tries, next_at=now + dt.timedelta(seconds=_AGAIN.seconds(tries)))
        return None

    def _keep(self, memory: AlertMemory, before: AlertMemory) -> None:
        if memory != before:
            self._store.keep_fact(_MEMORY, msgspec.json.encode(memory).decode())
