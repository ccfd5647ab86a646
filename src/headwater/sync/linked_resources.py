"""Resources that others link: preferred alternates in their place (DST-S3), and metadata records (RS-REL-05, -06).

Staged lists are put in terms of preferred alternates: the row of a resource becomes that of the one that is copied.
Whoever reads the staged tables then knows nothing of alternates: each is a resource under its own URI, with what its
link says of it. Which alternate stands for which resource is remembered (`representations`), because a deletion names
the resource alone; what is remembered follows when all that a list said is done.

What lists and changes state of records and what these describe is remembered for whoever chooses by it, in three
tables: `descriptions` has each link once for each side that states it, `listing` what is listed, whether it is chosen
or not, because a record that comes later may choose it, and `released` what is held, was chosen once, and is not any
more: it is deleted when the source deletes it, and left alone till then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from headwater.spec.kinds import PATCH
from headwater.spec.records import Link
from headwater.spec.uris import normalise
from headwater.storage.transaction import Row, Transaction
from headwater.sync.connection import REFUSALS, Scope
from headwater.sync.lists.entries import encode_links, links_of, without_patches
from headwater.sync.options import Choice
from headwater.sync.source_times import micros
from headwater.sync.state import LISTED_COLUMNS


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


# metadata records

Takes = Callable[[str, bytes], bool]
"""Whether a resource with this URI and path is chosen, by what is remembered at the moment of the question."""

_STATER = "CASE {0}.by_record WHEN 1 THEN {0}.record ELSE {0}.content END"
_MENTIONS = """links LIKE '%"describ%'"""
_DESCRIBE = "INSERT OR IGNORE INTO temp.described(content, record, by_record) VALUES (?, ?, ?)"
_RELEASE = "INSERT OR IGNORE INTO released(set_id, uri) VALUES (?, ?)"

_KNOWN_BY_COPY = (
    "INSERT OR IGNORE INTO listing(set_id, uri, refused, is_change)"
    " SELECT set_id, uri, 0, 0 FROM resources WHERE set_id = ? AND path IS NOT NULL",
    f"SELECT uri, links FROM resources WHERE set_id = ? AND path IS NOT NULL AND {_MENTIONS}",  # noqa: S608
    "INSERT OR IGNORE INTO descriptions(set_id, content, record, by_record)"
    " SELECT ?, content, record, by_record FROM temp.described",
)
"""The first time, what is held says how it was described; of what has gone since nothing else does."""

_LOST_BY_LIST = """
SELECT r.uri, r.path FROM resources r WHERE r.set_id = ?1 AND r.path IS NOT NULL AND (
  NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = r.uri)
  OR r.uri IN (SELECT d.content FROM descriptions d WHERE d.set_id = ?1 AND NOT EXISTS (SELECT 1 FROM temp.described n
    WHERE n.content = d.content AND n.record = d.record AND n.by_record = d.by_record))
  OR r.uri IN (SELECT d.record FROM descriptions d WHERE d.set_id = ?1 AND (
    NOT EXISTS (SELECT 1 FROM temp.listed l WHERE l.uri = d.content)
    OR NOT EXISTS (SELECT 1 FROM temp.described n
      WHERE n.content = d.content AND n.record = d.record AND n.by_record = d.by_record))))"""
"""What is held, and may be chosen no more after this list."""

_CHANGED_LATER = "(l.is_change AND l.at > :at)"
_FORGET_LINKS = f"""
DELETE FROM descriptions AS d WHERE d.set_id = :set AND NOT EXISTS (SELECT 1 FROM listing l
  WHERE l.set_id = :set AND l.uri = {_STATER.format("d")} AND {_CHANGED_LATER})
AND (:whole OR EXISTS (SELECT 1 FROM temp.listed t WHERE t.uri = {_STATER.format("d")}))"""  # noqa: S608
_FORGET_LISTED = f"""
DELETE FROM listing AS l WHERE l.set_id = :set AND coalesce(NOT {_CHANGED_LATER}, 1)
AND (:whole OR EXISTS (SELECT 1 FROM temp.listed t WHERE t.uri = l.uri))"""  # noqa: S608
_KEEP_LISTED = f"""
INSERT OR IGNORE INTO listing(set_id, {LISTED_COLUMNS}, refused, at, exact, is_change)
SELECT :set, {LISTED_COLUMNS}, refused, :at, 0, 0 FROM temp.listed WHERE NOT EXISTS (SELECT 1 FROM resources r
  WHERE r.set_id = :set AND r.uri = listed.uri AND r.path IS NULL AND r.changed_at > :at)"""  # noqa: S608
_KEEP_LINKS = f"""
INSERT OR IGNORE INTO descriptions(set_id, content, record, by_record)
SELECT :set, n.content, n.record, n.by_record FROM temp.described n JOIN listing l
  ON l.set_id = :set AND l.uri = {_STATER.format("n")} AND NOT l.is_change AND NOT l.refused"""  # noqa: S608
"""DST-B2: what a later change has said of a resource is not this list's to judge."""

