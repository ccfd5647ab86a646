"""An OAI-PMH repository on a socket that does what it should, until a test tells it otherwise."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, urlsplit
from xml.sax.saxutils import escape, quoteattr

from tests.support.scripted_server import Request, ScriptedServer, answer

HEAD = (
    '<?xml version="1.0" encoding="UTF-8"?>\n<OAI-PMH xmlns="http://www.openarchives.org/OAI/2.0/"'
    ' xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="http://www.openarchives.org/OAI/2.0/'
    ' http://www.openarchives.org/OAI/2.0/OAI-PMH.xsd">'
)
DC = 'xmlns:oai_dc="http://www.openarchives.org/OAI/2.0/oai_dc/" xmlns:dc="http://purl.org/dc/elements/1.1/"'


def dc(**fields: str) -> str:
    """Metadata in oai_dc."""
    told = "".join(f"<dc:{name}>{escape(text)}</dc:{name}>" for name, text in fields.items())
    return f"<oai_dc:dc {DC}>{told}</oai_dc:dc>"


@dataclass
class Item:
    """One item: its metadata by prefix."""

    identifier: str
    datestamp: str
    metadata: dict[str, str]
    sets: tuple[str, ...] = ()
    deleted: bool = False

    @property
    def header(self) -> str:
        status = ' status="deleted"' if self.deleted else ""
        sets = "".join(f"<setSpec>{escape(one)}</setSpec>" for one in self.sets)
        name = f"<identifier>{escape(self.identifier)}</identifier>"
        return f"<header{status}>{name}<datestamp>{self.datestamp}</datestamp>{sets}</header>"

    def record(self, prefix: str) -> str:
        metadata = "" if self.deleted else f"<metadata>{self.metadata[prefix]}</metadata>"
        return f"<record>{self.header}{metadata}</record>"


Query = dict[str, str]


@dataclass
class FakeRepository:
    """Its items, and how it answers. `spoil` makes of a request and its answer what is sent instead."""

    page: int = 100
    by_day: bool = False
    deletions: str = "persistent"
    now: str = "2024-06-01T00:00:00Z"
    earliest: str = "2020-01-01T00:00:00Z"
    says_size: bool = True
    limit: int | None = None
    items: dict[str, Item] = field(default_factory=dict)
    order: Callable[[Item], object] = lambda one: (one.datestamp, one.identifier)
    spoil: Callable[[Query, bytes], bytes | None] = lambda _query, sent: sent
    asked: list[Query] = field(default_factory=list)
    url: str = ""

    def put(
        self, number: int, text: str = "", at: str = "", *, deleted: bool = False, sets: tuple[str, ...] = ()
    ) -> Item:
        """Have an item: in oai_dc, and in `other`."""
        at = at or f"2024-01-{number % 28 + 1:02d}T00:00:{number % 60:02d}Z"
        name = f"oai:example.org:{number}"
        metadata = {"oai_dc": dc(title=text or f"item {number}"), "other": f'<o xmlns="urn:o">{number} {text}</o>'}
        self.items[name] = item = Item(name, at[:10] if self.by_day else at, metadata, sets, deleted)
        return item

    def answer(self, query: Query) -> bytes:
        """What is sent for a request."""
        verb = query.get("verb", "")
        if verb == "Identify":
            body = (
                f"<Identify><repositoryName>Fake</repositoryName><baseURL>{self.url}</baseURL>"
                f"<protocolVersion>2.0</protocolVersion><adminEmail>a@example.org</adminEmail>"
                f"<earliestDatestamp>{self.earliest[:10] if self.by_day else self.earliest}</earliestDatestamp>"
                f"<deletedRecord>{self.deletions}</deletedRecord>"
                f"<granularity>YYYY-MM-DD{'' if self.by_day else 'Thh:mm:ssZ'}</granularity></Identify>"
            )
        elif verb in ("ListRecords", "ListIdentifiers"):
            body = self._list(verb, query)
        else:
            body = error("badVerb", verb)
        return answer(self.document(body, verb), Content_Type="text/xml;charset=UTF-8")

    def document(self, body: str, verb: str) -> bytes:
        """An answer with this content."""
        told = f"<responseDate>{self.now}</responseDate><request verb={quoteattr(verb)}>{self.url}</request>"
        return f"{HEAD}{told}{body}</OAI-PMH>".encode()

    def _list(self, verb: str, query: Query) -> str:
        offset = 0
        if (token := query.get("resumptionToken")) is not None:
            if len(query) > 2 or token.count("|") != 4:
                return error("badResumptionToken" if len(query) <= 2 else "badArgument", token)
            prefix, start, end, set_, at = token.split("|")
            offset = int(at)
        else:
            prefix, start, end, set_ = (query.get(key, "") for key in ("metadataPrefix", "from", "until", "set"))
        if any(one and (len(one) == 10) is not self.by_day for one in (start, end)):
            return error("badArgument", "the granularity is another one")
        if prefix not in ("oai_dc", "other"):
            return error("cannotDisseminateFormat", prefix)
        found = [
            one
            for one in sorted(self.items.values(), key=self.order)  # type: ignore[arg-type]
            if (not start or one.datestamp >= start) and (not end or one.datestamp <= end)
            if (not set_ or set_ in one.sets) and (one.deleted or prefix in one.metadata)
        ]
        if not found:
            return error("noRecordsMatch", "nothing")
        total, shown = len(found), found[: self.limit]
        part = shown[offset : offset + self.page]
        is_last = offset + self.page >= len(shown)
        token = "" if is_last else f"{prefix}|{start}|{end}|{set_}|{offset + self.page}"
        said = f' completeListSize="{total}" cursor="{offset}"' if self.says_size else ""
        if is_last and not offset:
            resumption = ""
        else:
            resumption = f"<resumptionToken{said}>{token}</resumptionToken>"
        content = "".join(one.record(prefix) if verb == "ListRecords" else one.header for one in part)
        return f"<{verb}>{content}{resumption}</{verb}>"

    def queries(self, verb: str = "ListRecords") -> list[Query]:
        """What was asked with a verb, without it."""
        return [{k: v for k, v in one.items() if k != "verb"} for one in self.asked if one.get("verb") == verb]


def error(code: str, text: str) -> str:
    """An OAI-PMH error."""
    return f'<error code="{code}">{escape(text)}</error>'


class _Server(ScriptedServer):
    def __init__(self, repository: FakeRepository) -> None:
        super().__init__({})
        self._repository = repository

    def respond(self, request: Request, connection: socket.socket) -> bytes | None:
        parts = urlsplit(request.target)
        if parts.path != "/oai":
            return super().respond(request, connection)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self._repository.asked.append(query)
        return self._repository.spoil(query, self._repository.answer(query))


@contextmanager
def repository(count: int = 0, **options: object) -> Iterator[FakeRepository]:
    """A repository with so many items."""
    made = FakeRepository(**options)  # type: ignore[arg-type]
    server = _Server(made)
    made.url = f"{server.base}/oai"
    made.server = server  # type: ignore[attr-defined]
    for number in range(count):
        made.put(number)
    try:
        yield made
    finally:
        server.close()
