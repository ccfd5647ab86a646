"""`headwater ingest`: takes announced records into a set, from files, a pipe, or a harvester's index."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import click

from headwater.cli.face import json_document, json_line, json_option, listening
from headwater.cli.share import Share
from headwater.errors import Exit, UsageFault

if TYPE_CHECKING:
    from headwater.catalog.interface import Catalog
    from headwater.ingest.feed import Feed, Outcome
    from headwater.progress import Listener
    from headwater.server.config import SetConfig

Command = TypeVar("Command", bound=Callable[..., Any])
_BLOCK = 1 << 20
_FOREVER = 1 << 50
_DOCUMENT_OCTETS = 64 << 20
"""A search answer saved to a file is one line."""


@click.group(name="ingest", short_help="Take announced records into a set.")
def command() -> None:
    """Take records into a set that has no folder: events as lines of JSON, or documents of the DIT-ES protocol.

    A source that is being served has its state folder for itself: then announce by HTTP, or let it follow the index.
    """


def _feeding(function: Command) -> Command:
    """Options by which a set is found."""
    for option in (
        click.option("--dry-run", is_flag=True, help="Say what would be refused; record nothing."),
        click.option("--keep-loading", is_flag=True, help="With --load: do not open the set, there is more to come."),
        click.option(
            "--load",
            is_flag=True,
            help="Fill a new set: nothing is logged as a change, and the set is opened at the end.",
        ),
        click.option("--resource-root", metavar="DIR", help="The folder that absolute paths in records are below."),
        click.option("--url-prefix", metavar="URL", help="The URL that paths in records are below."),
        click.option(
            "--catalog", metavar="PLACE", help="The catalog: a file or a cluster's URL.  [default: in the state folder]"
        ),
        click.option(
            "--state",
            type=click.Path(file_okay=False, path_type=Path),
            metavar="DIR",
            help="Where positions, keys and what waits are kept.",
        ),
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            metavar="FILE",
            help="The source's configuration: it says all of the following.",
        ),
        click.option("--set", "set_name", required=True, metavar="NAME", help="The set that is fed."),
    ):
        function = option(function)
    return json_option(function)


@command.command(name="events")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@click.option("--key", metavar="TEXT", help="Repeated with the same key, the same lines are taken only once.")
@_feeding
def events(files: tuple[str, ...], key: str | None, as_json: bool, **options: Any) -> Exit:
    """Take events, one JSON object a line, from FILEs (also gzip) or standard input (-).

    Exit statuses: 0 done; 2 usage; 4 done, but some lines were refused; 6 fault of our own store.
    """
    from headwater.ingest.event_intake import Summary, read_lines
    from headwater.ingest.lines import Lines
    from headwater.ingest.submission import Submission, SubmissionLimits

    limits = SubmissionLimits(octets=_FOREVER, lines=_FOREVER, ratio=1_000)
    total = Summary()
    if key is not None and len(files) > 1:
        raise UsageFault("one key is for one file")
    with listening() as listener, _fed(options, listener) as feed:
        hear = _hearer(listener)
        for name in files:
            with _opened(name) as file:
                if options["dry_run"]:
                    lines = Lines(octets=_FOREVER, ratio=1_000)
                    for block in _blocks(file):
                        batch = list(lines.push(block))
                        refused = read_lines(feed, batch)[1]
                        total.lines += len(batch)
                        total.rejected += len(refused)
                        hear(refused)
                    continue
                submission = Submission(feed, key, limits, hear)
                for block in _blocks(file):
                    submission.push(block)
                submission.finish()
                total.add(submission.summary)
        _end_load(feed, options)
    words = "would refuse" if options["dry_run"] else "refused"
    return _told(as_json, total, f"{total.lines:,} lines: {total.taken:,} taken, {total.ignored:,} no news, "
                 f"{words} {total.rejected:,}", total.rejected)  # fmt: skip


@command.command(name="dit")
@click.argument("source", metavar="INDEX-URL|FILE|-")
@click.option(
    "--resource-set",
    "resource_sets",
    multiple=True,
    metavar="NAME",
    help="The set's name in the documents (may be repeated); * for any.  [default: the set's name]",
)
@click.option("--once", is_flag=True, help="Read what is there now and end; the default for a file.")
@click.option(
    "--follow",
    type=click.FloatRange(min=0.1),
    metavar="SECONDS",
    help="Look again so often, until Ctrl-C.  [default: 1]",
)
@click.option(
    "--audit",
    is_flag=True,
    help="Compare the whole index with the set, and repair what differs; then end.",
)
@click.option(
    "--max-delete",
    type=Share(),
    default="20%",
    show_default=True,
    metavar="SHARE",
    help="With --audit: hold deletions back when more than this share of the set is no longer in the index.",
)
@_feeding
def dit(
    source: str,
    resource_sets: tuple[str, ...],
    once: bool,
    follow: float | None,
    audit: bool,
    max_delete: float,
    as_json: bool,
    **options: Any,
) -> Exit:
    """Take documents of the DIT-ES protocol from an index that a harvester writes, or from a FILE of exported ones.

    INDEX-URL is like http://host:9200/omtd-resourcesync (also https, and a user:password@; credentials stand better in
    HEADWATER_CLUSTER_USER, _PASSWORD, _API_KEY). The index is only read. Into a new set its resources are loaded first;
    from then on every document is taken once, however often the command is ended and begun again.

    Exit statuses: 0 done; 2 usage; 3 the index; 4 done, but some documents were refused or deletions held back;
    6 fault of our own store.
    """
    from headwater.ingest.index_place import is_index

    if (once or audit) and follow is not None:
        raise UsageFault("--once and --audit end, and --follow does not")
    options["snapshot"] = is_index(source)
    with listening() as listener, _fed(options, listener) as feed:
        names = resource_sets or options["names"] or (feed.name,)
        wanted = None if "*" in names else frozenset(names)
        if not is_index(source):
            return _from_file(source, feed, wanted, listener, as_json, options)
        if audit:
            return _audited(source, feed, wanted, max_delete, listener, as_json)
        if options["dry_run"]:
            raise UsageFault("--dry-run is for files: to read an index changes nothing but the set")
        return _from_index(source, feed, wanted, None if once else follow or 1.0, listener, as_json)


def _from_file(
    name: str,
    feed: Feed,
    wanted: frozenset[str] | None,
    listener: Listener,
    as_json: bool,
    options: dict[str, Any],
) -> Exit:
    from headwater.ingest.dit_intake import settle
    from headwater.ingest.dit_submission import DitSubmission
    from headwater.ingest.submission import SubmissionLimits

    def route(resource_set: str | None) -> Feed | None:
        return feed if wanted is None or resource_set is None or resource_set in wanted else None

    submission = DitSubmission(
        route,
        SubmissionLimits(octets=_FOREVER, lines=_FOREVER, ratio=1_000),
        line_octets=_DOCUMENT_OCTETS,
        keep=False,
        dry_run=options["dry_run"],
        listener=listener,
    )
    with _opened(name) as file:
        for block in _blocks(file):
            submission.push(block)
        submission.finish()
    _end_load(feed, options)
    if not options["dry_run"]:
        settle(feed, None)
    tally = submission.tally
    return _told(as_json, tally, tally.words, tally.rejected)


def _audited(
    url: str, feed: Feed, wanted: frozenset[str] | None, max_delete: float, listener: Listener, as_json: bool
) -> Exit:
    from headwater.catalog.places import credentials_from
    from headwater.ingest.dit_audit import audit
    from headwater.ingest.dit_follower import DitFollower
    from headwater.ingest.index_place import index_at

    follower = DitFollower(feed, index_at(url, listener, credentials_from(os.environ)), wanted, listener=listener)
    found = audit(follower, max_delete)
    words = (
        f"{found.resources:,} resources in the index; repaired {found.repaired:,}, of these {found.deleted:,} deleted"
    )
    if found.held_back:
        words += f"\n  deletions held back: {found.held_back}\n  do: look at the index; consent with --max-delete 1"
    held_back = str(found.held_back) if found.held_back else None
    return _told(
        as_json,
        {"resources": found.resources, "repaired": found.repaired, "deleted": found.deleted, "held_back": held_back},
        words,
        found.held_back is not None,
    )


def _from_index(
    url: str, feed: Feed, wanted: frozenset[str] | None, pause: float | None, listener: Listener, as_json: bool
) -> Exit:
    from headwater.catalog.places import credentials_from
    from headwater.ingest.dit_follower import DitFollower
    from headwater.ingest.dit_intake import PATIENCE
    from headwater.ingest.index_place import index_at

    follower = DitFollower(feed, index_at(url, listener, credentials_from(os.environ)), wanted, listener=listener)
    if pause is None:
        while follower.poll():
            pass
        if follower.waits:  # the other of a pair may be on its way
            time.sleep(PATIENCE.total_seconds())
            follower.poll()
        return _told(as_json, follower.tally, follower.tally.words, follower.tally.rejected)
    while True:
        if follower.poll():
            if as_json:
                json_line(follower.tally)
                sys.stdout.flush()
            else:
                click.echo(follower.tally.words)
            continue
        time.sleep(pause)


@contextmanager
def _fed(options: dict[str, Any], listener: Listener) -> Iterator[Feed]:
    """The set's feed, with the state folder for us alone. Raises UsageFault, Locked, the catalog's errors."""
    import datetime as dt

    from headwater.ingest.feed import Feed
    from headwater.ingest.locations import Locations
    from headwater.ingest.memory import SqliteMemory
    from headwater.server.feeds import MEMORY
    from headwater.server.lock import StateLock

    name = options["set_name"]
    state, prefix, one = _place(options, name)
    root = options["resource_root"] or (one.resource_root if one is not None else None)
    options["names"] = one.resource_sets if one is not None else ()
    with ExitStack() as stack:
        lock = StateLock(state)
        stack.callback(lock.release)
        catalog = _catalog(options, state, listener)
        stack.callback(catalog.close)
        memory = SqliteMemory(state / MEMORY)
        stack.callback(memory.close)
        locations = Locations(options["url_prefix"] or prefix, root)
        feed = Feed(catalog, memory, name, locations, lambda: dt.datetime.now(dt.UTC))
        if not options["dry_run"]:
            _begin(feed, options)
        yield feed


def _place(options: dict[str, Any], name: str) -> tuple[Path, str | None, SetConfig | None]:
    """The state folder, the URL prefix and the configuration of the set, as far as they are known."""
    from headwater.server.config import read_config

    if options["config"] is None:
        if options["state"] is None:
            raise UsageFault("nowhere to record", advice="Give --config FILE, or --state DIR.")
        return options["state"], None, None
    config = read_config(options["config"])
    one = next((one for one in config.sets if one.name == name), None)
    if one is None or one.feed is None:
        raise UsageFault(f"the configuration has no fed set {name!r}", where=str(options["config"]))
    host = config.host if ":" not in config.host else f"[{config.host}]"
    site = config.site(f"http://{host}:{config.port}")
    return options["state"] or Path(config.state), site.resource_prefix(name), one


def _catalog(options: dict[str, Any], state: Path, listener: Listener) -> Catalog:
    from headwater.cli.whereabouts import Whereabouts
    from headwater.server.config import read_config
    from headwater.server.source import open_catalog

    if options["config"] is not None and options["catalog"] is None:
        return open_catalog(read_config(options["config"]), listener)
    return Whereabouts(str(options["catalog"] or state)).open(listener)


def _begin(feed: Feed, options: dict[str, Any]) -> None:
    """What is not a load is logged as changes, so it begins with an open set; an index is loaded by itself."""
    from headwater.catalog.interface import WrongPhase

    if options["load"] and feed.is_open:
        raise WrongPhase("the set is open: its first load is over", where=feed.name)
    if not options["load"] and not options.get("snapshot") and not feed.is_open:
        feed.open()


def _end_load(feed: Feed, options: dict[str, Any]) -> None:
    if options["load"] and not options["keep_loading"] and not options["dry_run"]:
        feed.open()


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = open(name, "rb")  # noqa: SIM115  closed below, and only what opening raises is a matter of usage
    except OSError as cause:
        raise UsageFault(f"cannot be read: {cause.strerror}", where=name) from cause
    with file:
        yield file


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    """What there is, as it comes: a pipe is not waited for until a block is full."""
    read = cast("Any", file).read1
    while block := read(_BLOCK):
        yield block


def _hearer(listener: Listener) -> Callable[[list[Outcome]], None]:
    from headwater.ingest.announcements import BadEvent
    from headwater.progress import Notice, Progress

    done = 0

    def hear(outcomes: list[Outcome]) -> None:
        nonlocal done
        done += len(outcomes)
        for one in outcomes:
            if one.status >= 400:
                listener(Notice(one.code or BadEvent.code, f"line {one.line} was refused: {one.reason}"))
        listener(Progress("lines", done))

    return hear


def _told(as_json: bool, counts: object, words: str, rejected: int) -> Exit:
    if as_json:
        json_document(counts)
    else:
        click.echo(words)
    return Exit.TRANSFERS_FAILED if rejected else Exit.DONE
