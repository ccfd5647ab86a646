"""Alerts of a service: which conditions of the rules hold, what is told of them by command, webhook or mail.

Each condition is told once when it begins, and once when it is over where the rule has `recovered`. A rule remembers
what it has delivered, and tells the difference to that: what could not be delivered is not remembered, so that a later
look tells what holds then. What is told at one look is one message. A kill delivers it twice rather than never.
"""

from __future__ import annotations

import datetime as dt
import email.message
import hashlib
import shlex
import smtplib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import ClassVar, Final
from urllib.parse import unquote, urlsplit

import msgspec
from msgspec.structs import replace

from headwater.aggregator.configuration import AggregatorConfig, AlertRule
from headwater.aggregator.sink_kinds import post_signed, run_command
from headwater.aggregator.status import FleetStatus, SinkStatus, SourceStatus, SourceVerdict, read_fleet
from headwater.aggregator.store import AggregatorStore, Life
from headwater.errors import HeadwaterError, StoreFault, as_fault
from headwater.quantities import counted, human_octets, human_seconds, printable, seconds_from
from headwater.retry import Backoff
from headwater.spec.records import ToDict
from headwater.typed_decoding import from_json

RECOVERED: Final = "recovered"
SECONDS: Final = 30
"""How long a command, a server or a mail server may take."""

_MOST_LINES: Final = 50
_LONGEST: Final = 300
_MEMORY: Final = "alerts"
_LOOK_SECONDS: Final = 10.0
_END_SECONDS: Final = 3.0
_PAUSES: Final = Backoff(first=30.0, longest=3_600.0)


