"""The kinds of sources in a fleet: the defects that an aggregator met in 48 sources, and those that mean harm.

`DEFECTIVE` and `HOSTILE` have them by name. Each kind says what is expected of a copy of it.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import time
from typing import TYPE_CHECKING, Any, ClassVar

from tests.support.fake_source import document, ln, url
from tests.support.fleet import SAYS_WHY, UNKNOWABLE, Asked, Changed, FleetSource, Sent, stamp

if TYPE_CHECKING:
    import datetime as dt

PAGE = b"<!DOCTYPE html><html><head><title>Error</title></head><body><h1>Database error</h1></body></html>"


def _md5(body: bytes) -> str:
    return f"md5:{hashlib.md5(body).hexdigest()}"


# little is listed


class NoHash(FleetSource):
    hash_of = None


class LengthOnly(FleetSource):
    """One of its updates keeps the length: only the Change List tells it."""

    hash_of = None

    def lastmod(self, moment: dt.datetime) -> str | None:
        return None


class Md5Only(FleetSource):
    hash_of = _md5


class DayOnly(FleetSource):
    def lastmod(self, moment: dt.datetime) -> str | None:
        return stamp(moment)[:10]


class NoAt(FleetSource):
    def resource_list(self) -> bytes:
        return document(map(self.entry, self.files), links=self.up(), capability="resourcelist")


class Changing(FleetSource):
    """Each request gets other content, and nothing is listed that could tell it."""

    expects = UNKNOWABLE
    hash_of = None
    has_length = False

    def resource(self, asked: Asked, name: str) -> Sent:
        sent = super().resource(asked, name)
        return sent._replace(body=sent.body + f"<!-- {self.requests} -->".encode()) if sent.status == 200 else sent


class SilentCut(FleetSource):
    """Ends one file early, without a length anywhere."""

    expects = UNKNOWABLE
    hash_of = None
    has_length = False

    def resource(self, asked: Asked, name: str) -> Sent:
        sent = super().resource(asked, name)
        return sent if sent.status != 200 or not name.startswith("0003") else _closing(sent, sent.body[:-5])


# documents of another form


class Relative(FleetSource):
    def entry(self, name: str) -> str:
        return super().entry(name).replace(f"<loc>{self.base}/", "<loc>/")

    def changed(self, one: Changed) -> str:
        return super().changed(one).replace(f"<loc>{self.base}/", "<loc>/")


class NoFrom(FleetSource):
    def change_list(self) -> bytes:
        return document(map(self.changed, self.changes), links=self.up(), capability="changelist")


class NoDatetime(FleetSource):
    def changed(self, one: Changed) -> str:
        return super().changed(one).replace(f' datetime="{stamp(one.at)}"', "")


class ChangeIndex(FleetSource):
    """A closed Change List of all changes but the last ten, and an open one."""

    def change_list(self) -> bytes:
        split = max(len(self.changes) - 10, 0) // 10 * 10
        border = stamp(self.changes[split].at if split < len(self.changes) else self.began)
        parts = [url(f"{self.base}/cl-{split}.xml", tag="sitemap", from_=border)]
        if split:
            closed = url(f"{self.base}/cl-0-{split}.xml", tag="sitemap", from_=stamp(self.began), until=border)
            parts.insert(0, closed)
        return document(parts, "sitemapindex", self.up(), capability="changelist", from_=stamp(self.began))

    def page(self, target: str) -> bytes | None:
        if not target.startswith("/cl-"):
            return super().page(target)
        first, _, last = target.removeprefix("/cl-").removesuffix(".xml").partition("-")
        begin, end = int(first), int(last) if last else len(self.changes)
        times = {"from_": stamp(self.changes[begin].at if begin and begin < len(self.changes) else self.began)}
        if last:
            times["until"] = stamp(self.changes[end].at if end < len(self.changes) else self.now)
        links = self.up() + ln("index", f"{self.base}/changelist.xml")
        return document(map(self.changed, self.changes[begin:end]), links=links, capability="changelist", **times)


class NestedIndex(FleetSource):
    """An index of an index of lists."""

    parts: ClassVar[dict[str, str]] = {"/resourcelist.xml": "/rl/index.xml", "/rl/index.xml": "/rl/list.xml"}

    def page(self, target: str) -> bytes | None:
        if (part := self.parts.get(target)) is not None:
            return self.index(part)
        return self.resource_list() if target == "/rl/list.xml" else super().page(target)

    def index(self, *parts: str) -> bytes:
        entries = [url(self.base + part, tag="sitemap") for part in parts]
        return document(entries, "sitemapindex", self.up(), capability="resourcelist", at=stamp(self.now))


class IndexOfUrls(NestedIndex):
    """`<sitemapindex>` with `<url>` in place of `<sitemap>`."""

    parts: ClassVar[dict[str, str]] = {"/resourcelist.xml": "/rl/list.xml"}

    def index(self, *parts: str) -> bytes:
        return super().index(*parts).replace(b"<sitemap>", b"<url>").replace(b"</sitemap>", b"</url>")


class WrongRoot(NestedIndex):
    """`<urlset>` with `<sitemap>` children."""

    parts: ClassVar[dict[str, str]] = {"/resourcelist.xml": "/rl/list.xml"}

    def index(self, *parts: str) -> bytes:
        return super().index(*parts).replace(b"sitemapindex", b"urlset")


class MissingPart(NestedIndex):
    """One component of the index is not there."""

    expects = SAYS_WHY

    def page(self, target: str) -> bytes | None:
        return self.index("/rl/list.xml", "/rl/lost.xml") if target == "/resourcelist.xml" else super().page(target)


class Loop(NestedIndex):
    """An index that lists itself."""

    expects = SAYS_WHY

    def page(self, target: str) -> bytes | None:
        return (
            self.index("/rl/list.xml", "/resourcelist.xml") if target == "/resourcelist.xml" else super().page(target)
        )


class Respelt(FleetSource):
    """Documents of which the bytes are replaced."""

    head: ClassVar[bytes] = b""
    old: ClassVar[tuple[bytes, bytes]] = (b"", b"")

    def resource_list(self) -> bytes:
        return self.head + super().resource_list().replace(*self.old, 1)


class ByteOrderMark(Respelt):
    head = b"\xef\xbb\xbf"


class LeadingSpace(Respelt):
    head = b"\n\n"


class Entities(Respelt):
    """A document type with an external entity."""

    expects = SAYS_WHY
    old = (b"?>", b'?><!DOCTYPE urlset [<!ENTITY x SYSTEM "file:///etc/hostname">]>')


class WrongCapability(Respelt):
    expects = SAYS_WHY
    old = (b'capability="resourcelist"', b'capability="resourceliste"')


class Latin1(FleetSource):
    """Documents in ISO-8859-1, which say so."""

    declared: ClassVar[bytes] = b"ISO-8859-1"

    def resource_list(self) -> bytes:
        note = "<!-- \xfcbersicht -->".encode("latin-1")
        said = super().resource_list().replace(b"UTF-8", self.declared, 1)
        return said.replace(b"<url>", note + b"<url>", 1)


class Latin1Undeclared(Latin1):
    expects = SAYS_WHY
    declared = b"UTF-8"


class OddPrefix(FleetSource):
    """Prefixes that nobody else has, for both namespaces."""

    def resource_list(self) -> bytes:
        said = super().resource_list().replace(b"rs:", b"quux:").replace(b"xmlns:rs=", b"xmlns:quux=")
        said = said.replace(b'xmlns="', b'xmlns:s="', 1)
        for name in (b"urlset", b"url>", b"loc>", b"lastmod>"):
            said = said.replace(b"<" + name, b"<s:" + name).replace(b"</" + name, b"</s:" + name)
        return said


class ImageSitemap(FleetSource):
    """Google's image extension in the list."""

    def resource_list(self) -> bytes:
        image = b"<image:image><image:loc>http://elsewhere.example/a.png</image:loc></image:image></url>"
        space = b'<urlset xmlns:image="http://www.google.com/schemas/sitemap-image/1.1" '
        return super().resource_list().replace(b"</url>", image).replace(b"<urlset ", space)


