"""`headwater ingest … --to URL`: sends events or documents to a server, in place of recording them here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from headwater.cli.shared_options import option, options
from headwater.cli.source_access import ca_option, proxy_option
from headwater.errors import HeadwaterError, UsageFault

if TYPE_CHECKING:
    from headwater.ingest.push.feed import Line
    from headwater.progress import Listener

Hear = Callable[[list[Any]], None]

DOCUMENTS = "/ingest/dit"
CHANGES = "/changes"
_FOREVER = 1 << 50


sending = options(
    option("--to URL", "Announce to the server at URL, instead of recording here; needs a token."),
    option("--token TOKEN", "With --to: the token of the set; better by HEADWATER_TOKEN.", envvar="HEADWATER_TOKEN"),
    ca_option,
    proxy_option,
)
"""Options by which a server is announced to."""


def check_alone(options: dict[str, Any]) -> None:
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


def announce(
    url: str,
    texts: Iterator[Line],
    options: dict[str, Any],
    *,
    key: str | None,
    hear: Hear,
    listener: Listener,
) -> None:
    """Send all of it in batches, each with a part of the key; `hear` gets what became of the lines."""
    from headwater.ingest.push.http_sender import AnnouncementServer, Sender, batches
    from headwater.sync.connection import checked_proxy

    if options["dry_run"]:
        raise UsageFault("--dry-run and --to exclude each other")
    if not options["token"]:
        raise UsageFault("--to needs a token", advice="Give --token, or HEADWATER_TOKEN.")
    query = "load" if options["load"] else ""
    _check_authorities(options["ca"])
    proxy = checked_proxy(options["proxy"])
    server = AnnouncementServer(url=url, token=options["token"], authorities=options["ca"], proxy=proxy)
    with closing(Sender(server, key, listener=listener)) as sender:
        for batch in batches(texts):
            outcomes = sender.send(batch, query)
            hear(outcomes)
        if options["load"] and not options["keep_loading"]:
            sender.send([], "load&open")


def _check_authorities(ca: str | None) -> None:
    """Raise UsageFault for a file of certificate authorities that is none."""
    import ssl

    try:
        ssl.create_default_context(cafile=ca)
    except ssl.SSLError as cause:
        raise UsageFault("the CA certificates cannot be read as PEM", where=ca) from cause


def events_of(files: list[IO[bytes]]) -> Iterator[Line]:
    """The lines of the files, one after the other."""
    from headwater.ingest.push.submission import Lines

    for file in files:
        lines = Lines(octets=_FOREVER, ratio=1_000)
        for block in blocks(file):
            yield from lines.push(block)
        yield from lines.finish()


def documents_of(file: IO[bytes], most_octets: int) -> Iterator[Line]:
    """Each document of a file on a line of its own, in whatever wrappers and layout they lie there."""
    from headwater.ingest.dit.texts import Texts, Unwrapper, decoded
    from headwater.ingest.push.submission import Lines

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
            yield from (_line(line.number, document) for document in documents)

    for block in blocks(file):
        for line in lines.push(block):
            yield from found(texts.push(line))
    for line in lines.finish():
        yield from found(texts.push(line))
    yield from found(texts.finish())


def _line(number: int, document: Any) -> Line:
    import msgspec

    from headwater.ingest.push.feed import Line

    hit = {"_source": document.source, "_type": document.kind, "_timestamp": document.stored_at}
    plain = document.kind is None and document.stored_at is None and isinstance(document.source, dict)
    return Line(number, msgspec.json.encode(document.source if plain else hit))


def blocks(file: Any) -> Iterator[bytes]:
    """What there is, as it comes: a pipe is not waited for until a block is full."""
    while block := file.read1(1 << 20):
        yield block
