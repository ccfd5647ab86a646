"""Staged lists in terms of preferred alternates: the row of a resource becomes that of the one that is copied (DST-S3).

Whoever reads the staged tables then knows nothing of alternates: each is a resource under its own URI, with what its
link says of it. Which alternate stands for which resource is remembered (`representations`), because a deletion names
the resource alone; what is remembered follows when all that a list said is done."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.spec.records import Link
from headwater.spec.uris import normalise
from headwater.storage.transaction import Transaction
from headwater.sync.connection import REFUSALS, Scope
from headwater.sync.lists.entries import encode_links, links_of
from headwater.sync.source_times import micros


def essence(text: str | None) -> str:
    """Type and subtype alone, in lower case."""
    return (text or "").partition(";")[0].strip().lower()


def preferred_alternate(types: Sequence[str], own: str | None, alternates: Sequence[Link]) -> Link | None:
    """The alternate that is copied in place of `loc`, whose type is `own`; None: `loc` itself.

    The first of `types` that anything has decides; `loc` counts before alternates of the same type, of those the one
    with the best `pri`, then the first. An alternate without a type is never chosen.
    """
    for wanted in map(essence, types):
        if fits(wanted, own):
            return None
        found = [link for link in alternates if fits(wanted, link.type)]
        if found:
            return min(found, key=lambda link: link.pri or 999_999)
    return None


def fits(wanted: str, given: str | None) -> bool:
    """Whether a media type is the one that is wanted."""
    said = essence(given)
    return said == wanted or (wanted.endswith("/*") and said.startswith(wanted[:-1]))


def accept_header(types: Sequence[str]) -> str:
    """What is asked of a generic URI: the preferred types in their order, then anything (RFC 9110, 12.5.1)."""
    wanted = [essence(text) for text in types[:9]]
    return ", ".join([*(f"{text};q={1 - 0.1 * n:.1f}" if n else text for n, text in enumerate(wanted)), "*/*;q=0.05"])


_CHUNK = 2_000
_LIKE = """links LIKE '%"alternate"%'"""

_LISTED = f"SELECT n, uri, type, links FROM temp.listed WHERE n > ? AND {_LIKE} ORDER BY n LIMIT {_CHUNK}"  # noqa: S608
_CHANGED = f"""
SELECT c.n, c.uri, c.type, c.links, c.change, m.uri FROM temp.changed c
LEFT JOIN representations m ON m.set_id = ? AND m.generic = c.uri
WHERE c.n > ? AND c.pending AND (c.{_LIKE} OR m.uri IS NOT NULL) ORDER BY c.n LIMIT {_CHUNK}"""  # noqa: S608
_REPLACE = (
    "UPDATE temp.{} SET uri = ?, loc = ?, lastmod = ?, length = ?, hash = ?, type = ?, encoding = ?, links = ?,"
    " extra = NULL, refused = ? WHERE n = ?"
)
_STAND = "INSERT OR REPLACE INTO temp.represented(generic, uri, n) VALUES (?, ?, ?)"

_OUTDONE = """
DELETE FROM temp.listed WHERE n IN (SELECT n FROM temp.represented) AND EXISTS (
  SELECT 1 FROM temp.listed AS o WHERE o.uri = listed.uri AND o.n <> listed.n
  AND (o.n > listed.n OR o.n NOT IN (SELECT n FROM temp.represented WHERE n IS NOT NULL)))"""
"""Two resources may share an alternate, and it may have an entry of its own, which says more of it."""

_OWN_ENTRIES = """
INSERT OR IGNORE INTO temp.represented(generic, uri) SELECT c.uri, c.uri FROM temp.changed c
WHERE c.pending AND c.change <> 'deleted' AND c.n NOT IN (SELECT n FROM temp.represented WHERE n IS NOT NULL)
  AND (c.uri IN (SELECT uri FROM temp.represented)
    OR EXISTS (SELECT 1 FROM representations m WHERE m.set_id = ? AND m.uri = c.uri))"""
"""Alternates with an entry of their own, which outlives what they stand for."""

_LEFT = """
SELECT c.n, m.generic FROM temp.changed c JOIN representations m ON m.set_id = ? AND m.uri = c.uri
WHERE c.pending AND c.change = 'deleted' AND m.generic <> c.uri
  AND NOT EXISTS (SELECT 1 FROM temp.represented p WHERE p.generic = m.generic)"""
"""Resources whose alternate is deleted as an entry of its own, while nothing is said of them."""

_BACK_TO_LOC = """
INSERT INTO temp.changed(list, ordinal, uri, change, at, latest, exact, refused, pending)
SELECT list, ordinal, ?, 'updated', at, latest, exact, 0, 1 FROM temp.changed WHERE n = ?"""
"""They are fetched from `loc`, as far as is known without hash; the next list tells it."""

_USED = """
SELECT 1 FROM temp.represented WHERE uri = ?1
UNION ALL SELECT 1 FROM representations m WHERE m.set_id = ?2 AND m.uri = ?1
  AND NOT EXISTS (SELECT 1 FROM temp.represented p WHERE p.generic = m.generic)