class Garbage(FleetSource):
    expects = SAYS_WHY

    def resource_list(self) -> bytes:
        return hashlib.sha512(b"garbage").digest() * 40


class HtmlList(FleetSource):
    expects = SAYS_WHY

    def resource_list(self) -> bytes:
        return PAGE


class Duplicates(FleetSource):
    """Entries twice, and some of other schemes."""

    expects = SAYS_WHY

    def resource_list(self) -> bytes:
        entries = [self.entry(name) for name in self.files]
        others = [url(one, stamp(self.began)) for one in ("file:///etc/passwd", "mailto:a@b.example")]
        return document([*entries, *entries, *others], links=self.up(), capability="resourcelist", at=stamp(self.now))


class Ampersand(FleetSource):
    """URIs with a query."""

    def uri(self, name: str) -> str:
        return f"{self.base}/files/?id={name}&view=record"

    def answer(self, asked: Asked) -> Sent:
        target = asked.target
        if target.startswith("/files/?id="):
            target = "/files/" + target.removeprefix("/files/?id=").removesuffix("&view=record")
        return super().answer(asked._replace(target=target))


# found in another way


class Robots(FleetSource):
    """robots.txt names the list, and nothing else is there."""

    first = "/"

    def page(self, target: str) -> bytes | None:
        if target == "/robots.txt":
            return f"User-agent: *\nSitemap: {self.base}/resourcelist.xml\n".encode()
        return None if target == "/.well-known/resourcesync" else super().page(target)