_NEWS = (
    "INSERT OR IGNORE INTO temp.restated(uri) SELECT c.uri FROM temp.changed c LEFT JOIN listing l"
    " ON l.set_id = ? AND l.uri = c.uri WHERE c.pending AND NOT coalesce(l.is_change AND c.exact AND l.at > c.at, 0)"
)
_LOST_BY_CHANGES = """
SELECT r.uri, r.path FROM resources r WHERE r.set_id = ?1 AND r.path IS NOT NULL AND r.uri IN (
  SELECT uri FROM temp.restated
  UNION SELECT d.record FROM descriptions d JOIN temp.restated c ON c.uri = d.content WHERE d.set_id = ?1
  UNION SELECT d.content FROM descriptions d JOIN temp.restated c ON c.uri = d.record WHERE d.set_id = ?1)"""

_RESTATE = (
    "DELETE FROM descriptions WHERE set_id = ?1 AND NOT by_record AND content IN (SELECT uri FROM temp.restated)",
    "DELETE FROM descriptions WHERE set_id = ?1 AND by_record AND record IN (SELECT uri FROM temp.restated)",
    "DELETE FROM listing WHERE set_id = ?1 AND uri IN (SELECT uri FROM temp.restated)",
    f"INSERT OR REPLACE INTO listing(set_id, {LISTED_COLUMNS}, refused, at, latest, exact, is_change)"  # noqa: S608
    f" SELECT ?1, {LISTED_COLUMNS}, 0, at, latest, exact, 1 FROM temp.changed"
    " WHERE pending AND change <> 'deleted' AND uri IN (SELECT uri FROM temp.restated)",
    "INSERT OR REPLACE INTO listing(set_id, uri, refused, at, is_change)"
    " SELECT ?1, uri, refused, at, 1 FROM temp.refused WHERE change <> 'deleted'",
    "INSERT OR IGNORE INTO descriptions(set_id, content, record, by_record)"  # noqa: S608
    " SELECT ?1, n.content, n.record, n.by_record FROM temp.described n"
    f" WHERE {_STATER.format('n')} IN (SELECT uri FROM temp.restated)",
)

_NEWLY_CHOSEN = f"""
SELECT {", ".join(f"l.{name.strip()}" for name in LISTED_COLUMNS.split(","))},
  l.refused, l.at, l.latest, l.exact, r.path
FROM listing l LEFT JOIN resources r ON r.set_id = l.set_id AND r.uri = l.uri AND r.path IS NOT NULL
WHERE l.set_id = ?1 AND l.uri IN (
  SELECT record FROM descriptions WHERE set_id = ?1 AND content IN (SELECT uri FROM temp.restated)
  UNION SELECT content FROM descriptions WHERE set_id = ?1 AND record IN (SELECT uri FROM temp.restated)
  UNION SELECT e.record FROM descriptions d JOIN descriptions e ON e.set_id = d.set_id AND e.content = d.content
    WHERE d.set_id = ?1 AND d.record IN (SELECT uri FROM temp.restated))
AND l.uri NOT IN (SELECT uri FROM temp.restated)
AND NOT EXISTS (SELECT 1 FROM failures f WHERE f.set_id = ?1 AND f.uri = l.uri)
AND NOT coalesce(r.listed_hash IS l.hash AND r.listed_length IS l.length AND r.lastmod IS l.lastmod
  AND r.path IS NOT NULL, 0)"""  # noqa: S608
"""What no change names, and a changed link may choose: not held, or held as it was when it was left out."""

_ADD_CHANGE = (
    f"INSERT INTO temp.changed({LISTED_COLUMNS}, change, at, latest, exact, refused, pending)"  # noqa: S608
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'updated', ?, ?, ?, 0, 1)"
)

_TABLES = ("descriptions", "listing", "released")


def forget_statements(t: Transaction, set_id: int) -> None:
    """Forget all of this for a set whose choice does not ask for it."""
    if t.one("SELECT 1 FROM listing WHERE set_id = ? LIMIT 1", (set_id,)) is not None:
        for table in _TABLES:
            t.run(f"DELETE FROM {table} WHERE set_id = ?", (set_id,))  # noqa: S608  our own names


def restate_by_list(
    t: Transaction, set_id: int, takes: Takes, at: int | None, *, complete: bool, anew: bool = False
) -> None:
    """Remember what the list in `temp.listed`, which is as of `at`, states.

    `complete`: what it does not have is not listed any more. `anew`: another choice holds than before.
    """
    if anew:
        t.run("DELETE FROM released WHERE set_id = ?", (set_id,))
    if t.one("SELECT 1 FROM listing WHERE set_id = ? LIMIT 1", (set_id,)) is None:
        known, links, described = _KNOWN_BY_COPY
        t.run(known, (set_id,))
        _stage(t, t.rows(links, (set_id,)))
        t.run(described, (set_id,))
    t.run("CREATE INDEX IF NOT EXISTS temp.listed_uri ON listed(uri)")
    _stage(t, t.rows(f"SELECT uri, links FROM temp.listed WHERE NOT refused AND {_MENTIONS}"))  # noqa: S608
    _release(t, set_id, takes, _LOST_BY_LIST)
    values = {"set": set_id, "at": at, "whole": int(complete)}
    for statement in (_FORGET_LINKS, _FORGET_LISTED, _KEEP_LISTED, _KEEP_LINKS):
        t.run(statement, values)


