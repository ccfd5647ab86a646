"""A source with a past, written by hand: it keeps what its folder was, and shows it by archives and by versions."""

from __future__ import annotations

import datetime as dt
from email.utils import format_datetime as http_date
from typing import Any
from urllib.parse import urlsplit

from headwater.spec.times import to_microseconds
from headwater.sync.source_times import http_date_micros
from tests.support.fake_source import Handler, Reply, Site, Source, at, document, ln, sha, url
from tests.support.waiting import START


class History:
    """The life of one set. Times are seconds after `START`; fractions are told to the microsecond."""

    def __init__(self, source: Source, *, hashes: bool = True) -> None:
        self.site = Site(source)
        self.source = source
        self.hashes = hashes
        self.states: dict[str, list[tuple[float, bytes | None]]] = {}
        self.changes: list[tuple[float, str, str, bytes | None]] = []
        self.archived: list[tuple[float, str]] = []
        self.lists: list[tuple[float, float, str]] = []
        self.link = self.link_versions
        self.clock = 0.0

    def put(self, when: float, name: str, body: bytes) -> None:
        kind = "updated" if self.at(when).get(name) is not None else "created"
        self._note(when, kind, name, body)

    def drop(self, when: float, name: str) -> None:
        self._note(when, "deleted", name, None)

    def _note(self, when: float, kind: str, name: str, body: bytes | None) -> None:
        self.states.setdefault(name, []).append((when, body))
        self.changes.append((when, kind, name, body))
        self.clock = when

    def at(self, when: float) -> dict[str, bytes]:
        """What the set had at a time."""
        found = {}
        for name, states in self.states.items():
            last = [body for moment, body in states if moment <= when][-1:]
            if last and last[0] is not None:
                found[name] = last[0]
        return found

    # what it shows

    def link_versions(self, name: str, when: float | None) -> str:
        """The links of an entry: to the version of a change, to the TimeGate and to the TimeMap."""
        base, links = self.source.base, ""
        if when is not None:
            links += ln("memento", f"{base}/version/{when}/{name}")
        return links + ln("timegate", f"{base}/timegate/{name}") + ln("timemap", f"{base}/timemap/{name}")

    @staticmethod
    def no_links(name: str, when: float | None) -> str:
        return ""

    def entry(self, name: str, body: bytes) -> str:
        known: dict[str, Any] = {"hash": sha(body), "length": len(body)} if self.hashes else {}
        return url(self.site.uri(name), links=self.link(name, None), **known)

    def change(self, change: tuple[float, str, str, bytes | None]) -> str:
        when, kind, name, body = change
        known: dict[str, Any] = {"hash": sha(body), "length": len(body)} if body is not None and self.hashes else {}
        links = self.link(name, when if body is not None else None)
        return url(self.site.uri(name), links=links, change=kind, datetime=at(when), **known)

    def snapshot(self, when: float, path: str = "") -> str:
        """A Resource List as of a time; under `path` an archived one."""
        entries = [self.entry(name, body) for name, body in self.at(when).items()]
        body = document(entries, links=self.site.up(), capability="resourcelist", at=at(when))
        self.site.serve(path or "/set/resourcelist.xml", body)
        if path:
            self.archived.append((when, path))
        return path

    def changelist(self, since: float, until: float | None, path: str = "", *, drop: bool = False) -> None:
        """A Change List from a time on, up to another one."""
        end = until if until is not None else 1e9
        entries = [self.change(change) for change in self.changes if since <= change[0] < end]
        times = {"from": at(since)} | ({} if until is None else {"until": at(until)})
        body = document(entries, links=self.site.up(), capability="changelist", **times)
        self.site.serve(path or "/set/changelist.xml", body)
        if path:
            self.lists.append((since, end, path))

    def publish(self, *, archives: bool = True) -> str:
        """The Capability List, the archives, and the resources as they are; returns the address of the source."""
        base = self.source.base
        capabilities = [name for name in ("resourcelist", "changelist") if f"/set/{name}.xml" in self.source.pages]
        if archives and self.archived:
            entries = [url(base + path, capability=None, at=at(when)) for when, path in self.archived]
            self._archive("resourcelist-archive", entries)
            capabilities.append("resourcelist-archive")
        if archives and self.lists:
            entries = [url(base + path, **{"from": at(a), "until": at(b)}) for a, b, path in self.lists]
            self._archive("changelist-archive", entries)
            capabilities.append("changelist-archive")
        self.site.publish_capabilities(*capabilities)
        self.site.publish_description()
        for name, body in self.at(1e9).items():
            self.source.pages[f"/set/resources/{name}"] = Reply(body)
        return f"{base}/set/capabilitylist.xml"

    def _archive(self, capability: str, entries: list[str]) -> None:
        self.site.serve(f"/set/{capability}.xml", document(entries, links=self.site.up(), capability=capability))

    def serve_versions(self) -> None:
        """Every version at its own address, a TimeGate and a TimeMap for each resource (RFC 7089)."""
        for name, states in self.states.items():
            for when, body in states:
                if body is not None:
                    self.source.pages[f"/version/{when}/{name}"] = self.memento(name, when, body)
            self.source.pages[f"/timegate/{name}"] = self.timegate
            self.source.pages[f"/timemap/{name}"] = Reply(
                self.timemap(name).encode(), headers={"Content-Type": "application/link-format"}
            )

    def memento(self, name: str, when: float, body: bytes) -> Reply:
        headers = {
            "Memento-Datetime": http_date(moment_of(when), usegmt=True),
            "Link": f'<{self.site.uri(name)}>; rel="original"',
        }
        return Reply(body, headers=headers)

    def timegate(self, handler: Handler) -> Reply:
        """302 to the last version until the time that is asked for, 404 where there was none."""
        name = urlsplit(handler.path).path.removeprefix("/timegate/")
        wanted = http_date_micros(handler.headers.get("Accept-Datetime")) or 1 << 60
        best = [(when, body) for when, body in self.states[name] if second_of(when) <= wanted][-1:]
        if not best or best[0][1] is None:
            return Reply(b"", 404, {"Vary": "accept-datetime"})
        return Reply(b"", 302, {"Location": f"/version/{best[0][0]}/{name}", "Vary": "accept-datetime"})

    def timemap(self, name: str) -> str:
        lines = [f'<{self.site.uri(name)}>; rel="original"', f'<{self.source.base}/timemap/{name}>; rel="self"']
        base = self.source.base
        lines += [
            f'<{base}/version/{when}/{name}>; rel="memento"; datetime="{http_date(moment_of(when), usegmt=True)}"'
            for when, body in self.states[name]
            if body is not None
        ]
        return ",\n ".join(lines)


def second_of(when: float) -> int:
    """The whole second of a time, in microseconds."""
    return to_microseconds(moment_of(when)) // 10**6 * 10**6


def moment_of(when: float) -> dt.datetime:
    return START + dt.timedelta(seconds=when)