class Sitemap(FleetSource):
    """A plain Sitemap."""

    first = "/sitemap.xml"
    options: ClassVar[dict[str, object]] = {"sitemap": True}

    def page(self, target: str) -> bytes | None:
        entries = (url(self.uri(name), stamp(moment)) for name, moment in self.lastmods.items())
        return document(entries) if target == "/sitemap.xml" else None


class GzippedList(FleetSource):
    """The list is a gzip file."""

    def capabilities(self) -> bytes:
        return super().capabilities().replace(b"/resourcelist.xml", b"/resourcelist.xml.gz")

    def page(self, target: str) -> bytes | None:
        if target == "/resourcelist.xml.gz":
            return gzip.compress(self.resource_list(), mtime=0)
        return super().page(target)


# the server


class Slow(FleetSource):
    async def respond(self, asked: Asked) -> Sent:
        await asyncio.sleep(0.3)
        return self.answer(asked)


class TooManyNowAndThen(FleetSource):
    """Every fifth request gets 429."""

    status: ClassVar[int] = 429

    def answer(self, asked: Asked) -> Sent:
        if self.requests % 5 == 4:
            self.requests += 1
            return Sent(b"later", self.status, {"Retry-After": "1"})
        return super().answer(asked)


class UnavailableNowAndThen(TooManyNowAndThen):
    status = 503


class RateLimit(FleetSource):
    """Ten requests a second, and 429 above."""

    def answer(self, asked: Asked) -> Sent:
        now = time.monotonic()
        self.recent: list[float] = [one for one in getattr(self, "recent", []) if one > now - 1]
        if len(self.recent) >= 10:
            return Sent(b"too many", 429, {"Retry-After": "1"})
        self.recent.append(now)
        return super().answer(asked)


class Cut(FleetSource):
    """Every fourth transfer of a file breaks off."""

    def resource(self, asked: Asked, name: str) -> Sent:
        sent = super().resource(asked, name)
        if self.requests % 4 or sent.status != 200:
            return sent

        async def broken(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(sent.body) + sent.body[:-8])
            await writer.drain()

        return Sent(script=broken)


