"""Publishes the copies of a service again: `[publish]` in aggregate.toml.

The service writes the configuration of a source, with a set for each set of each copy, and runs `headwater serve` with
it as a process of its own, which follows the copies by their journals. What a source fails in changes nothing of what
is published; its set says in its title since when nothing is proved. The service holds the socket: while the process is
started again, because there are other sets or because it died, requests wait.

Left out: one Resource List over several copies. A tag is a Source Description of its sets.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from subprocess import DEVNULL, PIPE
from typing import Final, NamedTuple

from headwater.aggregator.configuration import AggregatorConfig, FollowedSource, PublishRule, listen_address
from headwater.aggregator.status import PUBLISH_FAULT
from headwater.aggregator.store import AggregatorStore, Life, Retirement, SourceState
from headwater.errors import HeadwaterError, as_fault
from headwater.http.server import address_url, listen
from headwater.progress import Listener, Notice
from headwater.retry import Backoff
from headwater.source.set_folders import free_name, names_in_copy, plain_name
from headwater.storage.durable import replace_file

FOLDER: Final = "published"  # below the home of the service: configuration and state of the source
_NAMES: Final = "names of published sets"
LOOK_SECONDS: Final = 2.0
READ_SECONDS: Final = 600.0
"""After this time a copy that is published is asked again which sets it has."""
PAUSE_SECONDS: Final = 10.0
"""Least time between two starts of the process."""
_END_SECONDS: Final = 30.0


class RepublishedSet(NamedTuple):
    """A set that is published: of which source, and its name in the copy."""

    name: str
    source: str
    copy_set: str
    title: str


def is_published(state: SourceState, source: FollowedSource | None, rule: PublishRule) -> bool:
    """Whether the copy of a source is published: all are, or those with one of the rule's tags; none that is deleted.

    A source that is paused or fails stays published; so does one that is no longer in the file, unless the rule has
    tags.
    """
    if state.retirement is Retirement.DELETE:
        return False
    return not rule.tags or (source is not None and bool(set(rule.tags) & set(source.tags)))


def title_of(state: SourceState, source: FollowedSource | None) -> str:
    """The title of the source's sets; of one that fails or is frozen with the day of which it is proved."""
    title = (source.title if source is not None else "") or state.name
    day = f"{state.sound_at:%Y-%m-%d}" if state.sound_at is not None else None
    if state.retirement is Retirement.FREEZE:
        return f"{title} (no longer followed; as of {day or 'an unknown day'})"
    if state.life in (Life.FAILING, Life.DEAD):
        return f"{title} (the source fails; as of {day})" if day else f"{title} (the source fails; never proved)"
    return title


def named_sets(
    held: Mapping[str, Sequence[str]], titles: Mapping[str, str], names: dict[tuple[str, str], str]
) -> list[RepublishedSet]:
    """The sets to publish, given the names of the sets of each copy: what has one of the `names` keeps it.

    The first set of a copy has the name of its source, the others SOURCE-SET; new ones are put to the `names`.
    """
    taken, known = set(names.values()), {source for source, _ in names}
    found = []
    for source, sets in sorted(held.items()):
        for copy_set in sets:
            if (source, copy_set) not in names:
                name = free_name(f"{source}-{copy_set}" if source in known else source, taken)
                names[source, copy_set] = name
                taken.add(name)
                known.add(source)
            title = titles[source] if len(sets) == 1 else f"{titles[source]}: {copy_set}"
            found.append(RepublishedSet(names[source, copy_set], source, copy_set, title))
    return found


def groups_of(sets: Sequence[RepublishedSet], sources: Sequence[FollowedSource]) -> dict[str, list[str]]:
    """The names of the sets of each tag."""
    tags = {one.name: one.tags for one in sources}
    found: dict[str, list[str]] = {}
    for one in sets:
        for tag in tags.get(one.source, ()):
            found.setdefault(plain_name(tag), []).append(one.name)
    return found


def source_configuration(config: AggregatorConfig, rule: PublishRule, base_url: str, sets: list[RepublishedSet]) -> str:
    """The configuration of the source that publishes these sets, as TOML."""
    tables = [
        {"name": one.name, "title": one.title, "copy": str(config.state / one.source), "copy_set": one.copy_set}
        for one in sets
    ]
    whole = rule.source(config.home / FOLDER / "state", base_url, tables)
    if groups := groups_of(sets, config.sources):
        whole["groups"] = groups
    return "".join(f"{key} = {_toml(value)}\n" for key, value in whole.items())


