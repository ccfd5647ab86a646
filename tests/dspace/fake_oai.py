"""A DSpace repository that also answers OAI-PMH, as DSpace does: its tokens count records from the beginning.

An item that was deleted for good is gone from its lists without a word; one that is withdrawn or private is deleted.
"""

from __future__ import annotations

import datetime as dt
import socket
from urllib.parse import parse_qsl, urlsplit

from tests.dspace.fake_dspace import FakeDSpace
from tests.dspace.fake_dspace import Item as DSpaceItem
from tests.support.fake_repository import FakeRepository, Item, dc
from tests.support.scripted_server import Request

PATH = "/server/oai/request"


class FakeDSpaceWithOai(FakeDSpace):
    """Both interfaces of one repository; `oai` answers the second one, at `oai_url`."""

    def __init__(self) -> None:
        self.oai = FakeRepository(page=25, deletions="transient")
        super().__init__()
        self.oai.url = self.oai_url

    @property
    def oai_url(self) -> str:
        return f"{self.base}{PATH}"

    def respond(self, request: Request, connection: socket.socket) -> bytes | None:
        parts = urlsplit(request.target)
        if parts.path != PATH:
            return super().respond(request, connection)
        with self.lock:
            self.before(request)
            self.oai.now = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ}"
            self.oai.items = {one.identifier: one for one in map(self._listed, self.items.values())}
            return self.oai.answer(dict(parse_qsl(parts.query, keep_blank_values=True)))

    def oai_truth(self) -> dict[str, str]:
        """The titles of the records that are not deleted, by their identifiers."""
        return {self._listed(one).identifier: one.title for one in self.items.values() if one.is_public}

    def _listed(self, item: DSpaceItem) -> Item:
        handle = f"123456789/{item.accessioned}"
        told = dc(title=item.title, identifier=f"{self.base}/handle/{handle}")
        sets = (f"col_{item.collection}",)
        return Item(
            f"oai:repository.example:{handle}", f"{item.modified[:19]}Z", {"oai_dc": told}, sets, not item.is_public
        )
