"""Archives of Headwater's own close the gap of a copy that was away for too long, from a tree of files."""

from __future__ import annotations

from pathlib import Path

from headwater.sync.explore import explore
from tests.interop.programs import headwater, web_server
from tests.support.copying import DONE, check, go, tree

CONFIG = """
state = {state!r}
base_url = {url!r}
documents = {out!r}

[[set]]
files = {files!r}
resource_base = {data!r}
segment_seconds = 0.001
refresh_seconds = 0.001
retention_seconds = 0.001
archive = true
archive_seconds = 0.001
"""


def test_archives_of_our_own(tmp_path: Path) -> None:
    """RS-ARC-02, RS-ARC-34: nothing but what has changed is fetched, and the copy is the folder."""
    out, dest, config = tmp_path / "out", tmp_path / "copy", tmp_path / "source.toml"
    files = out / "data"
    files.mkdir(parents=True)
    for number in range(5):
        (files / f"f{number}.txt").write_text(f"{number}\n")
    with web_server(out) as url:
        places = {"state": tmp_path / "state", "out": out, "files": files, "data": f"{url}/data", "url": url}
        config.write_text(CONFIG.format(**{name: str(place) for name, place in places.items()}))
        headwater("publish", config)
        assert go(url, dest).status == DONE
        for step in range(7):
            (files / "f1.txt").write_text(f"state {step}\n")
            (files / f"new{step}.txt").write_text("new\n")
            (files / f"new{step - 1}.txt").unlink(missing_ok=True)
            headwater("publish", config)
        ran = go(url, dest)
        assert (ran.status, ran.one.process) == (DONE, "increment"), ran.notices
        assert "RS-ARC-34" in ran.rules()
        assert tree(dest) == tree(files)
        assert check(url, dest).verdict == "in sync"
        shown = {node.capability: node for node in explore(url).tree.children[0].children}
        assert (shown["changelist-archive"].entries or 0) > 1
        assert (shown["resourcelist-archive"].entries or 0) > 1
        said = headwater("status", config)
    assert "archive of files" in str(said)