def _toml(value: object) -> str:
    """A value as TOML has it in one line: as JSON, but for tables and one character."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(key)} = {_toml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value).replace("\x7f", "\\u007f")


class Republisher:
    """Runs the source of a service's copies, from `start` to `stop`, by a thread of its own.

    Notices: HW-AGG-70, the process ended. Raises AddressInUse when it is made.
    """

    def __init__(self, config: AggregatorConfig, store: AggregatorStore, listener: Listener) -> None:
        self._store = store
        self._listener = listener
        assert config.publish is not None
        self._rule = config.publish
        self._socket = listen(*listen_address(self._rule.listen))
        self.url = (self._rule.base_url or address_url(self._socket)).rstrip("/")
        self._config = config
        self._end = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._read: dict[str, tuple[float, tuple[str, ...]]] = {}  # when a copy was asked for its sets, and these
        self._text = ""  # the configuration that the process has
        self._next_start = 0.0
        self._deaths = 0
        self._thread = threading.Thread(target=self._run, name="headwater-publish", daemon=True)

    def use(self, config: AggregatorConfig) -> None:
        """Publish as this configuration says from now on; address and base URL stay those of the start."""
        self._config = config
        if config.publish is not None:
            self._rule = config.publish

    def start(self) -> None:
        """Begin to publish; a fault of the store or the disk is told once, and tried again."""
        self._thread.start()

    def stop(self) -> None:
        """End the process in order."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        told = ""
        try:
            while not self._end.wait(LOOK_SECONDS):
                try:
                    self.look()
                    told = ""
                except (HeadwaterError, OSError) as error:
                    fault = as_fault(error)
                    if fault.what != told:
                        self._listener(Notice(fault.code, fault.what, fault.where))
                    told = fault.what
        finally:
            self._stop_process()
            self._socket.close()

    def look(self) -> None:
        """Start the process anew if it died or if other sets are to be published."""
        now = time.monotonic()
        if self._process is not None and (status := self._process.poll()) is not None:
            self._stop_process()
            self._deaths += 1
            self._next_start = now + Backoff(2 * PAUSE_SECONDS, 300.0).seconds(self._deaths)
            what = f"the process that publishes ended with status {status}"
            self._listener(Notice("HW-AGG-70", what, self.url))
            self._store.keep_fact(PUBLISH_FAULT, what)
        elif self._process is not None and self._store.fact(PUBLISH_FAULT):
            self._store.keep_fact(PUBLISH_FAULT, None)
        if now < self._next_start:
            return
        text = self._wanted(now)
        if not text or (text == self._text and self._process is not None):
            return
        if self._process is not None:
            self._deaths = 0
        self._stop_process()
        place = self._config.home / FOLDER / "source.toml"
        place.parent.mkdir(parents=True, exist_ok=True)
        replace_file(place, [text.encode()], ".source-")
        number = self._socket.fileno()
        options = ["serve", str(place), "--quiet", "--inherited", str(number)]
        command = [sys.executable, "-m", "headwater", *options]
        self._process = subprocess.Popen(command, stdin=PIPE, stdout=DEVNULL, pass_fds=[number])
        self._text, self._next_start = text, now + PAUSE_SECONDS

    def _wanted(self, now: float) -> str:
        """The configuration to publish by; empty while there is no copy."""
        config, rule = self._config, self._rule
        sources = {one.name: one for one in config.sources}
        states = [one for one in self._store.sources() if is_published(one, sources.get(one.name), rule)]
        held = {one.name: several for one in states if (several := self._sets_of(one.name, now))}
        if not held:
            return ""
        kept = self._store.fact(_NAMES) or "[]"
        names = {(source, copy_set): name for source, copy_set, name in json.loads(kept)}
        titles = {one.name: title_of(one, sources.get(one.name)) for one in states}
        sets = named_sets(held, titles, names)
        if (told := json.dumps([(*key, name) for key, name in names.items()])) != kept:
            self._store.keep_fact(_NAMES, told)
        return source_configuration(config, rule, self.url, sets)

    def _sets_of(self, source: str, now: float) -> tuple[str, ...]:
        """The names of the sets of a copy; those known before, where it cannot be read."""
        at, known = self._read.get(source, (-READ_SECONDS, ()))
        if known and now - at < READ_SECONDS:
            return known
        with suppress(HeadwaterError):  # the health of the process that publishes says so
            known = tuple(names_in_copy(self._config.state / source).values())
        self._read[source] = now, known
        return known

    def _stop_process(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()  # it ends in order, as it does when this process dies
        try:
            process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
