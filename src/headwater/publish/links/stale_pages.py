"""Which pages have entries whose links are no longer right, because a partner has come, changed or gone elsewhere.

The catalog does not know: no event has touched the page. So a publication looks at the changes since the last one, and
pages with partners of what has changed count as stale from then on.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from headwater.catalog.interface import Catalog, Page, SetSnapshot
from headwater.publish.links.link_sources import partner_finder
from headwater.publish.links.rules import LinkRules
from headwater.publish.publication_state import PublicationState

_CHANGES = 5_000
_URIS = 1_000


def with_stale_pages(
    catalog: Catalog, rules: LinkRules, snapshot: SetSnapshot, publication: PublicationState, now: dt.datetime
) -> PublicationState:
    """The publication state with the pages that changes since the last look have made stale.

    Raises the catalog's faults.
    """
    find, name, last = partner_finder(rules), snapshot.state.name, snapshot.state.last_seq
    if find is None or publication.linked_seq >= last:
        return publication
    since, after = dict(publication.stale_links), publication.linked_seq
    while after < last and (changes := catalog.changes(name, after, _CHANGES)):
        uris = list(dict.fromkeys(other for one in changes for other in find(one.uri)))
        for start in range(0, len(uris), _URIS):
            for other in catalog.get(name, uris[start : start + _URIS]).values():
                since.setdefault(other.page, now)
        after = changes[-1].seq
    return msgspec.structs.replace(publication, linked_seq=last, stale_links=tuple(sorted(since.items())))


def as_stale(pages: Sequence[Page], publication: PublicationState) -> Sequence[Page]:
    """The pages for planning: one with links that are not right any more is stale like one that an event touched."""
    since = dict(publication.stale_links)
    if not since:
        return pages
    return [_stale(page, since[page.number]) if page.number in since else page for page in pages]


def _stale(page: Page, since: dt.datetime) -> Page:
    if page.touched > page.rendered:
        return page
    return msgspec.structs.replace(page, touched=page.rendered + 1, stale_at=since)
