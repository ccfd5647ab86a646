"""A catalog of every older version opens as what it was: `data/catalog-N.sql` is what version N wrote."""

from __future__ import annotations

import datetime as dt
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from headwater.catalog.interface import Catalog, Delete, Metadata, Rendered, Upsert
from headwater.catalog.sqlite_catalog import SCHEMA, SqliteCatalog
from headwater.catalog.verify import verify
from headwater.spec.records import Link
from tests.contract.catalog.cases import BIG, HEAVY, METADATA, SMALL, START, at, opened, up
from tests.contract.catalog.model import observed

DATA = Path(__file__).parent / "data"
MARKS = "PRAGMA application_id = {0};\nPRAGMA user_version = {1};\n"


def story(catalog: Catalog) -> None:
    """What happened to the stored catalog; never changed, so that every version's file tells the same."""
    opened(catalog, [Upsert(f"r{n}", case[1], b"memo") for n, case in enumerate(METADATA)])
    catalog.rendered("s", [Rendered(0, 4, at(1), at(2))])
    catalog.record("s", [up("r1", BIG), Delete("r2"), up("new", HEAVY), up("new"), up("é")], at(10))
    catalog.record(
        "s", [up("r3"), up("r3"), up("last", Metadata(links=(Link(rel="up", href="http://example.org/x"),)))], at(5)
    )
    catalog.close_segment("s", at(50))
    catalog.note("s", b"published")
    catalog.create("loading")
    catalog.load("loading", [up("a"), up("b")])
    catalog.mark("s", at(70))


def test_every_version_has_its_file() -> None:
    assert sorted(path.name for path in DATA.glob("*.sql")) == [f"catalog-{n + 1}.sql" for n in range(SCHEMA.version)]


@pytest.mark.parametrize("version", range(1, SCHEMA.version + 1))
def test_an_older_catalog_opens_as_what_it_was(tmp_path: Path, version: int) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db")) as old, old:
        old.executescript((DATA / f"catalog-{version}.sql").read_text(encoding="utf-8"))
    old.close()
    catalog = SqliteCatalog(tmp_path / "old.db", SMALL)
    told = SqliteCatalog(tmp_path / "told.db", SMALL)
    story(told)
    for name in ("s", "loading"):
        assert observed(catalog, name) == observed(told, name)
        assert verify(catalog, name) == []
    catalog.record("s", [up("r1"), Delete("r3"), up("newer")], START + dt.timedelta(days=1))
    assert verify(catalog, "s") == []
    assert catalog.check() == []
    catalog.close()
    told.close()


def write(folder: Path) -> None:
    """Write the file of the present version (once, when it is new: `python -m tests.catalog.test_migrations`)."""
    catalog = SqliteCatalog(folder / "catalog.db", SMALL)
    story(catalog)
    catalog.close()
    with closing(sqlite3.connect(folder / "catalog.db")) as made, made:
        text = MARKS.format(SCHEMA.application_id, SCHEMA.version) + "\n".join(made.iterdump()) + "\n"
    made.close()
    (DATA / f"catalog-{SCHEMA.version}.sql").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
