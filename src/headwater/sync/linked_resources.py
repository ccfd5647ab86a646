"""Choices that go by links: preferred alternates in their resources' places (DST-S3), metadata records (RS-DST-16).

Of a set whose choice goes by links all that is listed is remembered with its links, chosen or not, in `listing`. What
is copied is a function of that. `temp.present` has what is listed now: what is remembered, with the list or the changes
that were read. `temp.copied` is the same with alternates in their resources' places. It goes back to the staged tables:
whoever reads these knows nothing of alternates. `temp.described` has which record describes what. What is remembered
follows when all that a list or changes said is done (`keep_listing`).
"""

from collections.abc import Callable, Sequence

from headwater.patches import essence_of
from headwater.spec.records import Link
from headwater.spec.uris import normalise
from headwater.storage.transaction import Transaction
from headwater.sync.connection import REFUSALS, Scope
from headwater.sync.lists.entries import all_links, encode_links, links_of
from headwater.sync.lists.position import NEVER
from headwater.sync.options import Choice, Stated, fits
from headwater.sync.source_times import micros
from headwater.sync.state import LISTED_COLUMNS

# what is listed

_COLUMNS = f"{LISTED_COLUMNS}, refused, at, latest, exact, is_change"
_RECALL = f"INSERT INTO temp.present({_COLUMNS}, is_news) SELECT {_COLUMNS}, 0 FROM listing WHERE set_id = :set"  # noqa: S608
_LATER = "(is_change AND at > :at)"
_ADD_LISTED = f"""
INSERT OR REPLACE INTO temp.present({_COLUMNS}, is_news) SELECT {LISTED_COLUMNS}, refused, :at, NULL, 0, 0, 1
FROM temp.listed l WHERE NOT EXISTS (SELECT 1 FROM listing k WHERE k.set_id = :set AND k.uri = l.uri AND {_LATER})
  AND NOT EXISTS (SELECT 1 FROM resources r
    WHERE r.set_id = :set AND r.uri = l.uri AND r.path IS NULL AND r.changed_at > :at)
ORDER BY n"""  # noqa: S608  our own names
"""DST-B2: what a later change has said of a resource is not this list's to judge."""

_TAKE_CHANGED = """
DELETE FROM temp.present AS p WHERE EXISTS (SELECT 1 FROM temp.changed c WHERE c.uri = p.uri AND c.pending
  AND NOT coalesce(p.is_change AND c.exact AND p.at > c.at, 0))"""
_ADD_CHANGED = f"""
INSERT OR IGNORE INTO temp.present({_COLUMNS}, is_news) SELECT {LISTED_COLUMNS}, refused, at, latest, exact, 1, 1
FROM temp.changed WHERE pending AND change <> 'deleted' ORDER BY n"""  # noqa: S608
_KEEP = (
    "DELETE FROM listing WHERE set_id = ?1 AND uri NOT IN (SELECT uri FROM temp.present WHERE NOT is_news)",
    f"INSERT INTO listing(set_id, {_COLUMNS}) SELECT ?1, {_COLUMNS} FROM temp.present WHERE is_news",  # noqa: S608
)


def recall_listing(t: Transaction, set_id: int) -> None:
    """Have in `temp.present` what is remembered."""
    t.run("DELETE FROM temp.present")
    t.run(_RECALL, {"set": set_id})
    _describe(t)


def put_listed(
    t: Transaction, set_id: int, at: int | None, types: Sequence[str], scope: Scope, *, complete: bool
) -> None:
    """Have in `temp.present` what the list in `temp.listed` says, and later changes; then that in terms of alternates.

    `at`: of when the list is; None: there are no later changes. `complete`: what it does not have is not listed.
    """
    t.run("DELETE FROM temp.present")
    values = {"set": set_id, "at": at}
    t.run(f"{_RECALL} AND {_LATER}" if complete else _RECALL, values)
    t.run(_ADD_LISTED, values)
    if types:
        _represent(t, types, scope)
        t.run("DELETE FROM temp.listed")
        columns = f"{LISTED_COLUMNS}, refused"
        t.run(f"INSERT INTO temp.listed({columns}) SELECT {columns} FROM temp.copied ORDER BY n")  # noqa: S608
    else:
        _describe(t)


