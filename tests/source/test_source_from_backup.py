"""A source that is brought back from a backup while a copy follows it: the copy is never wrong with status 0.

Files, state and documents go back together, or the state alone, or the state is lost, and the source goes on from
there. DST-C10, DST-F12.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.interop.programs import headwater, web_server
from tests.support.copying import DONE, UNDETERMINED, check, go, tree
from tests.support.examples import MANY
from tests.support.program import run_here

CONFIG = """
state = {state!r}
base_url = {url!r}
documents = {out!r}

[[set]]
files = {files!r}
resource_base = {data!r}
segment_seconds = {segment}
refresh_seconds = {segment}
"""

STEPS = 40 if MANY else 14
WHOLE, STATE = ("state", "out", "files"), ("state",)


class Backups:
    """A source in one folder, of which any part may be brought back to how it was."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder, self.chance, self.number = folder, chance, 0
        self.files.mkdir(parents=True)
        for name in range(12):
            self.write(f"f{name}.txt")

    @property
    def files(self) -> Path:
        return self.folder / "files"

    def write(self, name: str) -> None:
        self.number += 1
        (self.files / name).write_text(f"{self.number}\n" * self.chance.randrange(1, 4))

    def change(self) -> None:
        """One to three files are written, and sometimes one goes."""
        for _ in range(self.chance.randrange(1, 4)):
            self.write(f"f{self.chance.randrange(16)}.txt")
        if self.chance.random() < 0.3:
            (self.files / f"f{self.chance.randrange(12, 16)}.txt").unlink(missing_ok=True)

    def back_up(self) -> None:
        shutil.rmtree(self.folder / "backup", ignore_errors=True)
        for part in WHOLE:
            shutil.copytree(self.folder / part, self.folder / "backup" / part, symlinks=True)

    def bring_back(self, parts: tuple[str, ...]) -> None:
        for part in parts:
            for path in (self.folder / part).iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            shutil.copytree(self.folder / "backup" / part, self.folder / part, symlinks=True, dirs_exist_ok=True)


@pytest.mark.parametrize("seed", range(30 if MANY else 2))
def test_a_copy_of_a_source_from_a_backup_is_right_or_not_done(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    source, dest, config = Backups(tmp_path / "source", chance), tmp_path / "copy", tmp_path / "source.toml"
    with web_server(source.folder, conditional=False) as url:
        places = {name: str(source.folder / name) for name in WHOLE}
        segment = 0.001 if seed % 2 else 3600.0
        config.write_text(CONFIG.format(**places, url=f"{url}/out", data=f"{url}/files", segment=segment))
        headwater("publish", config)
        source.back_up()
        assert go(f"{url}/out", dest).status == DONE
        done = []
        for _ in range(STEPS):
            step = chance.choice(["change", "change", "change", "back up", "whole", "state"])
            done.append(step)
            if step == "change":
                source.change()
            elif step == "back up":
                source.back_up()
            else:
                source.bring_back(WHOLE if step == "whole" else STATE)
            if chance.random() < 0.8:
                headwater("publish", config)
                if chance.random() < 0.7:
                    done.append("sync")
                    ran = go(f"{url}/out", dest)
                    assert ran.status != DONE or tree(dest) == tree(source.files), (seed, done, ran.notices)
        headwater("publish", config)
        ran = go(f"{url}/out", dest)
        if ran.status == UNDETERMINED:  # no Resource List is newer than what the copy had read
            ran = go(f"{url}/out", dest, accept_reset=True, max_delete=1.0)
        assert (ran.status, tree(dest)) == (DONE, tree(source.files)), (seed, done, ran)
        assert check(f"{url}/out", dest).verdict == "in sync"


@pytest.mark.parametrize("how", ["folders", "dump", "dump alone"])
def test_copies_follow_a_restored_source_at_once(how: str, tmp_path: Path) -> None:
    """A copy has read what the backup does not have. Of folders the operator says that they are old; a dump says it."""
    source, dest, config = Backups(tmp_path / "source", random.Random(1)), tmp_path / "copy", tmp_path / "source.toml"
    with web_server(source.folder, conditional=False) as url:
        places = {name: str(source.folder / name) for name in WHOLE}
        config.write_text(CONFIG.format(**places, url=f"{url}/out", data=f"{url}/files", segment=3600.0))
        headwater("publish", config)
        source.back_up()
        headwater("catalog", "export", config, "-o", tmp_path / "dump")
        source.write("new.txt")
        headwater("publish", config)
        assert go(f"{url}/out/", dest).status == DONE
        source.bring_back(("state", "out") if how != "dump alone" else ("state",))
        if how == "folders":
            assert headwater("catalog", "begin-anew", config) == "begun anew: files\n"
        else:
            shutil.rmtree(source.folder / "state")
            if how == "dump alone":
                shutil.rmtree(source.folder / "out")
            headwater("catalog", "import", tmp_path / "dump", source.folder / "state")
        source.write("newer.txt")
        headwater("publish", config)
        assert go(f"{url}/out/", dest).status == DONE
        assert tree(dest) == tree(source.files)


def test_change_lists_that_nobody_read_do_not_begin_anew(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    config = tmp_path / "source.toml"
    places = {name: str(tmp_path / name) for name in WHOLE}
    config.write_text(CONFIG.format(**places, url="http://a.example", data="http://a.example/files", segment=3600.0))
    headwater("publish", config)
    headwater("catalog", "export", config, "-o", tmp_path / "dump")
    shutil.rmtree(tmp_path / "state")
    headwater("catalog", "import", tmp_path / "dump", tmp_path / "state")
    done = run_here("catalog", "begin-anew", config)
    assert (done.returncode, b"nothing was published" in done.stderr) == (2, True)
