"""Dumps of a fake source: packages as a test wants them, the lists of them, and answers on demand."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from itertools import pairwise
from typing import Any

from headwater.spec.kinds import DUMP, HEADWATER
from tests.support.fake_source import Handler, Reply, Site, at, document, ln, sha, url

Members = Mapping[str, bytes]


def zipped(members: Iterable[tuple[str, bytes]], *, deflate: bool = False) -> bytes:
    """A ZIP file of these members in their order, each with its sizes in front of it."""
    buffer = BytesIO()
    method = zipfile.ZIP_DEFLATED if deflate else zipfile.ZIP_STORED
    with zipfile.ZipFile(buffer, "w", method) as made:
        for name, octets in members:
            made.writestr(zipfile.ZipInfo(name), octets, compress_type=method)
    return buffer.getvalue()


class Dumps:
    """What a site offers beside its lists; `publish` puts it into its Capability List."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.asked: list[list[str]] = []
        """The URIs of each request on demand."""

        self.deflate: list[bool] = []
        """Whether each asks for deflated members."""

    def path(self, name: str) -> str:
        return f"resources/{name}"

    def manifest(self, names: Iterable[str], kind: str = "resourcedump-manifest", **more: Any) -> bytes:
        """A manifest of files of the site, by their names."""
        entries = [self.site.resource(name, path="/" + self.path(name)) for name in names]
        attributes: dict[str, Any] = {"capability": kind, "at": at(self.site.clock)} | more
        return document(entries, links=self.site.up(), **attributes)

    def package(
        self, names: Iterable[str] | None = None, *, manifest: bytes | None = None, deflate: bool = True
    ) -> bytes:
        """A package of files of the site, its manifest first."""
        names = list(self.site.files if names is None else names)
        first = self.manifest(names) if manifest is None else manifest
        members = [(self.path(name), self.site.files[name]) for name in names]
        return zipped([("manifest.xml", first), *members], deflate=deflate)

    def serve_package(self, name: str, octets: bytes) -> str:
        """Serve a package; returns its entry in the dump."""
        path = f"/{self.site.name}/{name}"
        self.site.source.pages[path] = Reply(octets, headers={"Content-Type": "application/zip"})
        return self.entry(name, octets)

    def entry(self, name: str, octets: bytes, **more: Any) -> str:
        """The entry of a package in the dump."""
        listed: dict[str, Any] = {
            "type": "application/zip", "length": len(octets), "hash": sha(octets), "at": at(self.site.clock)
        } | more  # fmt: skip
        return url(f"{self.site.root}/{name}", **listed)

    def served(self, name: str) -> Reply:
        """What is served under a name in the folder of the site."""
        reply = self.site.source.pages[f"/{self.site.name}/{name}"]
        assert isinstance(reply, Reply)
        return reply

    def serve_contents(self, name: str, octets: bytes) -> str:
        """Serve a copy of the manifest of a package; returns the link to it."""
        with zipfile.ZipFile(BytesIO(octets)) as package:
            self.site.serve(f"/{self.site.name}/{name}", package.read("manifest.xml"))
        return ln("contents", f"{self.site.root}/{name}", type="application/xml")

    def publish_dump(self, entries: Iterable[str], kind: str = "resourcedump", **more: Any) -> None:
        """The Resource Dump (or Change Dump) with these entries."""
        attributes: dict[str, Any] = {"capability": kind, "at": at(self.site.clock)} | more
        self.site.serve(f"/{self.site.name}/{kind}.xml", document(entries, links=self.site.up(), **attributes))

    def publish_packages(self, *packages: bytes) -> None:
        """A Resource Dump of these packages."""
        self.publish_dump([self.serve_package(f"p{number}.zip", octets) for number, octets in enumerate(packages)])

    def change_package(self, changes: Sequence[tuple[float, str, str, bytes | None]], **head: Any) -> bytes:
        """A package of changes of the site, each with the state after it."""
        entries: list[str] = []
        members: list[tuple[str, bytes]] = []
        for number, (when, kind, name, body) in enumerate(changes):
            path = f"changes/{number}/{name}"
            entries.append(self.site.change(when, kind, name, body, path=None if body is None else f"/{path}"))
            if body is not None:
                members.append((path, body))
        attributes: dict[str, Any] = {"capability": "changedump-manifest"} | head
        return zipped([("manifest.xml", document(entries, links=self.site.up(), **attributes)), *members])

    def publish_change_packages(self, *bounds: float) -> None:
        """A Change Dump of a package for the changes between any two of these moments."""
        entries: list[str] = []
        for number, (since, until) in enumerate(pairwise(bounds)):
            changes = [change for change in self.site.changes if since <= change[0] < until]
            interval = {"from": at(since), "until": at(until)}
            octets = self.change_package(changes, **interval)
            self.serve_package(f"c{number}.zip", octets)
            entries.append(self.entry(f"c{number}.zip", octets, at=None, **interval))
        self.publish_dump(entries, kind="changedump", at=None, **{"from": at(bounds[0])})

    def offer_demand(
        self, answer: Callable[[list[str]], Reply] | None = None, *, resources: int = 10, octets: int = 1 << 30
    ) -> str:
        """Serve packages on demand; returns the link by which a Capability List offers them."""

        def reply(handler: Handler) -> Reply:
            asked = json.loads(handler.body)
            uris = asked["uris"]
            self.asked.append(uris)
            self.deflate.append(asked.get("deflate", True))
            return Reply(self.on_demand(uris), etag=False) if answer is None else answer(uris)

        self.site.source.posts[f"/{self.site.name}/dump"] = reply
        limits = f'hw:resources="{resources}" hw:octets="{octets}" hw:requests="3"'
        href = f"{self.site.root}/dump"
        return f'<rs:ln xmlns:hw="{HEADWATER}" rel="{DUMP}" href="{href}" type="application/zip" {limits}/>'

    def on_demand(self, uris: Iterable[str]) -> bytes:
        """A package of what was asked for and is there, its manifest last."""
        names = [uri.removeprefix(self.site.uri("")) for uri in uris]
        there = [name for name in names if name in self.site.files]
        members = [(self.path(name), self.site.files[name]) for name in there]
        return zipped([*members, ("manifest.xml", self.manifest(there))])

    def publish(self, *capabilities: str, demand: bool = False) -> None:
        """The Capability List with the lists and these."""
        links = self.offer_demand() if demand else ""
        self.site.publish_capabilities("resourcelist", "changelist", *capabilities, links=links)


def etag_of(octets: bytes) -> str:
    return f'"{hashlib.sha256(octets).hexdigest()[:32]}"'


__all__ = ["Dumps", "etag_of", "ln", "zipped"]