def put_changed(t: Transaction, set_id: int, types: Sequence[str], scope: Scope) -> None:
    """The same for the pending changes, each of which is the last one of its resource.

    A resource in whose place an alternate is copied is deleted itself; so is what a changed one was copied as, where
    nothing else is.
    """
    recall_listing(t, set_id)
    formers = _formers(t, types)
    t.run(_TAKE_CHANGED)
    t.run(_ADD_CHANGED)
    if not types:
        _describe(t)
        return
    _represent(t, types, scope, with_changes=True)
    news = "UPDATE temp.copied SET is_news = 1, exact = 0 WHERE uri = ? AND NOT is_news"
    t.many(news, ((uri,) for uri in formers))
    for statement in _PUT_COPIED:
        t.run(statement)
    last = t.value("SELECT max(coalesce(at, latest)) FROM temp.changed")  # as far as anybody knows
    t.many(_PUT_FORMER, ((uri, last) for uri in formers))


def keep_listing(t: Transaction, set_id: int) -> None:
    """Remember what is listed now."""
    for statement in _KEEP:
        t.run(statement, (set_id,))
    t.run("UPDATE temp.present SET is_news = 0 WHERE is_news")


_RELEASE = """
UPDATE resources SET changed_at = NULL WHERE set_id = ?1 AND path IS NOT NULL
AND uri NOT IN (SELECT uri FROM listing WHERE set_id = ?1) AND EXISTS (SELECT 1 FROM listing WHERE set_id = ?1)"""


def release_alternates(t: Transaction, set_id: int) -> None:
    """Let the list of another choice judge what is held and not listed itself, whatever change has brought it."""
    t.run(_RELEASE, (set_id,))


def forget_listing(t: Transaction, set_id: int) -> None:
    """Forget it for a set whose choice does not ask for it."""
    t.run("DELETE FROM listing WHERE set_id = ?", (set_id,))


# preferred alternates


def preferred_alternate(types: Sequence[str], own: str | None, alternates: Sequence[Link]) -> Link | None:
    """The alternate that is copied in place of `loc`, whose type is `own`; None: `loc` itself.

    The first of `types` that anything has decides; `loc` counts before alternates of the same type, of those the one
    with the best `pri`, then the first. An alternate without a type is never chosen.
    """
    for wanted in map(essence_of, types):
        if fits(wanted, own):
            return None
        found = [link for link in alternates if fits(wanted, link.type)]
        if found:
            return min(found, key=lambda link: link.pri or 999_999)
    return None


def accept_header(types: Sequence[str]) -> str:
    """What is asked of a generic URI: the preferred types in their order, then anything (RFC 9110, 12.5.1)."""
    wanted = [essence_of(text) for text in types[:9]]
    return ", ".join([*(f"{text};q={1 - 0.1 * n:.1f}" if n else text for n, text in enumerate(wanted)), "*/*;q=0.05"])


_CHUNK = 2_000
_LIKE = """links LIKE '%"alternate"%'"""
_COPIED = f"n, {_COLUMNS}, is_news"

_COPY = f"INSERT OR REPLACE INTO temp.copied({_COPIED}, is_link) SELECT {_COPIED}, 0 FROM temp.present WHERE "  # noqa: S608
_COPY_LINKED = f"""
INSERT OR IGNORE INTO temp.copied({_COPIED}, is_link)
SELECT n, ?, ?, ?, ?, ?, ?, ?, ?, NULL, ?, at, latest, exact, is_change, is_news, 1 FROM temp.present WHERE n = ?"""  # noqa: S608
_LINKED = f"""
SELECT n, uri, type, links, is_news, at FROM temp.present WHERE n < ? AND {_LIKE} ORDER BY n DESC LIMIT {_CHUNK}"""  # noqa: S608
_IS_DELETED = "SELECT 1 FROM temp.changed WHERE uri = ? AND pending AND change = 'deleted' AND coalesce(at > ?, NOT ?)"