UNION ALL SELECT 1 FROM temp.changed WHERE uri = ?1 AND pending AND change <> 'deleted' LIMIT 1"""
"""Whether anything stands for a resource still, or is one that is listed."""


def represent_listed(t: Transaction, types: Sequence[str], scope: Scope) -> None:
    """Put preferred alternates in place of the resources in `temp.listed`."""
    t.run("DELETE FROM temp.represented")
    if not types:
        return
    last = 0
    while rows := list(t.rows(_LISTED, (last,))):
        last = rows[-1][0]
        chosen = [(n, uri, link) for n, uri, type_, links in rows if (link := _chosen(types, type_, links))]
        _stand(t, "listed", chosen, scope)
    t.run("CREATE INDEX IF NOT EXISTS temp.listed_uri ON listed(uri)")
    t.run(_OUTDONE)
    t.run(
        "INSERT OR REPLACE INTO temp.represented(generic, uri) SELECT uri, uri FROM temp.listed"
        " WHERE n NOT IN (SELECT n FROM temp.represented WHERE n IS NOT NULL)"
        " AND uri IN (SELECT uri FROM temp.represented)"
    )


_LATER = """EXISTS (
  SELECT 1 FROM (SELECT {0}.generic AS uri UNION ALL SELECT {0}.uri UNION ALL
    SELECT m.uri FROM representations m WHERE m.set_id = ?1 AND m.generic = {0}.generic) AS of
  WHERE EXISTS (SELECT 1 FROM resources r WHERE r.set_id = ?1 AND r.uri = of.uri AND r.changed_at > ?2)
    OR EXISTS (SELECT 1 FROM failures f WHERE f.set_id = ?1 AND f.uri = of.uri AND f.changed_at > ?2))"""
"""Whether a change later than a list has told what stands for a resource."""


_REPLACED_LATER = """
DELETE FROM temp.listed WHERE uri IN (
  SELECT m.generic FROM representations m JOIN resources r ON r.set_id = ?1 AND r.uri = m.uri AND r.changed_at > ?2
  WHERE m.set_id = ?1 AND m.uri <> m.generic)"""


def keep_later_choices(t: Transaction, set_id: int, types: Sequence[str], at: int | None) -> None:
    """Take out of `temp.listed`, which is as of `at`, the resources for which a later change has chosen (DST-B2)."""
    if at is None or not types:
        return
    t.run(_REPLACED_LATER, (set_id, at))
    later = list(t.rows(f"SELECT generic, n FROM temp.represented AS p WHERE {_LATER.format('p')}", (set_id, at)))  # noqa: S608
    t.many("DELETE FROM temp.listed WHERE n = ?", ((n,) for _, n in later if n is not None))
    t.many("DELETE FROM temp.represented WHERE generic = ?", ((generic,) for generic, _ in later))


def represent_changed(t: Transaction, set_id: int, types: Sequence[str], scope: Scope) -> None:
    """The same for the pending changes, each of which is the last one of its resource.

    A deletion is that of what stands for the resource; where another alternate does by now, or none, the former one is
    deleted, unless it stands for something else as well.
    """
    t.run("DELETE FROM temp.represented")
    if not types and t.one("SELECT 1 FROM representations WHERE set_id = ? LIMIT 1", (set_id,)) is None:
        return
    t.run("CREATE INDEX IF NOT EXISTS temp.changed_uri ON changed(uri, list, ordinal)")
    removals: list[tuple[int, str]] = []
    last = 0
    while rows := list(t.rows(_CHANGED, (set_id, last))):
        last = rows[-1][0]
        for n, generic, type_, links, change, former in rows:  # `former`: what has stood for it until now
            link = _chosen(types, type_, links) if change != "deleted" else None
            if link is not None:
                (uri,) = _stand(t, "changed", [(n, generic, link)], scope)
                if t.one(_OWN_ENTRY, (set_id, uri)) is not None:
                    t.run("INSERT OR IGNORE INTO temp.represented(generic, uri) VALUES (?1, ?1)", (uri,))
                if (former or generic) != uri:
                    removals.append((n, former or generic))
                continue
            stays = generic if change != "deleted" and former == generic else None
            t.run("INSERT OR REPLACE INTO temp.represented(generic, uri) VALUES (?, ?)", (generic, stays))
            if former not in (None, generic):
                removals.append((n, former))
    t.run(  # of one URI the entry of its own counts, else the last
        "UPDATE temp.changed SET pending = 0 WHERE pending AND n IN (SELECT n FROM temp.represented) AND EXISTS ("
        "SELECT 1 FROM temp.changed AS o WHERE o.uri = changed.uri AND o.pending AND o.n <> changed.n"
        " AND (o.n > changed.n OR (o.change <> 'deleted'"
        " AND o.n NOT IN (SELECT n FROM temp.represented WHERE n IS NOT NULL))))"
    )
    t.run(
        "UPDATE temp.changed SET pending = 0 WHERE pending AND change = 'deleted' AND EXISTS (SELECT 1 FROM"
        " temp.changed AS o WHERE o.uri = changed.uri AND o.pending AND o.n > changed.n"
        " AND o.n IN (SELECT n FROM temp.represented))"
    )
    t.run(_OWN_ENTRIES, (set_id,))
    left = list(t.rows(_LEFT, (set_id,)))
    for n, generic in left:
        if scope.refusal(generic) is None:
            t.run(_BACK_TO_LOC, (generic, n))
    t.many("INSERT OR REPLACE INTO temp.represented(generic, uri) VALUES (?, NULL)", ((uri,) for _, uri in left))
    for n, uri in removals:
        if t.one(_USED, (uri, set_id)) is None:
            t.run(
                "INSERT INTO temp.changed(list, ordinal, uri, change, at, latest, exact, refused, pending)"
                " SELECT list, ordinal, ?, 'deleted', at, latest, exact, 0, 1 FROM temp.changed WHERE n = ?",
                (uri, n),
            )


_OWN_ENTRY = """
SELECT 1 FROM resources r WHERE r.set_id = ?1 AND r.uri = ?2 AND r.path IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM representations m WHERE m.set_id = ?1 AND m.uri = ?2)"""
"""Whether something is held that stood for nothing else until now: it has an entry of its own."""


def _chosen(types: Sequence[str], type_: str | None, links: str | None) -> Link | None:
    return preferred_alternate(types, type_, links_of(links, "alternate"))


def _stand(t: Transaction, table: str, chosen: list[tuple[int, str, Link]], scope: Scope) -> list[str]:
    """Give these rows what their alternates are: URI and attributes of the link, and a link back (RS-REL-03)."""
    rows = []
    for n, generic, link in chosen:
        uri = normalise(link.href)
        refusal = scope.refusal(link.href)
        back = encode_links([Link(rel="canonical", href=generic)])
        modified = None if link.modified is None else micros(link.modified)
        attributes = (modified, link.length, link.hash, link.type, link.encoding)
        refused = 0 if refusal is None else 1 + REFUSALS.index(refusal)
        rows.append((uri, None if uri == link.href else link.href, *attributes, back, refused, n))
    t.many(_REPLACE.format(table), rows)
    t.many(_STAND, ((generic, row[0], n) for (n, generic, _), row in zip(chosen, rows, strict=True)))
    return [row[0] for row in rows]


_NEEDED = """
SELECT d.id FROM temp.deletions d JOIN resources r ON r.id = d.id
JOIN (SELECT generic, uri FROM temp.represented UNION ALL SELECT generic, uri FROM representations WHERE set_id = ?1) p
  ON p.generic = r.uri AND p.uri <> p.generic