class GzipCoded(FleetSource):
    """Sends gzip to who takes it."""

    forced: ClassVar[bool] = False

    def answer(self, asked: Asked) -> Sent:
        sent = super().answer(asked)
        if sent.script or sent.status != 200 or not (self.forced or "gzip" in asked.headers.get("accept-encoding", "")):
            return sent
        fields = {name: text for name, text in sent.headers.items() if name != "ETag"} | {"Content-Encoding": "gzip"}
        return sent._replace(body=gzip.compress(sent.body, mtime=0), headers=fields)


class GzipForced(GzipCoded):
    forced = True


class WrongType(FleetSource):
    """Documents go as text/html."""

    def answer(self, asked: Asked) -> Sent:
        sent = super().answer(asked)
        if asked.target.startswith("/files/"):
            return sent
        return sent._replace(headers={**sent.headers, "Content-Type": "text/html"})


class WrongLength(FleetSource):
    """One listed length is wrong."""

    expects = SAYS_WHY

    def entry(self, name: str) -> str:
        said = super().entry(name)
        return said.replace('length="', 'length="9') if name == min(self.files) else said


class WrongHash(FleetSource):
    """One listed hash is wrong."""

    expects = SAYS_WHY

    def entry(self, name: str) -> str:
        before, mark, rest = super().entry(name).partition("sha-256:")
        return f"{before}{mark}{'0' * 8}{rest[8:]}" if name == min(self.files) else before + mark + rest


class PlainHttps(FleetSource):
    """Given as https, where a server speaks plain HTTP."""

    expects = SAYS_WHY

    @property
    def address(self) -> str:
        return super().address.replace("http:", "https:")


class MissingFile(FleetSource):
    """One listed file is 404."""

    expects = SAYS_WHY

    def resource(self, asked: Asked, name: str) -> Sent:
        return Sent(b"no", 404) if name == min(self.files) else super().resource(asked, name)


class OtherHost(FleetSource):
    """Files lie on another host."""

    expects = SAYS_WHY

    def resource(self, asked: Asked, name: str) -> Sent:
        return Sent(status=302, headers={"Location": f"{self.elsewhere}/files/{name}"})


class HtmlFor200(FleetSource):
    """From its first change on, one file is an error page with status 200, and no hash is listed."""

    expects = SAYS_WHY
    hash_of = None
    has_length = False

    def resource(self, asked: Asked, name: str) -> Sent:
        sent = super().resource(asked, name)
        if self.changes and name == max(self.files) and sent.status == 200:
            return sent._replace(body=PAGE, headers={**sent.headers, "Content-Type": "text/html"})
        return sent


# what happens in the course of time


class SetBack(FleetSource):
    """At its third round of changes it is restored from a backup of the time before the second."""

    expects = SAYS_WHY

    def change(self, updates: int = 2, deletes: int = 1, creates: int = 1) -> None:
        self.rounds = getattr(self, "rounds", 0) + 1
        if self.rounds == 2:
            self.kept: Any = dict(self.files), dict(self.lastmods), self.now, list(self.changes)
        if self.rounds < 3:
            super().change(updates, deletes, creates)
        elif self.rounds == 3:
            self.files, self.lastmods, self.now, self.changes = self.kept


class MassDeletion(FleetSource):
    """Its third round deletes nearly all."""

    expects = SAYS_WHY
    options: ClassVar[dict[str, object]] = {"max_delete": "30%"}

    def change(self, updates: int = 2, deletes: int = 1, creates: int = 1) -> None:
        self.rounds = getattr(self, "rounds", 0) + 1
        if self.rounds < 3:
            super().change(updates, 0, creates)
        elif self.rounds == 3:
            super().change(0, len(self.files) - 2, 0)


class Expired(FleetSource):
    """After its first round of changes it asks for a login."""

    expects = SAYS_WHY

    def answer(self, asked: Asked) -> Sent:
        return Sent(b"who are you?", 401, {"WWW-Authenticate": "Basic"}) if self.changes else super().answer(asked)


# who means harm


class Hangs(FleetSource):
    expects = SAYS_WHY

    async def respond(self, asked: Asked) -> Sent:
        self.requests += 1
        await asyncio.sleep(86_400)
        return Sent()