_NAMED = "SELECT uri FROM temp.changed WHERE pending"
_PUT_COPIED = (
    "UPDATE temp.changed SET pending = 0 WHERE pending AND uri IN (SELECT uri FROM temp.copied WHERE is_link)",
    "UPDATE temp.changed SET refused = iif(change = 'deleted', refused, 0), change = 'deleted'"
    " WHERE pending AND uri NOT IN (SELECT uri FROM temp.copied)",
    f"INSERT INTO temp.changed({LISTED_COLUMNS}, change, at, latest, exact, refused, pending)"  # noqa: S608
    f" SELECT {LISTED_COLUMNS}, 'updated', at, latest, exact, refused, 1 FROM temp.copied"
    f" WHERE is_news AND uri NOT IN ({_NAMED}) ORDER BY n",
)
_PUT_FORMER = """
INSERT INTO temp.changed(uri, change, at, exact, refused, pending) SELECT ?1, 'deleted', ?2, 0, 0, 1
WHERE NOT EXISTS (SELECT 1 FROM temp.copied WHERE uri = ?1)
AND NOT EXISTS (SELECT 1 FROM temp.changed WHERE uri = ?1 AND pending)"""


def _formers(t: Transaction, types: Sequence[str]) -> list[str]:
    """As what the resources that have changed were copied, where that was an alternate."""
    rows = t.rows(f"SELECT type, links FROM temp.present WHERE {_LIKE} AND uri IN ({_NAMED})")  # noqa: S608
    chosen = (preferred_alternate(types, type_, links_of(links, "alternate")) for type_, links in rows)
    return [normalise(link.href) for link in chosen if link is not None]


def _represent(t: Transaction, types: Sequence[str], scope: Scope, *, with_changes: bool = False) -> None:
    """Fill `temp.copied` from `temp.present`: URI and attributes of the link, and a link back (RS-REL-03).

    Two resources may share an alternate, and the later one counts; an entry of its own says more of it than both.
    `with_changes`: a resource whose alternate is deleted later, by a change of its own, comes back itself.
    """
    t.run("DELETE FROM temp.copied")
    t.run(f"{_COPY} links IS NULL OR NOT {_LIKE}")
    last = NEVER
    while rows := t.fetch(_LINKED, (last,)):
        last, own, linked = rows[-1][0], [], []
        for n, uri, type_, links, is_news, at in rows:
            link = preferred_alternate(types, type_, links_of(links, "alternate"))
            if link is None:
                own.append((n,))
                continue
            target = normalise(link.href)
            if with_changes and t.one(_IS_DELETED, (target, at, is_news)) is not None:
                kept = [one for one in all_links(links) if one.rel != "alternate"]
                change = "UPDATE temp.present SET links = ?, is_news = 1, exact = 0 WHERE n = ?"
                t.run(change, (encode_links(kept) if kept else None, n))
                own.append((n,))
                continue
            refusal = scope.refusal(link.href)
            refused = 0 if refusal is None else 1 + REFUSALS.index(refusal)
            loc = None if target == link.href else link.href
            stated = micros(link.modified), link.length, link.hash, link.type, link.encoding
            linked.append((target, loc, *stated, encode_links([Link(rel="canonical", href=uri)]), refused, n))
        t.many(f"{_COPY} n = ?", own)
        t.many(_COPY_LINKED, linked)


_REPLACED = f"""
SELECT d.id, p.type, p.links FROM temp.deletions d JOIN resources r ON r.id = d.id
JOIN temp.present p ON p.uri = r.uri AND p.{_LIKE}"""  # noqa: S608
_IS_HELD = "SELECT 1 FROM resources WHERE set_id = ? AND uri = ? AND path IS NOT NULL"


def hold_needed(t: Transaction, set_id: int, types: Sequence[str]) -> None:
    """Let no resource be deleted that an alternate takes the place of, as long as that could not be had (DST-V5)."""
    for number, type_, links in list(t.rows(_REPLACED)):
        link = preferred_alternate(types, type_, links_of(links, "alternate"))
        if link is not None and t.one(_IS_HELD, (set_id, normalise(link.href))) is None:
            t.run("UPDATE resources SET doomed_at = 0 WHERE id = ? AND doomed_at IS NULL", (number,))
            t.run("DELETE FROM temp.deletions WHERE id = ?", (number,))


