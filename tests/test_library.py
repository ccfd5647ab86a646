"""The library: `__all__` is what is exposed, everything is typed and documented, and importing it costs nothing."""

import ast
import asyncio
import contextlib
import datetime as dt
import inspect
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tools import library

import headwater
from headwater.cli.sync import command as sync_command
from headwater.progress import PHASES
from tests.support.fake_source import Handler, Reply, Site, Source

SOURCE = Path(headwater.__file__)


def declared_for_types() -> set[str]:
    tree = ast.parse(SOURCE.read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.asname or alias.name
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_all_is_what_is_exposed() -> None:
    homes = [name.rpartition("=")[2] for names in headwater._HOMES.values() for name in names.split()]
    assert len(homes) == len(set(homes))
    assert headwater.__all__ == sorted(headwater.__all__)
    assert set(headwater.__all__) == {*homes, "__version__"} == {*declared_for_types(), "__version__"}
    assert dir(headwater) == headwater.__all__


@pytest.mark.parametrize("name", [name for name in headwater.__all__ if name != "__version__"])
def test_everything_public_is_there_and_documented(name: str) -> None:
    thing = getattr(headwater, name)
    if name in library.ALIASES:  # a type of others
        assert name != "Listener" or thing == Callable[[headwater.Progress | headwater.Notice], None]
        return
    assert inspect.getdoc(thing)
    assert thing.__module__.startswith("headwater.")


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        headwater.nonsense  # type: ignore[attr-defined]  # noqa: B018


def test_publishing_takes_what_the_command_takes(tmp_path: Path) -> None:
    files, site, state = tmp_path / "files", tmp_path / "site", tmp_path / "state"
    files.mkdir()
    (files / "a.txt").write_text("a")
    heard: list[object] = []
    done = headwater.publish_folder(
        files,
        site,
        "https://example.org",
        state=state,
        hashes=["sha-512"],
        profile=headwater.Profile.BOTH,
        resources="none",
        resource_base="https://files.example.org/",
        listener=heard.append,
    )
    assert isinstance(done, headwater.PublishReport)
    assert (done.resources, done.created, done.held_back) == (1, 1, None)
    assert (state / "catalog.sqlite").exists()
    assert not (site / ".headwater").exists()
    assert not list(site.rglob("a.txt"))
    (entry,) = headwater.read_bytes((site / "files" / "resourcelist.xml").read_bytes())
    assert entry.loc == "https://files.example.org/a.txt"
    assert [digest.algorithm for digest in entry.digests] == ["sha-512"]
    assert heard


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_delete": 2},
        {"max_delete": "0.5"},
        {"resources": "move"},
        {"hashes": ["crc"]},
        {"hashes": "md5"},
        {"include": "*.json"},
        {"exclude": "*.json"},
        {"profile": "both"},
        {"base_url": "nowhere"},
        {"set_name": "a/b"},
    ],
    ids=str,
)
def test_publishing_refuses_what_cannot_be_asked_for(wrong: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    given: dict[str, Any] = {
        "files": tmp_path / "files",
        "to": tmp_path / "site",
        "base_url": "https://example.org",
    } | wrong
    ((name, value),) = wrong.items()
    with pytest.raises(headwater.UsageFault) as fault:
        headwater.publish_folder(**given)
    said = value if isinstance(value, str) else str(next(iter(value), "") if isinstance(value, list) else value)
    assert said in str(fault.value)  # as it was given, not a letter of it
    assert name in ("hashes", "base_url", "set_name") or name in str(fault.value)


@pytest.mark.parametrize("call", [headwater.sync_folder, headwater.audit_folder])
def test_options_are_options(call: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(headwater.UsageFault, match="options is a SyncOptions, not of type dict"):
        call("http://127.0.0.1:1/", tmp_path, {"password": "hidden"})
    with pytest.raises(headwater.UsageFault, match="not of type str"):
        headwater.explore_source("http://127.0.0.1:1/", "all")  # type: ignore[arg-type]


def test_publishing_says_as_the_command_does_that_not_all_is_published(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for number in range(20):
        (files / f"{number}.txt").write_text("a")

    def publish(**options: Any) -> headwater.PublishReport:
        return headwater.publish_folder(files, tmp_path / "site", "https://example.org", **options)

    assert publish().exit_status == 0
    for number in range(15):
        (files / f"{number}.txt").unlink()
    held = publish()
    assert (held.exit_status, held.resources, held.held_back is not None) == (4, 20, True)
    consented = publish(max_delete=1)
    assert (consented.exit_status, consented.deleted, consented.held_back) == (0, 15, None)


def test_importing_the_library_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import headwater; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ast.literal_eval(done.stdout)
    ours = [name for name in loaded if name.startswith("headwater")]
    assert ours == ["headwater", "headwater.version"]
    assert not {"msgspec", "click", "pycurl", "apsw", "asyncio"} & set(loaded)


def test_the_reference_of_the_library_is_what_the_library_says() -> None:
    told = {name for names in library.CHAPTERS.values() for name in names}
    assert told == {*headwater.__all__} - {"__version__"}
    assert library.PAGE.read_text("utf-8") == library.render(), "docs/reference/library.md is out of date: make docs"


def test_every_name_on_the_page_can_be_imported() -> None:
    page = library.PAGE.read_text("utf-8")
    types = re.findall(r"```python\n(.*?)```", page.removesuffix(library.ASYNCIO), re.DOTALL)
    types += re.findall(r"^- `([^`]*)`:", page, re.MULTILINE)
    types = [re.sub(r"'[^']*'", "", one) for one in types]  # values of a literal
    named = {name for text in types for name in re.findall(r"(?<![.\w])[A-Z][a-z][A-Za-z]*\b(?!\.)", text)}
    named |= {name for text in re.findall(r"[Rr]aises? `?([A-Z]\w+)", page) for name in [text]}
    others = {"Any", "Callable", "Iterable", "Iterator", "Literal", "Mapping", "Path", "None", "True", "False"}
    assert {"DocumentFault", "ReadLimits", "Finding", "WriteRefused"} <= named
    assert sorted(one for one in named - others if not hasattr(headwater, one)) == []


def test_every_phase_of_progress_is_told() -> None:
    said: set[str] = set()
    for path in SOURCE.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called.lower() == "progress" and isinstance(phase := node.args[0], ast.Constant):
                said.add(str(phase.value))
    assert said == set(PHASES)


def test_every_option_says_what_it_is_or_is_one_of_the_command() -> None:
    table = library.fields("SyncOptions", headwater.SyncOptions)
    told = set(re.findall(r"^\| `(\w+)` \| \S", table, re.MULTILINE))
    fields = set(headwater.SyncOptions.__struct_fields__)
    assert told < fields
    assert fields - told <= {one.name for one in sync_command.params}


def cancellable() -> Callable[[str, str], Coroutine[Any, Any, headwater.SyncReport]]:
    """The function `copy` of the page."""
    page = library.PAGE.read_text("utf-8")
    (block,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "asyncio" in block)
    tree = ast.parse(block)
    del tree.body[-1]
    names: dict[str, Any] = {}
    exec(compile(tree, "library.md", "exec"), names)
    return names["copy"]  # type: ignore[no-any-return]


def test_a_cancelled_copy_gives_up_its_transfers(tmp_path: Path) -> None:
    """The transfer never ends by itself: without being stopped the loop could not be closed."""
    asked = threading.Event()

    def stands_still(handler: Handler) -> None:
        asked.set()
        with contextlib.suppress(OSError):
            handler.connection.recv(1)  # until the client goes away

    async def begin_and_cancel(url: str) -> None:
        task = asyncio.create_task(cancellable()(url, str(tmp_path / "copy")))
        await asyncio.to_thread(asked.wait, 60)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with Source() as source:
        site = Site(source)
        site.put("f.txt", b"x")
        site.publish()
        source.pages["/set/resources/f.txt"] = Reply(script=stands_still)
        asyncio.run(begin_and_cancel(source.base))
    assert not (tmp_path / "copy" / "f.txt").exists()


def test_the_package_is_marked_as_typed() -> None:
    assert (SOURCE.parent / "py.typed").exists()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sets": "notes"}, "sets: expected a list, got text"),
        ({"sets": (5,)}, "sets: expected text"),
        ({"max_delete": 50}, "max_delete: expected a number <= 1"),
        ({"max_delete": "50%"}, "max_delete: expected a number, or null, got text"),
        ({"max_delete": float("nan")}, "max_delete: expected a number >= 0"),
        ({"concurrency": 0}, "concurrency: expected a whole number >= 1"),
        ({"concurrency": 257}, "concurrency: expected a whole number <= 256"),
        ({"concurrency": True}, "concurrency: expected a whole number, got true or false"),
        ({"rate": 0}, "rate: expected a number > 0"),
        ({"largest": 0}, "largest: expected a whole number >= 1"),
        ({"stall_seconds": 0}, "stall_seconds: expected a whole number >= 1"),
        ({"retries": -1}, "retries: expected a whole number >= 0"),
        ({"base": 5}, "base: expected text, or null, got a whole number"),
        ({"delete": "no"}, "delete: expected true or false, got text"),
        ({"prefer": "none"}, "prefer: invalid enum value 'none'"),
    ],
)
def test_options_are_checked_as_the_command_checks_them(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(headwater.UsageFault, match=said):
        headwater.SyncOptions(**wrong)


def test_options_take_a_list_for_a_tuple() -> None:
    given: Any = ["notes", "files"]
    assert headwater.SyncOptions(sets=given, max_delete=1).sets == ("notes", "files")


def test_bounds_of_options_are_those_of_the_command() -> None:
    import click
    import msgspec

    from headwater.cli.shared_options import Quantity
    from headwater.cli.sync import command

    said = {one.name: str(one.type) for one in msgspec.structs.fields(headwater.SyncOptions)}
    ranges = {one.name: one.type for one in command.params if isinstance(one.type, (click.IntRange, click.FloatRange))}
    bounds = {name: f"ge={one.min}, le={one.max}" for name, one in ranges.items() if not one.min_open and name in said}
    quantities = {
        one.name: one.type for one in command.params if isinstance(one.type, Quantity) and one.type.least >= 1
    }
    bounds |= {name: f"ge={one.least}" for name, one in quantities.items() if name in said}
    assert {name for name, bound in bounds.items() if bound not in said[name]} == set()
    assert {"concurrency", "largest", "stall_seconds"} <= set(bounds)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"loc": 5}, "loc of an entry is a URI as text, not 5"),
        ({"length": "8"}, "length of an entry is a whole number, not '8'"),
        ({"length": True}, "length of an entry is a whole number, not True"),
        ({"hash": headwater.Digest("md5", "0" * 32)}, r"hash of an entry is text, .*str\(digest\)"),
    ],
)
def test_an_entry_is_checked_when_it_is_made(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(headwater.UsageFault, match=said):
        headwater.Entry(**({"loc": "https://example.org/a"} | wrong))


def a_list(**changed: Any) -> headwater.Document:
    given: dict[str, Any] = {
        "kind": headwater.Kind.RESOURCE_LIST,
        "at": dt.datetime(2026, 1, 3, 9, tzinfo=dt.UTC),
        "links": (headwater.Link(rel="up", href="https://example.org/capabilitylist.xml"),),
    }
    return headwater.Document(**given | changed)


@pytest.mark.parametrize(
    ("document", "entry", "said"),
    [
        ({}, {"lastmod": "2020"}, "lastmod of Entry is of another type: '2020'"),
        ({}, {"links": "up"}, "links of Entry is of another type"),
        ({}, {"type": 7}, "type of Entry is of another type"),
        (
            {"kind": headwater.Kind.CHANGE_LIST, "at": None, "from_": dt.datetime(2026, 1, 3, tzinfo=dt.UTC)},
            {"change": "updated", "datetime": dt.datetime(2026, 1, 4, tzinfo=dt.UTC)},
            "change of Entry is of another type: 'updated'",
        ),
        ({"kind": "resourcelist"}, {}, "kind of Document is of another type"),
        ({"kind": "resource-list"}, {}, "kind of Document is of another type"),
        ({"at": "2020"}, {}, "at of Document is of another type"),
    ],
)
def test_the_writer_refuses_what_has_another_type(document: dict[str, Any], entry: dict[str, Any], said: str) -> None:
    entries = [headwater.Entry(**({"loc": "https://example.org/a"} | entry))]
    with pytest.raises(headwater.UsageFault, match=said):
        list(headwater.write_document(a_list(**document), entries))


def test_the_writer_refuses_a_profile_that_is_a_text() -> None:
    """It was taken for the default."""
    with pytest.raises(headwater.UsageFault, match="profile is one of Profile, not 'both'"):
        list(headwater.write_document(a_list(), [], "both"))  # type: ignore[arg-type]


def test_a_digest_is_written_as_it_is_read() -> None:
    digests = (headwater.Digest("md5", "0" * 32), headwater.Digest("sha-256", "1" * 64))
    entry = headwater.Entry(loc="https://example.org/a", hash=" ".join(map(str, digests)))
    (read,) = headwater.read_bytes(b"".join(headwater.write_document(a_list(), [entry])))
    assert read.digests == digests == entry.digests


def test_reading_at_once_gives_what_reading_in_pieces_gives() -> None:
    data = b"".join(headwater.write_document(a_list(), [headwater.Entry(loc="https://example.org/a")]))
    whole, pieces = headwater.read_bytes(data), headwater.read_document([data[:50], data[50:]])
    assert isinstance(whole, headwater.Reading)
    assert [entry.loc for entry in whole] == [entry.loc for entry in pieces] == ["https://example.org/a"]
    assert (whole.document, whole.warnings) == (pieces.document, pieces.warnings)
    assert list(whole) == whole.entries  # also a second time
    with pytest.raises(headwater.SourceFault):
        headwater.read_bytes(data[:-5])


def test_a_document_that_is_refused_leaves_the_old_file(tmp_path: Path) -> None:
    place = tmp_path / "resourcelist.xml"
    good = headwater.Entry(loc="https://example.org/a")
    assert headwater.write_file(place, a_list(), [good]) == place.stat().st_size
    before = place.read_bytes()
    with pytest.raises(headwater.UsageFault, match="must have a link up"):
        headwater.write_file(place, a_list(links=()), [good])
    late = (headwater.Entry(loc=f"https://example.org/{n}" if n < 1_000 else "no uri") for n in range(1_001))
    with pytest.raises(headwater.UsageFault):
        headwater.write_file(place, a_list(), late)
    assert place.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["resourcelist.xml"]
    for wrong in (tmp_path / "no folder" / "list.xml", tmp_path, place / "list.xml"):
        with pytest.raises(headwater.StoreFault) as fault:
            headwater.write_file(wrong, a_list(), [good])
        assert fault.value.todo == "Name a file in a folder that is there."


def test_reports_and_entries_are_had_as_json_has_them(tmp_path: Path) -> None:
    import json

    from tests.support.program import run_here

    with Source() as source:
        site = Site(source)
        site.put("f.txt", b"x")
        site.publish()
        report = headwater.sync_folder(source.base, tmp_path / "copy")
        audit = headwater.audit_folder(source.base, tmp_path / "copy")
        told = json.loads(run_here("sync", source.base, tmp_path / "copy", "--json").stdout)
        assert json.loads(json.dumps(report.to_dict())).keys() == told.keys()
        assert report.to_dict()["sets"][0]["created"] == 1
        assert report.to_dict()["sets"][0].keys() == told["sets"][0].keys()
        told = json.loads(run_here("audit", source.base, tmp_path / "copy", "--json").stdout)
        assert json.loads(json.dumps(audit.to_dict())).keys() == told.keys()
        told = json.loads(run_here("explore", source.base, "--json").stdout)
        assert json.loads(json.dumps(headwater.explore_source(source.base).to_dict())).keys() == told.keys()
        document = source.reply("/set/resourcelist.xml").body
    told = json.loads(run_here("status", tmp_path / "copy", "--json").stdout)
    assert json.loads(json.dumps(headwater.copy_status(tmp_path / "copy").to_dict())).keys() == told.keys() - {"push"}
    (tmp_path / "list.xml").write_bytes(document)
    (entry,) = json.loads(run_here("inspect", tmp_path / "list.xml", "--json").stdout)["entries"]
    (read,) = headwater.read_bytes(document)
    assert json.loads(json.dumps(read.to_dict())) == entry
    with_extra = headwater.Entry(loc="x", extra=(("{n}a", "b"),), links=(headwater.Link(rel="up", href="y"),))
    assert with_extra.to_dict() == {"loc": "x", "extra": {"{n}a": "b"}, "links": [{"rel": "up", "href": "y"}]}


def test_changes_of_a_source_are_had_without_a_copy() -> None:
    with Source() as source:
        site = Site(source)
        site.put("a", b"1")
        site.put("a", b"22")
        site.put("b", b"1")
        site.publish()
        every = headwater.changes(source.base)
        assert [(one.loc, one.change, one.length) for one in every] == [
            (site.uri("a"), headwater.ChangeKind.CREATED, 1),
            (site.uri("a"), headwater.ChangeKind.UPDATED, 2),
            (site.uri("b"), headwater.ChangeKind.CREATED, 1),
        ]
        assert list(headwater.changes(source.base, every.position)) == []
        site.drop("b")
        site.put("c", b"3")
        site.publish()
        later = headwater.changes(source.base, every.position)
        found = [(one.loc, one.change, one.datetime) for one in later]
        assert found == [
            (site.uri("b"), headwater.ChangeKind.DELETED, site.now() - dt.timedelta(seconds=1)),
            (site.uri("c"), headwater.ChangeKind.CREATED, site.now()),
        ]
        assert list(headwater.changes(source.base, later.position)) == []
        for since in (site.now(), site.now().isoformat()):
            assert [one.loc for one in headwater.changes(source.base, since)] == [site.uri("c")]
        with pytest.raises(headwater.UsageFault, match="no position"):
            headwater.changes(source.base, "{1")


def test_changes_that_lists_do_not_tell_any_more_are_undetermined() -> None:
    with Source() as source:
        site = Site(source)
        site.put("a", b"1")
        site.publish()
        known = headwater.changes(source.base)
        assert len(list(known)) == 1
        site.clock += 100
        site.put("b", b"1")
        site.publish(since=site.clock)
        with pytest.raises(headwater.Undetermined):
            list(headwater.changes(source.base, known.position))
        with pytest.raises(headwater.SourceFault):
            list(headwater.changes("http://127.0.0.1:1/"))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: headwater.read_bytes("text"), "a document is octets, not of type str"),  # type: ignore[arg-type]
        (lambda: headwater.sync_folder(None, "copy"), "the address of a source is text, not None"),  # type: ignore[arg-type]
        (lambda: headwater.explore_source(b"http://x/"), "the address of a source is text"),  # type: ignore[arg-type]
    ],
)
def test_arguments_of_another_type_are_usage_faults(call: Callable[[], object], said: str) -> None:
    with pytest.raises(headwater.UsageFault, match=said):
        call()
