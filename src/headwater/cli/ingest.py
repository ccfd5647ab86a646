"""`headwater ingest`: takes records of files, a pipe, an index or a repository into a set, or sends them (`--to`)."""

import datetime as dt
import os
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any
from urllib.parse import urlsplit
from uuid import uuid4

import click
import msgspec

from headwater.catalog.interface import WrongPhase
from headwater.cli.catalog_argument import CatalogArgument
from headwater.cli.output import (
    counted,
    json_line,
    json_option,
    lines_of,
    listening,
    show_result,
    some_of,
    standard_input,
)
from headwater.cli.shared_options import (
    FOLDER,
    Duration,
    Share,
    ca_option,
    catalog_option,
    option,
    options,
    proxy_option,
)
from headwater.cli.stop_signal import Terminated, terminated
from headwater.errors import Exit, HeadwaterError, UsageFault, message
from headwater.ingest.deletion_guard import DeletionGuard
from headwater.ingest.dit.follower import DitFollower
from headwater.ingest.dit.follower import audit as audit_index
from headwater.ingest.dit.index import index_at, index_credentials, is_index
from headwater.ingest.dit.intake import DocumentRecords
from headwater.ingest.dit.texts import Texts, Unwrapper, decoded
from headwater.ingest.push.events import BadEvent, looks_like_events, read_lines
from headwater.ingest.push.feed import Feed, Line, Outcome, OutcomeKind
from headwater.ingest.push.http_sender import AnnouncementServer, Sender, Unanswered, batches
from headwater.ingest.push.ingest_state import refuse_old_memory
from headwater.ingest.push.resource_locations import Locations
from headwater.ingest.push.submission import Account, Lines, Submission, SubmissionLimits
from headwater.progress import Listener, Notice, Progress
from headwater.source.config import SetConfig, read_config
from headwater.source.configured_source import VERSIONS, keep_versions, open_catalog
from headwater.source.configured_source import harvester as make_harvester
from headwater.source.leadership import Locked, StateLock
from headwater.sync.connection import checked_proxy
from headwater.transport.access import check_authorities
from headwater.versions.store import VersionStore

# `--to URL`: events or documents are sent to a server, in place of being recorded here

DOCUMENTS = "/ingest/dit"
CHANGES = "/changes"


_sending = options(
    option("--to URL", "Send the records to the server at URL; needs a token."),
    option("--token TOKEN", "With --to: the token of the set; better: HEADWATER_TOKEN.", envvar="HEADWATER_TOKEN"),
    ca_option,
    proxy_option,
)
"""Options by which a server is announced to."""


def _check_alone(options: dict[str, Any]) -> None:
    """Raise UsageFault where options of this kind are given, and nothing is announced."""
    if not options["to"] and (options["ca"] or options["proxy"]):
        raise UsageFault("--ca and --proxy go with --to")


def address(url: str, path: str, set_name: str | None) -> str:
    """The address that takes announcements: URL itself, or below it."""
    url = url.rstrip("/")
    if url.endswith(path):
        return url
    if path == DOCUMENTS:
        return url + path
    if set_name is None:
        advice = f"Give one like {url}/SET{path}, or --set NAME"
        if urlsplit(url).path:
            advice = f"Give {url}{path} if it is the set's own, else one like {url}/SET{path}, or --set NAME"
        raise UsageFault("this address names no set", code="HW-ING-57", where=url, advice=f"{advice}.")
    return f"{url}/{set_name}{path}"


def events_of(files: list[IO[bytes]]) -> Iterator[Line]:
    """The lines of the files, one after the other."""
    for file in files:
        lines = Lines(octets=_FOREVER, ratio=1_000)
        for block in blocks(file):
            yield from lines.push(block)
        yield from lines.finish()


