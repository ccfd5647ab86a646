"""The library: `__all__` is what is exposed, everything is typed and documented, and importing it costs nothing."""

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater

SOURCE = Path(headwater.__file__)


def declared_for_types() -> set[str]:
    tree = ast.parse(SOURCE.read_text())
    blocks = [node for node in tree.body if isinstance(node, ast.If)]
    return {
        alias.asname or ""
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
    if name == "Listener":  # a type of functions
        assert thing == Callable[[headwater.Progress | headwater.Notice], None]
        return
    assert inspect.getdoc(thing)
    assert thing.__module__.startswith("headwater.")


def test_what_is_not_public_is_not_there() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        headwater.nonsense  # noqa: B018


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
    (entry,) = headwater.read_bytes((site / "files" / "resourcelist.xml").read_bytes())[1]
    assert entry.loc == "https://files.example.org/a.txt"
    assert [digest.algorithm for digest in entry.digests] == ["sha-512"]
    assert heard


@pytest.mark.parametrize(
    "wrong",
    [{"max_delete": 2}, {"resources": "move"}, {"hashes": ["crc"]}, {"base_url": "nowhere"}, {"set_name": "a/b"}],
)
def test_publishing_refuses_what_cannot_be_asked_for(wrong: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    given: dict[str, Any] = {
        "files": tmp_path / "files",
        "to": tmp_path / "site",
        "base_url": "https://example.org",
    } | wrong
    with pytest.raises(headwater.UsageFault):
        headwater.publish_folder(**given | wrong)


def test_importing_the_library_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import headwater; print(sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = ast.literal_eval(done.stdout)
    ours = [name for name in loaded if name.startswith("headwater")]
    assert ours == ["headwater", "headwater.version"]
    assert not {"msgspec", "click", "pycurl", "apsw", "asyncio"} & set(loaded)


def test_the_package_is_marked_as_typed() -> None:
    assert (SOURCE.parent / "py.typed").exists()
