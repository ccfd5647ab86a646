"""What a source leaves out by a file of patterns or by marks in folders, both of which change while it is at work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.cli import run
from headwater.errors import Exit, UsageFault
from headwater.files.patterns import RereadSelection
from headwater.source.config import SetConfig, SourceConfig
from headwater.source.source import Source
from headwater.spec.records import ChangeKind
from tests.support.documents import read_bytes
from tests.support.serving import Face, source_at_work
from tests.support.waiting import settle, until

pytestmark = pytest.mark.long(10)

FILES = ("top", "1/a", "1/deep/b", "2/c", "3/d")


class World:
    """A folder, and a source of it at work."""

    def __init__(self, base: Path) -> None:
        self.folder, self.state, self.patterns = base / "folder", base / "state", base / "patterns.txt"
        for name in FILES:
            self.put(name)

    def put(self, name: str, text: str = "x") -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    @contextmanager
    def running(self, **settings: object) -> Iterator[Face]:
        def config(url: str) -> SourceConfig:
            one = SetConfig(files=str(self.folder), **settings)  # type: ignore[arg-type]
            return SourceConfig(state=str(self.state), base_url=url, sets=(one,))

        with source_at_work(Face, config) as face:
            until(lambda: face.source.sets_health[0].phase == "following")
            yield face


def listed(face: Face) -> set[str]:
    """What the Resource List and the Change Lists after it name."""
    home = f"{face.url}/files/resources/"
    found = {one.loc for one in read_bytes(face.get("/files/resourcelist.xml").body)[1]}
    for one in read_bytes(face.get("/files/changelist.xml").body)[1]:
        (found.discard if one.change is ChangeKind.DELETED else found.add)(one.loc)
    return {one.removeprefix(home) for one in found}


def served(face: Face) -> set[str]:
    return {one for one in FILES if face.get(f"/files/resources/{one}").status == 200}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_file_of_patterns_holds_at_once_and_what_leaves_it_comes_back(world: World) -> None:
    """What was served a moment ago is not any more; however much of the set that is, nothing is held back."""
    world.patterns.write_text("# embargoed\n2/\n")
    with world.running(exclude_file=str(world.patterns)) as face:
        assert served(face) == listed(face) == {"top", "1/a", "1/deep/b", "3/d"}
        world.patterns.write_text("2/\n1/\nto?\n")
        assert served(face) == {"3/d"}
        until(lambda: listed(face) == {"3/d"})
        world.patterns.write_text("to?\n")
        until(lambda: listed(face) == {"1/a", "1/deep/b", "2/c", "3/d"})
        assert served(face) == listed(face)
        assert not face.notices


def test_nothing_becomes_public_while_the_patterns_cannot_be_read(
    world: World, capfd: pytest.CaptureFixture[str]
) -> None:
    world.patterns.write_text("2/\n")
    before = {"top", "1/a", "1/deep/b", "3/d"}
    with world.running(exclude_file=str(world.patterns)) as face:
        for wrong in (None, b"a//b\n", b"[z-a]\n", b"", b" \n\n"):
            if wrong is None:
                world.patterns.unlink()
            else:
                world.patterns.write_bytes(wrong)
            world.put("4/new")
            until(lambda: face.source.sets_health[0].held_back)
            assert (served(face), listed(face)) == (before, before)
            assert {one.rule for one in face.notices} >= {"HW-ING-25"}
            assert run(["status", str(world.state)]) == Exit.TRANSFERS_FAILED
            assert "exclude_file cannot be read, and nothing that is new is published" in capfd.readouterr().out
            world.patterns.write_text("2/\n")
            until(lambda: listed(face) == before | {"4/new"})
            until(lambda: not face.source.sets_health[0].held_back)
            (world.folder / "4" / "new").unlink()
            until(lambda: listed(face) == before)
            assert run(["status", str(world.state)]) == Exit.DONE
            capfd.readouterr()


def test_a_file_that_is_written_anew_in_place_shows_nothing_meanwhile(tmp_path: Path) -> None:
    file = tmp_path / "patterns.txt"
    file.write_text("a\nb\n")
    selection = RereadSelection((), ("x",), str(file), hidden=False)

    def taken() -> set[bytes]:
        return {one for one in (b"a", b"b", b"c", b"d", b"x") if selection.current().takes(one)}

    assert taken() == {b"c", b"d"}
    file.write_text("")
    assert taken() == {b"c", b"d"}
    file.write_text("c\n")
    assert taken() == {b"d"}
    until(lambda: taken() == {b"a", b"b", b"d"})


def test_a_mark_takes_its_folder_out_until_it_is_removed(world: World) -> None:
    """With all below it, by whatever link of the set it is reached; new files in it never show."""
    (world.folder / "3" / "link").symlink_to("../1/deep")
    with world.running(exclude_folders_with=(".embargo", "PRIVATE")) as face:
        links = {"3/link/b"}
        assert listed(face) == {*FILES, *links}
        assert served(face) == set(FILES)
        world.put("1/.embargo")
        assert served(face) == {"top", "2/c", "3/d"}
        assert face.get("/files/resources/3/link/b").status == 404
        world.put("1/deep/new")
        world.put("2/PRIVATE")
        world.put("2/e")
        until(lambda: listed(face) - links == {"top", "3/d"})
        (world.folder / "1" / ".embargo").unlink()
        until(lambda: listed(face) - links - {"3/link/new"} == {"top", "1/a", "1/deep/b", "1/deep/new", "3/d"})
        world.put(".embargo")
        until(lambda: not listed(face))
        assert not served(face)
        (world.folder / ".embargo").unlink()
        until(lambda: listed(face) >= {"top", "1/a", "3/d", "3/link/b"})
        assert not face.notices


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"exclude_file": "{base}/nothing"}, "exclude_file cannot be read: [Errno 2] No such file"),
        ({"exclude_file": "{base}"}, "exclude_file cannot be read: [Errno 21] Is a directory"),
        (
            {"exclude_file": "{base}/empty"},
            "exclude_file cannot be read: it is empty. To exclude nothing, write a line",
        ),
        ({"exclude_file": "{base}/wrong"}, "exclude_file cannot be read: not a pattern: '../b'"),
        ({"exclude_folders_with": ("a/b",)}, "no name of what a folder may contain"),
        ({"exclude_folders_with": ("..",)}, "no name of what a folder may contain"),
    ],
)
def test_a_source_does_not_begin_with_exclusions_that_nobody_knows(
    tmp_path: Path, settings: dict[str, object], said: str
) -> None:
    (tmp_path / "wrong").write_text("a\n../b\n")
    (tmp_path / "empty").touch()
    given = {key: one.format(base=tmp_path) if isinstance(one, str) else one for key, one in settings.items()}
    one = SetConfig(files=str(tmp_path), **given)  # type: ignore[arg-type]
    with pytest.raises(UsageFault) as refused:
        Source(SourceConfig(state=str(tmp_path / "state"), base_url="http://localhost:1", sets=(one,)))
    assert said in refused.value.what


def test_the_file_of_patterns_is_never_published(tmp_path: Path) -> None:
    world = World(tmp_path)
    (world.folder / "embargo.txt").write_text("1/\n")
    settle()
    with world.running(exclude_file=str(world.folder / "embargo.txt")) as face:
        assert listed(face) == {"top", "2/c", "3/d"}
        assert face.get("/files/resources/embargo.txt").status == 404


def test_a_cut_file_of_patterns_changes_no_static_tree_and_a_comment_excludes_nothing(tmp_path: Path) -> None:
    world, tree = World(tmp_path), tmp_path / "tree"
    config = tmp_path / "source.toml"
    config.write_text(
        f'to = "{tree}"\nbase_url = "http://localhost:1"\n'
        f'[[set]]\nname = "files"\nfiles = "{world.folder}"\nexclude_file = "patterns.txt"\n'
    )

    def published() -> set[str]:
        root = tree / "files" / "resources"
        return {str(one.relative_to(root)) for one in root.rglob("*") if one.is_file()}

    world.patterns.write_text("2/\n1/\n")
    assert run(["publish", "-q", str(config)]) == Exit.DONE
    world.put("4/new")
    for cut in ("", "\n"):
        world.patterns.write_text(cut)
        assert run(["publish", "-q", str(config)]) == Exit.USAGE
        assert published() == {"top", "3/d"}
    world.patterns.write_text("# nothing\n")
    assert run(["publish", "-q", str(config)]) == Exit.DONE
    assert published() == {*FILES, "4/new"}


def test_a_line_excludes_also_the_path_that_it_spells(tmp_path: Path) -> None:
    file, name = tmp_path / "patterns.txt", "plan [v2].pdf"
    file.write_text(f"e/{name}\n[ab][!c]?*\n")
    taken = RereadSelection((), (), str(file)).current().takes
    paths = (f"e/{name}", "e/plan v.pdf", "e/plan 3.pdf", f"d/{name}", "[ab][!c]?*", "axyz", "acyz")
    assert [one for one in paths if taken(one.encode())] == ["e/plan 3.pdf", f"d/{name}", "acyz"]


def test_why_names_the_line_of_the_file_and_the_mark(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    world = World(tmp_path)
    world.patterns.write_text("2/\n")
    world.put("3/.embargo")
    config = tmp_path / "source.toml"
    config.write_text(f"""
        state = "{world.state}"
        base_url = "http://localhost:1"
        [[set]]
        name = "files"
        files = "{world.folder}"
        exclude_file = "patterns.txt"
        exclude_folders_with = ".embargo"
    """)
    assert run(["publish", str(config)]) == Exit.DONE
    for path, said in (("2/c", "the exclude pattern 2/ leaves it out"), ("3/d", "a mark of exclude_folders_with")):
        capfd.readouterr()
        run(["why", str(config), path])
        assert said in capfd.readouterr().out