class Alert(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """A condition that has begun, or (`is_over`) is over; `source` or `sink` names whose it is, or neither: of all."""

    condition: str
    text: str
    since: dt.datetime
    is_over: bool = False
    source: str | None = None
    sink: str | None = None


class AlertMessage(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """What is delivered of one rule at one time: alerts, or a summary, which has sources by state as `counts`."""

    rule: str
    at: dt.datetime
    subject: str
    text: str
    alerts: tuple[Alert, ...] = ()
    counts: dict[str, int] = {}


class RuleMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What a rule has delivered: the alerts that hold, by condition; the day of its last summary."""

    told: dict[str, Alert] = {}
    summary_on: str = ""


class AlertNotDelivered(StoreFault):
    """An alert could not be delivered: the command, the server or the mail server does not take it."""

    code: ClassVar[str] = "HW-AGG-50"


# which conditions hold


def _stale(source: SourceStatus, seconds: float, now: dt.datetime) -> str:
    if not seconds:
        return "no sound run for too long" if source.verdict is SourceVerdict.STALE else ""
    since = source.sound_at or source.life_since
    age = 0.0 if since is None else (now - since).total_seconds()
    return f"no sound run for {human_seconds(age)}" if age > seconds else ""


def _failing(source: SourceStatus, _amount: float, _now: dt.datetime) -> str:
    is_so = source.life in (Life.FAILING, Life.DEAD)
    return f"failing: {source.reason or 'no reason is known'}" if is_so else ""


_OF_SOURCES: Final[Mapping[str, Callable[[SourceStatus, float, dt.datetime], str]]] = {
    "failing": _failing,
    "dead": lambda one, _amount, _now: f"dead: {one.reason}" if one.life is Life.DEAD else "",
    "degraded": lambda one, _amount, _now: f"degraded: {one.reason}" if one.life is Life.DEGRADED else "",
    "question": lambda one, _amount, _now: (
        f"{one.question}: {one.question_text}" if one.verdict is SourceVerdict.QUESTION else ""
    ),
    "held_back": lambda one, _amount, _now: f"{counted(one.held_back, 'change')} held back" if one.held_back else "",
    "defects": lambda one, amount, _now: counted(one.defects, "defect") if one.defects >= max(1, amount) else "",
    "stale": _stale,
}
"""What each word of `on` says of a source, empty where it does not hold; the amount stands behind a colon."""


def _sink(sink: SinkStatus, seconds: float) -> str:
    if sink.lag_seconds > seconds > 0:
        return f"{human_seconds(sink.lag_seconds)} behind"
    return f"fails: {sink.failure}" if sink.failures and not seconds else ""


_OF_SINKS: Final[Mapping[str, Callable[[SinkStatus, float], str]]] = {
    "sink": _sink,
    "dead_letters": lambda one, amount: counted(one.refused, "dead letter") if one.refused >= max(1, amount) else "",
}
"""The same of a sink."""


def _watched(rule: AlertRule, fleet: FleetStatus) -> dict[str, SourceStatus]:
    """The sources of which a rule says something: followed, with one of its tags, and neither name nor tag silent."""
    return {
        one.name: one
        for one in fleet.sources
        if one.verdict is not SourceVerdict.RETIRED
        and not {one.name, *one.tags} & set(rule.silent)
        and (not rule.tags or set(rule.tags) & set(one.tags))
    }


def conditions(rule: AlertRule, fleet: FleetStatus) -> Iterator[tuple[str, Alert]]:
    """The conditions of a rule that hold, each with a key of its own."""
    now, sources = fleet.time, _watched(rule, fleet)
    for word in rule.on:
        name, _, text = word.partition(":")
        amount = seconds_from(text) or 0.0
        if (of_source := _OF_SOURCES.get(name)) is not None:
            for source in sources.values():
                if text := of_source(source, amount, now):
                    yield f"{word} {source.name}", Alert(condition=name, text=text, since=now, source=source.name)
        elif (of_sink := _OF_SINKS.get(name)) is not None:
            for sink in fleet.sinks:
                if text := of_sink(sink, amount):
                    yield f"{word} {sink.name}", Alert(condition=name, text=text, since=now, sink=sink.name)
        elif name == "disk" and fleet.is_full:
            yield word, Alert(condition=name, text=f"only {human_octets(fleet.free_octets)} are free", since=now)


# what is told


def judge(
    rule: AlertRule, fleet: FleetStatus, memory: RuleMemory, local: dt.datetime
) -> tuple[AlertMessage | None, RuleMemory]:
    """What a rule has to tell at a look, if anything, and what it remembers once that is delivered.

    `local`: the time of day where the service runs. A summary comes at a look that has nothing else to tell.
    """
    holding = {key: memory.told.get(key, alert) for key, alert in conditions(rule, fleet)}
    news = [alert for key, alert in holding.items() if key not in memory.told]
    if RECOVERED in rule.on:
        named = {None, *_watched(rule, fleet)}  # nothing is said of the end of what is silent by now
        ended = [alert for key, alert in memory.told.items() if key not in holding and alert.source in named]
        news += [replace(alert, is_over=True) for alert in ended]
    after = replace(memory, told=holding)
    if news:
        return _message(rule, fleet, news), after
    day, time = f"{local:%Y-%m-%d}", f"{local:%H:%M}"
    if not rule.summary or time < rule.summary or memory.summary_on == day:
        return None, after
    is_late = not memory.summary_on and time > rule.summary  # the service was started after the time
    return None if is_late else _summary(rule, fleet), replace(after, summary_on=day)


def _message(rule: AlertRule, fleet: FleetStatus, news: Sequence[Alert]) -> AlertMessage:
    lines = [_line(one) for one in news]
    subject = lines[0] if len(news) == 1 else f"{len(news):,} alerts, the first: {lines[0]}"
    text = "\n".join((*_some(lines), "", _counts(fleet)))
    return AlertMessage(rule=rule.name, at=fleet.time, subject=subject[:_LONGEST], text=text, alerts=tuple(news))


def _summary(rule: AlertRule, fleet: FleetStatus) -> AlertMessage:
    wrong = [one for one in _watched(rule, fleet).values() if one.verdict is not SourceVerdict.FOLLOWING]
    lines = [
        printable(f"{one.name}: {one.verdict}" + (f", {one.reason}" if one.reason else ""))[:_LONGEST] for one in wrong
    ]
    sinks = [f"sink {one.name}: {one.waiting:,} events behind" for one in fleet.sinks if one.waiting]
    subject = f"{len(wrong):,} of {len(fleet.sources):,} sources are not well" if wrong else "all sources are well"
    text = "\n".join((_counts(fleet), "", *_some(lines), *sinks))
    return AlertMessage(rule=rule.name, at=fleet.time, subject=subject, text=text, counts=fleet.counts)


def _line(alert: Alert) -> str:
    whose = alert.source or (f"sink {alert.sink}" if alert.sink else "the service")
    over = f"no longer {alert.condition.replace('_', ' ')}" if alert.is_over else alert.text
    return printable(f"{whose}: {over}")[:_LONGEST]


def _some(lines: Sequence[str]) -> list[str]:
    left = len(lines) - _MOST_LINES
    return [*lines[:_MOST_LINES], *([f"… and {left:,} more"] if left > 0 else [])]


def _counts(fleet: FleetStatus) -> str:
    return ", ".join(f"{count:,} {verdict}" for verdict, count in fleet.counts.items())


# how it is delivered


def deliver(rule: AlertRule, message: AlertMessage) -> None:
    """Deliver a message by the way of its rule. Raises AlertNotDelivered.

    A command gets the message as JSON on its standard input, the name of the rule in HEADWATER_ALERT, and the subject
    in HEADWATER_SUBJECT.
    """
    body = msgspec.json.encode(message)
    with _faults_of(rule, message.subject):
        if rule.kind == "command":
            told = {"HEADWATER_ALERT": message.rule, "HEADWATER_SUBJECT": message.subject.replace("\0", "")}
            run_command(shlex.split(rule.command or ""), body, SECONDS, told)
        elif rule.kind == "webhook":
            post_signed(rule.url or "", body, rule.secret, SECONDS)
        else:
            with _mail_server(rule) as client:
                client.send_message(mail_of(rule, message))


def check_mail(rule: AlertRule) -> None:
    """Make a mail of a rule, and ask its mail server whether it would take mails. Raises AlertNotDelivered."""
    with _faults_of(rule, rule.name):
        mail_of(rule, AlertMessage(rule=rule.name, at=dt.datetime.now(dt.UTC), subject="", text="")).as_bytes()
        with _mail_server(rule):
            pass


@contextmanager
def _faults_of(rule: AlertRule, where: str) -> Iterator[None]:
    try:
        yield
    except Exception as cause:  # addresses of mails have the library raise whatever it likes
        said = cause.what if isinstance(cause, HeadwaterError) else (str(cause) or type(cause).__name__)[:_LONGEST]
        what = f"the alert {rule.name} could not be delivered: {said}"
        raise AlertNotDelivered(what, where=where) from cause


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


@contextmanager
def _mail_server(rule: AlertRule) -> Iterator[smtplib.SMTP]:
    """The mail server of `smtp`: `host`, `host:25`, `smtp://user:password@host:587` or `smtps://…`."""
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
        yield client


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
        self._store, self._on_fault, self._deliver = store, on_fault, deliver
        self._memory: dict[str, RuleMemory] | None = None  # by rule; read from the store once
        self._kept: str | None = None  # what of it the store has
        self._failures: dict[str, tuple[int, dt.datetime]] = {}  # of a rule, and when it tells again
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._work, name="alerts", daemon=True)

    def use(self, config: AggregatorConfig) -> None:
        """Tell by this configuration from now on."""
        self.config = config

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
        """Look once, and deliver what is to be told. Raises StoreFault."""
        rules = self.config.alerts
        if not rules:
            return
        if self._memory is None:
            self._kept = self._store.fact(_MEMORY)
            self._memory = {} if self._kept is None else from_json(self._kept, dict[str, RuleMemory])
        self._memory = memory = {rule.name: self._memory.get(rule.name, RuleMemory()) for rule in rules}
        fleet = read_fleet(self.config, self._store, is_alive=True)
        for rule in rules:
            failures, again_at = self._failures.get(rule.name, (0, now))
            if self._stopped.is_set() or again_at > now:
                continue
            try:
                message, after = judge(rule, fleet, memory[rule.name], now.astimezone())
                if message is not None:
                    self._deliver(rule, message)
                    self._failures.pop(rule.name, None)
                memory[rule.name] = after
            except Exception as error:  # noqa: BLE001  one rule silences no other
                pause = dt.timedelta(seconds=_PAUSES.seconds(failures + 1))
                self._failures[rule.name] = failures + 1, now + pause
                self._on_fault(as_fault(error))
        if (told := msgspec.json.encode(memory).decode()) != self._kept:
            self._store.keep_fact(_MEMORY, told)
            self._kept = told