def documents_of(file: IO[bytes], most_octets: int) -> Iterator[Line]:
    """Each document of a file on a line of its own, in whatever wrappers and layout they lie there."""
    lines = Lines(octets=_FOREVER, ratio=1_000, line_octets=most_octets)
    texts, unwrapper = Texts(most_octets), Unwrapper()

    def found(whole: list[Line]) -> Iterator[Line]:
        for line in whole:
            try:
                documents = unwrapper.push(decoded(line.text or b""))
            except HeadwaterError:
                unwrapper.skip()
                yield line  # as it is: the server says what is wrong with it
                continue
            for one in documents:
                hit = {"_source": one.source, "_type": one.kind, "_timestamp": one.stored_at}
                plain = one.kind is None and one.stored_at is None and isinstance(one.source, dict)
                yield Line(line.number, msgspec.json.encode(one.source if plain else hit))

    for block in blocks(file):
        for line in lines.push(block):
            yield from found(texts.push(line))
    for line in lines.finish():
        yield from found(texts.push(line))
    yield from found(texts.finish())


def blocks(file: Any) -> Iterator[bytes]:
    """What there is, as it comes: a pipe is not waited for until a block is full."""
    return iter(lambda: file.read1(1 << 20), b"")


# a set here

_set_options = options(
    json_option,
    option("--set NAME", "The set that takes the records, unless --to names it.", name="set_name"),
    option(
        "--config FILE",
        "The configuration of the source, instead of the next four options.",
        click.Path(exists=True, dir_okay=False, path_type=Path),
    ),
    option("--state DIR", "The state folder with the catalog. The command locks it.", FOLDER),
    catalog_option,
    option("--url-prefix URL", "The URL that contains the relative paths in records."),
    option("--resource-root DIR", "The folder that contains the absolute paths in records."),
    option("--dry-run", "Show what would be refused; record nothing."),
)
"""By which a set is found."""

_push_target_options = options(
    _set_options,
    option("--load", "Fill a new set without recording changes, and open it at the end."),
    option("--keep-loading", "With --load: do not open the set yet."),
)


@contextmanager
def _push_target(options: dict[str, Any], listener: Listener) -> Iterator[Feed]:
    """The set's feed, with the state folder for us alone. Raises UsageFault, Locked, the catalog's errors."""
    name = options["set_name"]
    if name is None:
        raise UsageFault("no set is named", advice="Give --set NAME, or the URL of a set at a server by --to URL.")
    if options["config"] is None and options["state"] is None:
        raise UsageFault("no state folder is named", advice="Give --config FILE, or --state DIR.")
    config = None if options["config"] is None else read_config(options["config"])
    push_set, prefix = None, None
    if config is not None:
        push_set = next((one for one in config.sets if one.name == name and one.feed is not None), None)
        if push_set is None:
            push_sets = some_of([one.name for one in config.sets if one.feed is not None]) or "none"
            what = f"the configuration has no push set {name!r}"
            raise UsageFault(what, where=str(options["config"]), advice=f"Its push sets: {push_sets}.")
        host = config.host if ":" not in config.host else f"[{config.host}]"
        prefix = config.site(f"http://{host}:{config.port}").resource_prefix(name)
    state = options["state"] or Path(config.state if config is not None else "")
    root = options["resource_root"] or (push_set.resource_root if push_set is not None else None)
    options["names"] = push_set.resource_sets if push_set is not None else ()
    options["push_set"] = push_set
    with ExitStack() as stack:
        if options["dry_run"] and not state.exists():  # of which nothing stays either
            state = Path(stack.enter_context(TemporaryDirectory(prefix="headwater-"))) / "state"
        try:
            stack.callback(StateLock(state).release)
        except Locked as fault:
            todo = "Announce to the running server: the same command with --to URL --token TOKEN; or end it."
            if options.get("snapshot"):
                todo = "A server reads the indexes and repositories of its sets by itself; for others, end it first."
            raise Locked(fault.what, where=fault.where, advice=todo) from fault
        if config is not None and options["catalog"] is None:
            catalog = open_catalog(msgspec.structs.replace(config, state=str(state)), listener)
        else:
            catalog = CatalogArgument(str(options["catalog"] or state)).open(listener)
        stack.callback(catalog.close)
        refuse_old_memory(state)
        locations = Locations(options["url_prefix"] or prefix, root)
        feed = Feed(catalog, name, locations, lambda: dt.datetime.now(dt.UTC))
        if push_set is not None:
            feed.guard = DeletionGuard(catalog, name, push_set.max_delete, feed.clock)
        if not options["dry_run"]:
            keep_versions(feed, push_set, VersionStore(state / VERSIONS), root, listener)
            if options["load"] and feed.is_open:
                raise WrongPhase("the set is open: its first load is over", where=feed.name)
            # what is not a load is logged as changes, so it begins with an open set; an index is loaded by itself
            if not options["load"] and not options.get("snapshot") and not feed.is_open:
                feed.open()
        yield feed
        if not options["dry_run"]:
            feed.sweep()  # of few batches, of which none would do it


