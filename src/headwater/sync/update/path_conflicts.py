"""Path conflicts: which path each resource gets where several, or a file that is held, claim it.

The rule for a single URI is in `file_names`; here `work`, `deletions` and what is held are weighed against each other.
"""

import os
from collections.abc import Iterator

from headwater.files.folder_marks import folded
from headwater.storage.transaction import Row, Transaction
from headwater.sync.copy.file_names import escaped_path, natural_path, resources_folder
from headwater.sync.copy.held_files import fold_held
from headwater.sync.linked_resources import is_chosen
from headwater.sync.options import Choice, Stated
from headwater.sync.state import SetRow

_BELOW = "{0}.path > CAST(w.path || '/' AS BLOB) AND {0}.path < CAST(w.path || '0' AS BLOB)"
_AMONG_NEW = f"""
EXISTS (SELECT 1 FROM temp.work o WHERE o.path = w.path AND o.n < w.n)
OR EXISTS (SELECT 1 FROM temp.work o WHERE {_BELOW.format("o")})"""  # noqa: S608  our own text
"""Whether something that is listed before has the path of something new, or anything lies below it."""

_AMONG_HELD = f"""
EXISTS (WITH RECURSIVE folder(pos, slash) AS (SELECT 0, instr(w.path, X'2F') UNION ALL
    SELECT pos + slash, instr(substr(w.path, pos + slash + 1), X'2F') FROM folder WHERE slash)
  SELECT 1 FROM folder CROSS JOIN resources r ON r.path = iif(slash, substr(w.path, 1, pos + slash - 1), w.path) {{0}})
OR EXISTS (SELECT 1 FROM resources r {{0}} WHERE {_BELOW.format("r")})"""  # noqa: S608  our own text
"""Whether a held file has the path of something new, has that of one of its folders, or lies below it."""

_DELETED = "CROSS JOIN temp.deletions d ON d.id = r.id"
_NEW = "SELECT w.n, w.uri FROM temp.work w WHERE w.held IS NULL AND ({})"
_STATED_OF_HELD = "SELECT type, links FROM resources WHERE set_id = ? AND uri = ? AND path IS NOT NULL"
_NAMES = "SELECT n, uri, path, held FROM temp.work WHERE n > ? ORDER BY n LIMIT 20000"


def first_base(t: Transaction, table: str, capability_list: str | None) -> str | None:
    """The base of a set's names, from the first plan; None while nothing is listed that could show it.

    Everything below the folder `resources` beside the Capability List: that folder, as a Headwater source serves it;
    otherwise the longest folder that all have in common.
    """
    served = resources_folder(capability_list) if capability_list else None
    where = "NOT refused" if table == "listed" else "pending AND change != 'deleted'"
    first, last = t.one(f"SELECT min(uri), max(uri) FROM temp.{table} WHERE {where}") or (None, None)  # noqa: S608
    if first is None:
        return None
    # what the first and the last in their order have in common, all between them have
    if served is not None and first.startswith(served) and last.startswith(served):
        return served
    common = os.path.commonprefix([uri.partition("?")[0].partition("#")[0] for uri in (first, last)])  # noqa: RUF071  of text
    folder = common[: common.rfind("/") + 1]
    return folder if folder.count("/") > 2 else ""  # `https://` is no folder


class PathConflicts:
    """Assigns paths to the resources of one set, by its base, its folder and the user's choice."""

    def __init__(self, row: SetRow, choice: Choice, base: str, t: Transaction, *, folds: bool = False) -> None:
        """The user's choice is asked in the transaction `t` alone; paths may be settled in another one.

        `folds`: the file system takes names for one that differ by case or Unicode form.
        """
        self._folds = folds
        self._set = row
        self._base = base
        self._choice = choice
        self.takes_all = choice.takes_all
        self.is_by_metadata = choice.is_by_metadata
        """Whether it matters what describes what."""

        self._prefix = row.folder.encode() + b"/" if row.folder else b""
        self._t = t

    def path(self, uri: str) -> bytes:
        """The path, relative to the destination, that the rule gives a URI when nothing else claims it."""
        return self._prefix + (natural_path(uri, self._base) or escaped_path(uri, folds=self._folds))

    def takes(self, uri: str, path: bytes, stated: Stated | None) -> bool:
        """Whether the user's choice lets the resource in, of which this is stated; None: nothing that counts."""
        if self.takes_all:
            return True
        if self.is_by_metadata:
            return is_chosen(self._t, self._set.id, self._choice, self._own, uri, path, stated)
        return self._own(uri, path, stated)

    def takes_deletion(self, uri: str, path: bytes) -> bool:
        """Whether what is held is deleted with the resource: where hosts and patterns let it in, described or not,
        whatever was stated of it, and any that may be a record that `--with-metadata` has brought."""
        return (self._choice.with_metadata and not self._choice.skips(uri)) or self._own(uri, path)

    def _own(self, uri: str, path: bytes | None, stated: Stated | None = None) -> bool:
        """Whether hosts, patterns and what is stated let the resource in.

        A change may state no type and no links, where the list did: what was stated of the file that is held counts.
        """
        path = self.path(uri) if path is None else path
        if stated is not None and self._choice.by_statements and None in (stated.type, stated.links):
            held = self._t.one(_STATED_OF_HELD, (self._set.id, uri)) or (None, None)
            stated = stated._replace(type=stated.type or held[0], links=stated.links or held[1])
        return self._choice.takes(uri, path[len(self._prefix) :], stated)

    def takes_refused(self, uri: str, stated: Stated | None = None) -> bool:
        """The same for a URI that the scope refuses, and which therefore may be none at all."""
        return self.takes_all or self.takes(uri, self.path(uri), stated)

    def deletions_in_the_way(self, t: Transaction) -> bool:
        """Whether something to be deleted has the place of something new, as file or as folder."""
        return t.one(_NEW.format(_AMONG_HELD.format(_DELETED))) is not None

    def settle(self, t: Transaction, *, deletes: bool = False) -> None:
        """Give the escaped name to whatever cannot have its natural one beside the others.

        One name, two URIs: the held one keeps it, else the first listed. A file where a folder must be: the held one
        stays, else the file gives way. `deletes`: what is in `temp.deletions` is about to go.
        """
        in_the_way = _AMONG_NEW
        if t.one("SELECT 1 FROM resources WHERE path IS NOT NULL LIMIT 1") is not None:
            in_the_way += f" OR {_AMONG_HELD.format('')}"
        self._escape(t, t.rows(_NEW.format(in_the_way)))
        if self._folds and t.one("SELECT 1 FROM temp.work LIMIT 1") is not None:
            # what has a name that the file system takes for that of another one, which is held or comes first; among
            # it what was held on another file system, and shares a file here
            fold_held(t, without_deletions=deletes)
            number, take = 0, "INSERT OR IGNORE INTO temp.folded(name, path) VALUES (?, ?)"
            own = "SELECT 1 FROM temp.folded WHERE name = ? AND path = ?"
            while rows := t.fetch(_NAMES, (number,)):
                number = rows[-1][0]
                taken = [
                    (n, uri)
                    for n, uri, path, held in rows
                    if not t.run(take, (folded(path), path)) and not (held and t.one(own, (folded(path), path)))
                ]
                t.many(take, [(folded(path), path) for path in self._escape(t, iter(taken))])

    def _escape(self, t: Transaction, rows: Iterator[Row]) -> list[bytes]:
        changed = [(self._prefix + escaped_path(uri, folds=self._folds), n) for n, uri in rows]
        t.many("UPDATE temp.work SET path = ? WHERE n = ?", changed)
        return [path for path, _ in changed]
