"""The journal of a copy's state, and what is remembered of what a source states: for whoever publishes the copy."""

from __future__ import annotations

from pathlib import Path

from headwater.cli import run
from headwater.copy_state import JOURNAL_ENTRIES, JOURNAL_ID, SCHEMA
from headwater.storage.database import Database
from headwater.storage.transaction import Row
from tests.support.copying import DONE, go
from tests.support.fake_source import Site, Source, ln


def rows(dest: Path, sql: str) -> list[Row]:
    with Database(dest / ".headwater" / "state.sqlite", SCHEMA) as database, database.read() as t:
        return list(t.rows(sql))


def noted(dest: Path, after: int = 0) -> list[bytes]:
    return [path for (path,) in rows(dest, f"SELECT path FROM journal WHERE seq > {after} ORDER BY seq")]


def test_each_change_of_a_copy_is_noted_once_and_nothing_else(source: Source, site: Site, dest: Path) -> None:
    assert go(source.base, dest).status == DONE
    assert sorted(noted(dest)) == [b"f%d.txt" % number for number in range(5)]
    assert go(source.base, dest).status == DONE  # nothing has changed
    assert len(noted(dest)) == 5
    site.put("f1.txt", b"other")
    site.drop("f2.txt")
    site.publish()
    assert go(source.base, dest).status == DONE
    assert sorted(noted(dest, 5)) == [b"f1.txt", b"f2.txt"]
    assert run(["forget", str(dest), "--set", rows(dest, "SELECT name FROM sets")[0][0]]) == DONE
    assert sorted(noted(dest, 7)) == [b"f0.txt", b"f1.txt", b"f3.txt", b"f4.txt"]


def test_the_journal_has_an_end(tmp_path: Path) -> None:
    """A reader that is further behind compares everything; of another state's journal it is told by its id."""
    insert = "INSERT INTO resources(set_id, uri, path, run) VALUES (1, ?1, CAST(?1 AS BLOB), 1)"
    with Database(tmp_path / "one.sqlite", SCHEMA) as one, Database(tmp_path / "other.sqlite", SCHEMA) as other:
        with one.write() as t:
            t.many(insert, ((str(number),) for number in range(JOURNAL_ENTRIES + 10)))
            assert t.one("SELECT min(seq), max(seq), count(*) FROM journal") == (11, JOURNAL_ENTRIES + 10, 100_000)
        ids = []
        for database in (one, other):
            with database.read() as t:
                ids.append(t.value("SELECT value FROM facts WHERE name = ?", (JOURNAL_ID,)))
    assert len({*ids, None}) == 3


def test_what_the_source_states_is_kept_with_the_copy_and_followed(source: Source, site: Site, dest: Path) -> None:
    """Media type, links and foreign attributes, also where they alone have changed (DST-S9, RS-MD-14)."""

    def publish(kind: str, when: float) -> None:
        told = site.resource("f0.txt", type=kind, **{"x:mark": "1", "xmlns:x": "http://x.example/"})
        told = told.replace("</url>", ln("via", "http://origin.example/f0", length=7) + "</url>")
        site.publish_list([told, *(site.resource(name) for name in site.files if name != "f0.txt")], when)
        site.publish_changes(when, entries=[])

    def kept() -> Row:
        return rows(dest, "SELECT type, links, extra FROM resources WHERE uri LIKE '%f0.txt'")[0]

    links = '[{"rel":"via","href":"http://origin.example/f0","length":7}]'
    extra = '[["{http://x.example/}mark","1"]]'
    publish("text/plain", 20.0)
    assert go(source.base, dest).status == DONE
    assert kept() == ("text/plain", links, extra)
    publish("text/csv", 30.0)
    assert go(source.base, dest, baseline=True).status == DONE
    assert kept() == ("text/csv", links, extra)
    assert noted(dest, 5) == [b"f0.txt"]