WHERE NOT EXISTS (SELECT 1 FROM resources h WHERE h.set_id = ?1 AND h.uri = p.uri AND h.path IS NOT NULL)"""


def hold_needed(t: Transaction, set_id: int) -> None:
    """Let no resource be deleted that an alternate takes the place of, as long as that could not be had (DST-V5)."""
    needed = list(t.rows(_NEEDED, (set_id,)))
    t.many("UPDATE resources SET doomed_at = 0 WHERE id = ? AND doomed_at IS NULL", needed)
    t.many("DELETE FROM temp.deletions WHERE id = ?", needed)


def keep_representations(t: Transaction, set_id: int, *, whole: bool, at: int | None = None) -> None:
    """Remember what stands for what, as the list or the changes that are now done have it.

    `whole`: a list was read to its end, and what it does not have stands for nothing, unless a change later than its
    `at` has told so (DST-B2).
    """
    if whole and at is None:
        t.run("DELETE FROM representations WHERE set_id = ?", (set_id,))
    elif whole:
        t.run(
            f"DELETE FROM representations WHERE set_id = ?1 AND NOT {_LATER.format('representations')}",  # noqa: S608
            (set_id, at),
        )
    t.run(
        "DELETE FROM representations WHERE set_id = ? AND generic IN (SELECT generic FROM temp.represented)", (set_id,)
    )
    t.run(
        "INSERT INTO representations(set_id, generic, uri) SELECT ?, generic, uri FROM temp.represented"
        " WHERE uri IS NOT NULL",
        (set_id,),
    )
    t.run("DELETE FROM temp.represented")