def restate_by_changes(t: Transaction, set_id: int, takes: Takes, path: Callable[[str], bytes]) -> None:
    """Remember what the pending changes state, and add to them what no change names and is chosen by them now."""
    t.run("DELETE FROM temp.restated")
    t.run(_NEWS, (set_id,))
    t.run("INSERT OR IGNORE INTO temp.restated(uri) SELECT uri FROM temp.refused")
    query = f"SELECT uri, links FROM temp.changed WHERE pending AND change <> 'deleted' AND {_MENTIONS}"  # noqa: S608
    _stage(t, t.rows(query))
    _release(t, set_id, takes, _LOST_BY_CHANGES)
    for statement in _RESTATE:
        t.run(statement, (set_id,))
    for *listed, refused, at, latest, exact, held in t.fetch(_NEWLY_CHOSEN, (set_id,)):
        uri = listed[0]
        if not takes(uri, path(uri) if held is None else held):
            continue
        if refused:
            t.run("INSERT INTO temp.refused(uri, change, at, refused) VALUES (?, 'updated', ?, ?)", (uri, at, refused))
            continue
        links = listed[7]
        listed[7] = without_patches(links) if links and PATCH in links else links  # DST-S1: changes were missed
        t.run(_ADD_CHANGE, (*listed, at, latest, exact or 0))


def _release(t: Transaction, set_id: int, takes: Takes, lost: str) -> None:
    """Remember what is chosen as long as nothing of this is stated, and may not be any more."""
    t.run(
        "DELETE FROM released WHERE set_id = ?1 AND NOT EXISTS"
        " (SELECT 1 FROM resources r WHERE r.set_id = ?1 AND r.uri = released.uri AND r.path IS NOT NULL)",
        (set_id,),
    )
    t.many(_RELEASE, ((set_id, uri) for uri, path in t.rows(lost, (set_id,)) if takes(uri, path)))


def _stage(t: Transaction, rows: Iterator[Row]) -> None:
    """Fill `temp.described` from the links of resources."""
    t.run("DELETE FROM temp.described")
    for uri, links in rows:
        told = [(uri, normalise(link.href), 0) for link in links_of(links, "describedby")]
        told += [(normalise(link.href), uri, 1) for link in links_of(links, "describes")]
        t.many(_DESCRIBE, [one for one in told if one[0] != one[1]])


_IS_DESCRIBED = "SELECT 1 FROM descriptions WHERE set_id = ? AND content = ? LIMIT 1"
_CONTENTS = """
SELECT d.content, r.path FROM descriptions d
JOIN listing l ON l.set_id = d.set_id AND l.uri = d.content AND NOT l.refused
LEFT JOIN resources r ON r.set_id = d.set_id AND r.uri = d.content
WHERE d.set_id = ? AND d.record = ?"""
"""What a record describes, as far as it is listed itself: a link to something else chooses nothing."""


def is_chosen(
    choice: Choice, *, own: bool, is_described: Callable[[], bool], describes_chosen: Callable[[], bool]
) -> bool:
    """Whether a resource is copied.

    `own`: the patterns let it in; `is_described`: some record describes it; `describes_chosen`: it is a record of a
    resource that is chosen for itself. A record of a record is not chosen by this, so that circles choose nothing.
    """
    if own and (not choice.only_described or is_described()):
        return True
    return (own or choice.with_metadata) and describes_chosen()


@dataclass
class DescribedChoice:
    """Asks, within one transaction, what is remembered of the set's links.

    `own`: whether the patterns let a resource in; its path is None where it has none yet.
    """

    t: Transaction
    set_id: int
    choice: Choice
    own: Callable[[str, bytes | None], bool]

    def takes(self, uri: str, path: bytes) -> bool:
        """Whether the resource is copied."""
        if self.choice.skips(uri):
            return False
        return is_chosen(
            self.choice,
            own=self.own(uri, path),
            is_described=lambda: self.t.one(_IS_DESCRIBED, (self.set_id, uri)) is not None,
            describes_chosen=lambda: any(
                self.own(content, held) for content, held in self.t.rows(_CONTENTS, (self.set_id, uri))
            ),
        )

    def was_taken(self, uri: str) -> bool:
        """Whether this choice has brought what is held, though it does not take it any more."""
        return self.t.one("SELECT 1 FROM released WHERE set_id = ? AND uri = ?", (self.set_id, uri)) is not None