def _end_load(feed: Feed, options: dict[str, Any]) -> None:
    if options["load"] and not options["keep_loading"] and not options["dry_run"]:
        feed.open()


_BLOCK = 1 << 20
_FOREVER = 1 << 50
_LONGEST_WAIT_SECONDS = 3_600.0
"""As long as a repository may ask us to wait."""
_FEW = 5
"""Names of other sets that are said."""
_DOCUMENT_OCTETS = 64 << 20
"""A search answer saved to a file is one line."""


@click.group(name="ingest")
def command() -> None:
    """Record resources of a set without a folder, from events (lines of JSON), `dit` documents or a repository.

    A running server locks the state folder: then send the records to it (--to), or let it follow the index.
    """


@command.command(name="events", short_help="Record events, one JSON object a line.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True))
@option("--key KEY", "Record the same lines only once, however often this key is used.")
@_sending
@_push_target_options
def events(files: tuple[str, ...], key: str | None, as_json: bool, **options: Any) -> Exit:
    """Record events, one JSON object a line, from FILEs (also gzip) or standard input (-).

    With --to, the command sends them to the server at URL in batches, and retries each for up to five minutes. If it
    fails or is interrupted, it prints a --key: the same command with this key continues.

    Exit statuses: 0 done; 2 usage, or the server refuses; 3 the server does not answer; 4 done, but some lines were
    refused; 6 fault of our own store.
    """
    limits = SubmissionLimits(octets=_FOREVER, lines=_FOREVER, ratio=1_000)
    total = Account()
    _check_alone(options)
    if key is not None and len(files) > 1 and not options["to"]:
        raise UsageFault("--key takes one file at a time")
    if options["to"]:
        return _announced(files, key, as_json, options)
    with listening() as listener, _push_target(options, listener) as feed:
        hear = _hearer(listener, total)
        for name in files:
            with _opened(name) as file:
                if options["dry_run"]:
                    lines = Lines(octets=_FOREVER, ratio=1_000)
                    for block in blocks(file):
                        batch = list(lines.push(block))
                        refused = read_lines(feed, batch)[1]
                        total.lines += len(batch) - len(refused)
                        hear(refused)
                    continue
                submission = Submission(feed, key, limits, hear)
                for block in blocks(file):
                    submission.push(block)
                submission.finish()
        _end_load(feed, options)
        _hint(files[0], events_are=False, taken=total.lines - total.rejected, listener=listener)
    verdict = "would be refused" if options["dry_run"] else "refused"
    return _told(as_json, total.of_events, _words(total, verdict=verdict), total.rejected)


@command.command(name="dit", short_help="Record `dit` documents of a harvester, from an index or a file.")
@click.argument("source", metavar="INDEX-URL|FILE|-")
@option(
    "--resource-set NAME",
    "The set's name in the documents (repeatable); * for any.  [default: its name]",
    name="resource_sets",
    multiple=True,
)
@option("--once", "Read what is there, then end (default for a file).")
@option("--follow SECONDS", "Poll at this interval, until Ctrl-C.  [default: 1]", Duration(0.1))
@option("--audit", "Compare the whole index with the set, repair differences, and end.")
@option(
    "--max-delete SHARE",
    "With --audit: hold back deletions of more than this share of the set.",
    Share(),
    default="20%",
    show_default=True,
)
@_sending
@_push_target_options
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
    """Record `dit` documents from an index that a harvester writes, or from an exported FILE.

    INDEX-URL is like http://host:9200/omtd-resourcesync. Give credentials in HEADWATER_INDEX_USER and _PASSWORD, or in
    _API_KEY. Headwater only reads the index. It fills a new set first; then it records every document once, however
    often you restart the command. With --to, it sends the documents of a FILE to the server at URL, as `ingest events`
    does.

    Exit statuses: 0 done; 2 usage, or the server refuses; 3 invalid answers of the index, or no answer of the server; 4
    done, but documents were refused or deletions held back; 6 fault of our own store, or no answer of the index.
    """
    if (once or audit) and follow is not None:
        raise UsageFault("--follow excludes --once and --audit")
    _check_alone(options)
    if options["to"]:
        if is_index(source):
            raise UsageFault("--to sends the documents of a file; a server follows an index by itself (`index`)")
        return _announced((source,), None, as_json, options, documents=True)
    options["snapshot"] = is_index(source)
    with listening() as listener, _push_target(options, listener) as feed:
        names = resource_sets or options["names"] or (feed.name,)
        wanted = None if "*" in names else frozenset(names)
        if not is_index(source):
            return _from_file(source, feed, wanted, listener, as_json, options)
        if options["dry_run"] and not audit:
            raise UsageFault("--dry-run is for files: to read an index changes nothing but the set")
        index = index_at(source, listener, index_credentials(os.environ, [source]))
        follower = DitFollower(feed, index, wanted, listener=listener)
        if audit:
            found = audit_index(follower, max_delete)
            held_back = str(found.held_back) if found.held_back else None
            counts = {"resources": found.resources, "repaired": found.repaired, "deleted": found.deleted}
            repaired = f"repaired {found.repaired:,}, of these {found.deleted:,} deleted"
            words = f"{found.resources:,} resources in the index; {repaired}"
            if held_back:
                place = shlex.quote(str(options["config"] or options["state"]))
                todo = f"Check the index. To allow the deletions: `headwater allow-deletions {place}`."
                words += f"\n  deletions held back: {held_back}\n  do: {todo}"
            return _told(as_json, {**counts, "held_back": held_back}, words, held_back is not None)
        if once:
            follower.read_to_end()
            tally = follower.tally
            return _told(as_json, tally.of_documents, _words(tally, "document"), tally.rejected)
        while True:
            if follower.poll():
                if as_json:
                    json_line(follower.tally.of_documents)
                else:
                    click.echo(_words(follower.tally, "document"))
            else:
                time.sleep(follow or 1.0)


_harvest_options = options(
    click.argument("url", required=False),
    option("--audit", "Compare everything, files as well, and delete what is gone."),
    option("--max-delete SHARE", "Hold back deletions of more than this share of the set.", Share()),
    _set_options,
)


@command.command(name="dspace", short_help="Harvest a DSpace repository by its REST API.")
@_harvest_options
def dspace(url: str | None, **options: Any) -> Exit:
    """Harvest the public items and files of a DSpace repository (7 or later) into a set.

    URL is the root of its REST API, else that of the set. The first run reads everything; later ones read what is due.
    --dry-run estimates requests and time.

    Exit statuses: 0 done; 2 usage; 3 the repository does not answer, or shows nothing; 4 done, but items failed, or
    deletions are held back; 6 fault of our own store.
    """
    return _harvested("dspace", {"url": url}, **options)


@command.command(name="oai", short_help="Harvest a repository by OAI-PMH.")
@option("--prefix PREFIX", "A metadata prefix to harvest (repeatable).", name="prefixes", multiple=True)
@option("--repository-set SPEC", "One of its sets (repeatable).", name="specs", multiple=True)
@_harvest_options
def oai(url: str | None, prefixes: tuple[str, ...], specs: tuple[str, ...], **options: Any) -> Exit:
    """Harvest the records of a repository into a set by OAI-PMH.

    URL, prefixes and sets of the repository are those of the set, unless you give others. Each run continues where the
    last one ended. --dry-run estimates requests and time.

    Exit statuses: 0 done; 2 usage; 3 the repository does not answer, answers wrongly, or is suddenly empty; 4 done, but
    records are missing, or deletions are held back; 6 fault of our own store.
    """
    return _harvested("oai", {"url": url, "prefixes": prefixes, "sets": specs}, **options)


def _harvested(
    kind: str, given: dict[str, Any], *, audit: bool, max_delete: float | None, as_json: bool, **options: Any
) -> Exit:
    """Harvest into the set that the options name; what is `given` goes before its configuration."""
    options |= {"snapshot": True, "load": False}
    with listening() as listener, _push_target(options, listener) as feed:
        known = options["push_set"] or SetConfig(name=feed.name, feed="events")
        if known.is_harvested and known.feed != kind:
            raise UsageFault(f"the set is harvested by `headwater ingest {known.feed}`", where=feed.name)
        given |= {"feed": kind, "resource_root": options["resource_root"], "max_delete": max_delete}
        config = msgspec.structs.replace(known, **{key: one for key, one in given.items() if one not in (None, ())})
        is_other = (config.prefixes, config.sets) != (known.prefixes, known.sets)
        if audit and known.feed == kind and is_other:  # what the other lists have would count as gone
            raise UsageFault("--audit reads what the configuration names: leave out --prefix and --repository-set")
        if config.resource_root is None:
            advice = f'Give a set with feed = "{kind}" in --config.'
            raise UsageFault("the set has no folder for the octets of its records", advice=advice)
        feed.guard = DeletionGuard(feed.catalog, feed.name, config.max_delete, feed.clock)
        harvester = make_harvester(config, feed, listener, longest_wait_seconds=_LONGEST_WAIT_SECONDS)
        if options["dry_run"]:
            estimate = harvester.estimate(compare=audit)
            show_result(estimate, "\n".join(lines_of(estimate, *_ESTIMATE)), as_json=as_json)
            return Exit.DONE
        tally = harvester.harvest(compare=audit)
    held_back = None if tally.held_back is None else str(tally.held_back)
    told = msgspec.to_builtins(tally) | {"held_back": held_back}
    words = "\n".join(lines_of(tally, *_HARVEST, held=held_back))
    return _told(as_json, told, words, tally.faults or held_back is not None)


_ESTIMATE = (
    "{repository}: deletions {deletions}, granularity {granularity}",
    "{records:record} in {requests:request}, {octets:octets}, about {seconds}",
    "{without_files}the files of each new or changed record take more requests, which cannot be counted before",
)
_HARVEST = (
    "{requests:request}: {records:record} read, {created} created, {updated} updated, {deleted} deleted,"
    " {unchanged} unchanged",
    "  {repaired:record} repaired, whose characters XML does not have",
    "  {unreadable:record} left out, which cannot be read",
    "  {lacking:record} counted by the repository, which did not come",
    "  {failed_files:file} of content failed",
    "  deletions held back: {held}",
)


def _from_file(
    name: str, feed: Feed, wanted: frozenset[str] | None, listener: Listener, as_json: bool, options: dict[str, Any]
) -> Exit:
    others: dict[str, None] = {}

    def route(resource_set: str | None) -> Feed | None:
        if wanted is None or resource_set is None or resource_set in wanted:
            return feed
        if len(others) < _FEW:
            others[resource_set] = None
        return None

    limits = SubmissionLimits(octets=_FOREVER, lines=_FOREVER, ratio=1_000, line_octets=_DOCUMENT_OCTETS)
    records = DocumentRecords(route, whole_octets=_DOCUMENT_OCTETS, dry_run=options["dry_run"], listener=listener)
    submission = Submission(records, limits=limits, hear=_hearer(listener, Account()))
    tally = submission.counts
    with _opened(name) as file:
        for block in blocks(file):
            submission.push(block)
        submission.finish()
    _end_load(feed, options)
    _hint(name, events_are=True, taken=tally.lines - tally.rejected, listener=listener)
    if tally.lines == tally.foreign > 0:
        names = ", ".join(f"{name[:80]!a}" for name in others)
        listener(Notice("HW-ING-61", f"every document is of another set; resource_set says {names}"))
    return _told(as_json, tally.of_documents, _words(tally, "document"), tally.rejected)


def _announced(
    files: tuple[str, ...], key: str | None, as_json: bool, options: dict[str, Any], *, documents: bool = False
) -> Exit:
    """Send all of it to a server at another address in batches, each with a part of the key."""
    url = address(options["to"], DOCUMENTS if documents else CHANGES, options["set_name"])
    key = None if documents else key or uuid4().hex
    with_key = "" if key is None else f" with --key {key}: what was taken is not taken twice"
    go_on = f"Run the same command again{with_key}."
    account = Account()
    with ExitStack() as stack:
        stack.enter_context(terminated())
        listener = stack.enter_context(listening())
        opened = [stack.enter_context(_opened(name)) for name in files]
        texts = documents_of(opened[0], _DOCUMENT_OCTETS) if documents else events_of(opened)
        if options["dry_run"]:
            raise UsageFault("--dry-run and --to exclude each other")
        if not options["token"]:
            raise UsageFault("--to needs a token", advice="Give --token, or HEADWATER_TOKEN.")
        check_authorities(options["ca"])
        proxy, hear = checked_proxy(options["proxy"]), _hearer(listener, account)
        server = AnnouncementServer(url=url, token=options["token"], authorities=options["ca"], proxy=proxy)
        try:
            with closing(Sender(server, key, listener=listener)) as sender:
                for batch in batches(texts):
                    hear(sender.send(batch, "load" if options["load"] else ""))
                if options["load"] and not options["keep_loading"]:
                    sender.send([], "load&open")
        except Unanswered as fault:
            advice = go_on if fault.todo == message(Unanswered.code).advice else f"{fault.todo} {go_on}"
            raise Unanswered(fault.what, where=fault.where, advice=advice) from fault
        except (KeyboardInterrupt, Terminated):
            click.echo(f"{_words(account)}; interrupted. {go_on}", err=True)
            raise
        taken = account.taken + account.ignored
        _hint(files[0], events_are=documents, taken=taken, listener=listener)
    counts = {"lines": account.lines, **account.by_outcome, "key": key}
    return _told(as_json, counts, _words(account), account.rejected)


def _words(account: Account, noun: str = "line", verdict: str = "refused") -> str:
    others = f", {account.foreign:,} of other sets" if noun == "document" else ""
    told = f"{account.taken:,} taken, {account.ignored:,} no news{others}, {account.rejected:,} {verdict}"
    return f"{counted(account.lines, noun)}: {told}"


def _hint(name: str, *, events_are: bool, taken: int, listener: Listener) -> None:
    """When nothing was taken: say so if the file begins as one for the other command does."""
    if taken or name == "-":
        return
    with _opened(name) as file:
        text = next((one.text or b"" for one in events_of([file])), b"")
    if looks_like_events(text) is events_are:
        what, command = ("events", "events") if events_are else ("DIT-ES documents", "dit")
        listener(Notice("HW-ING-60", f"these look like {what}: `headwater ingest {command}` takes them", name))


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield standard_input()
        return
    try:
        file = open(name, "rb")  # noqa: SIM115  closed below, and only what opening raises is a matter of usage
    except OSError as cause:
        raise UsageFault(f"cannot be read: {cause.strerror}", where=name) from cause
    with file:
        yield file


def _hearer(listener: Listener, account: Account) -> Callable[[list[Outcome]], None]:
    def hear(outcomes: list[Outcome]) -> None:
        account.count(outcomes)
        for outcome in outcomes:
            if outcome.kind is OutcomeKind.REJECTED:
                told = f"a line was refused: {outcome.reason}"
                listener(Notice(outcome.code or BadEvent.code, told, f"line {outcome.line}"))
            if outcome.notice is not None:
                listener(Notice("HW-ING-65", outcome.notice, f"line {outcome.line}"))
        listener(Progress("lines", account.lines))

    return hear


def _told(as_json: bool, counts: object, words: str, rejected: object) -> Exit:
    show_result(counts, words, as_json=as_json)
    return Exit.TRANSFERS_FAILED if rejected else Exit.DONE