class Drips(FleetSource):
    """A byte a second."""

    expects = SAYS_WHY

    def answer(self, asked: Asked) -> Sent:
        sent = super().answer(asked)

        async def drip(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(sent.body))
            for octet in sent.body:
                writer.write(bytes([octet]))
                await writer.drain()
                await asyncio.sleep(1)

        return Sent(script=drip)


class AlwaysTooMany(FleetSource):
    expects = SAYS_WHY

    def answer(self, asked: Asked) -> Sent:
        self.requests += 1
        return Sent(b"too many", 429, {"Retry-After": "2"})


class EndlessList(FleetSource):
    """A Resource List of 10 GB, made while it is sent."""

    expects = SAYS_WHY
    octets: ClassVar[int] = 10 << 30

    def answer(self, asked: Asked) -> Sent:
        if asked.target != "/resourcelist.xml":
            return super().answer(asked)
        head, _, tail = super().resource_list().partition(b"<url>")
        block = b"".join(b"<url><loc>%s/files/BLOCK-%d.xml</loc></url>" % (self.base.encode(), n) for n in range(500))

        async def generate(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nConnection: close\r\n\r\n" + head)
            for number in range(self.octets // len(block)):
                writer.write(block.replace(b"BLOCK", b"%d" % number))
                await writer.drain()
            writer.write(b"<url>" + tail)

        self.requests += 1
        return Sent(script=generate)


class RedirectLoop(FleetSource):
    expects = SAYS_WHY

    def answer(self, asked: Asked) -> Sent:
        self.requests += 1
        return Sent(status=302, headers={"Location": f"{self.base}/around?{self.requests}"})


def _closing(sent: Sent, body: bytes) -> Sent:
    """The answer without a length, ended by the end of the connection."""

    async def write(writer: asyncio.StreamWriter) -> None:
        lines = "".join(f"{name}: {text}\r\n" for name, text in sent.headers.items())
        writer.write(f"HTTP/1.1 200 OK\r\n{lines}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()

    return Sent(script=write)


DEFECTIVE: dict[str, type[FleetSource]] = {
    "good": FleetSource, "nohash": NoHash, "lenonly": LengthOnly, "md5only": Md5Only, "dayonly": DayOnly, "noat": NoAt,
    "relative": Relative, "clnofrom": NoFrom, "clnodatetime": NoDatetime, "clindex": ChangeIndex,
    "rlnested": NestedIndex, "rlasurl": IndexOfUrls, "gzlist": GzippedList, "bom": ByteOrderMark, "latin1": Latin1,
    "slow": Slow, "r429": TooManyNowAndThen, "oddprefix": OddPrefix, "google": ImageSitemap, "cut": Cut,
    "gzcoded": GzipCoded, "forcegz": GzipForced, "robots": Robots, "sitemap": Sitemap, "amp": Ampersand,
    "ctype": WrongType, "wronglen": WrongLength, "wronghash": WrongHash, "https": PlainHttps, "res404": MissingFile,
    "otherhost": OtherHost, "dup": Duplicates, "ratelimit": RateLimit, "list404": MissingPart, "rlloop": Loop,
    "wrongcap": WrongCapability, "htmllist": HtmlList, "xxe": Entities, "garbage": Garbage, "leadspace": LeadingSpace,
    "latin1bad": Latin1Undeclared, "r503": UnavailableNowAndThen, "html200": HtmlFor200, "rlwrongroot": WrongRoot,
    "silentcut": SilentCut, "changing": Changing, "setback": SetBack, "massdelete": MassDeletion, "expired": Expired,
}  # fmt: skip
"""The trial's sources by the names that they have there, and what may befall a source later."""

HOSTILE: dict[str, type[FleetSource]] = {
    "hangs": Hangs, "drips": Drips, "always429": AlwaysTooMany, "endless": EndlessList, "redirloop": RedirectLoop,
}  # fmt: skip