# metadata records

Takes = Callable[[str, bytes, Stated], bool]
"""Whether a resource with this URI and path, of which this is stated, is chosen, by what is listed at the moment of the
question."""

_DESCRIBING = """SELECT uri, links FROM temp.present WHERE NOT refused AND links LIKE '%"describ%'"""
_UNNAMED = f"""
SELECT p.n, p.uri, p.refused, r.path, p.type, p.length, p.lastmod, p.links FROM temp.present p
LEFT JOIN resources r ON r.set_id = ?1 AND r.uri = p.uri AND r.path IS NOT NULL
WHERE p.n > ?2 AND NOT p.is_news AND NOT EXISTS (SELECT 1 FROM temp.changed c WHERE c.uri = p.uri AND c.pending)
AND NOT EXISTS (SELECT 1 FROM failures f WHERE f.set_id = ?1 AND f.uri = p.uri)
AND NOT coalesce(r.listed_hash IS p.hash AND r.listed_length IS p.length AND r.lastmod IS p.lastmod
  AND r.path IS NOT NULL, 0) ORDER BY p.n LIMIT {_CHUNK}"""  # noqa: S608
"""What no change names, and is not held, or as it was when it was left out."""

_ADD_UNNAMED = (
    f"INSERT INTO temp.changed({LISTED_COLUMNS}, change, at, latest, exact, refused, pending)"  # noqa: S608
    f" SELECT {LISTED_COLUMNS}, 'updated', at, latest, 0, 0, 1 FROM temp.present WHERE n = ?"
)
_ADD_REFUSED = (
    "INSERT INTO temp.refused(uri, type, length, lastmod, links, change, at, refused)"
    " SELECT uri, type, length, lastmod, links, 'updated', at, refused FROM temp.present WHERE n = ?"
)


def _describe(t: Transaction) -> None:
    """Fill `temp.described` from what is listed."""
    t.run("DELETE FROM temp.described")
    for uri, links in t.rows(_DESCRIBING):
        told = [(uri, normalise(link.href)) for link in links_of(links, "describedby")]
        told += [(normalise(link.href), uri) for link in links_of(links, "describes")]
        t.many("INSERT OR IGNORE INTO temp.described VALUES (?, ?)", [one for one in told if one[0] != one[1]])


def add_chosen(t: Transaction, set_id: int, takes: Takes, path: Callable[[str], bytes]) -> None:
    """Add to the pending changes what none of them names, and is chosen by what they state."""
    last = 0
    while rows := t.fetch(_UNNAMED, (set_id, last)):
        last = rows[-1][0]
        for n, uri, refused, held, *stated in rows:
            if takes(uri, path(uri) if held is None else held, Stated(*stated)):
                t.run(_ADD_REFUSED if refused else _ADD_UNNAMED, (n,))


_IS_DESCRIBED = "SELECT 1 FROM temp.described WHERE content = ? LIMIT 1"
_CONTENTS = """
SELECT d.content, r.path, p.type, p.length, p.lastmod, p.links FROM temp.described d
JOIN temp.present p ON p.uri = d.content AND NOT p.refused
LEFT JOIN resources r ON r.set_id = ? AND r.uri = d.content WHERE d.record = ?"""
"""What a record describes, as far as it is listed itself: a link to something else chooses nothing."""


Own = Callable[[str, bytes | None, Stated | None], bool]


def is_chosen(
    t: Transaction, set_id: int, choice: Choice, own: Own, uri: str, path: bytes, stated: Stated | None
) -> bool:
    """Whether a resource is copied, by what is listed now.

    `own` says whether the filters let one in, whose path is None where it has none yet. A record of what is chosen for
    itself is chosen with it. A record of a record is not chosen by this, so that circles choose nothing.
    """
    if choice.skips(uri):
        return False
    is_own = own(uri, path, stated)
    if is_own and (not choice.only_described or t.one(_IS_DESCRIBED, (uri,)) is not None):
        return True
    contents = t.rows(_CONTENTS, (set_id, uri))
    return (is_own or choice.with_metadata) and any(own(content, at, Stated(*said)) for content, at, *said in contents)
