"""Metadata with content from a real `headwater serve` whose rules say what describes what (RS-DST-16)."""

from __future__ import annotations

from pathlib import Path

from tests.support.copying import tree
from tests.support.program import run_here
from tests.support.serving import Process
from tests.support.waiting import until

CONFIG = """
state = "state"
port = 0

[[set]]
files = "files"

[[set.described]]
content = "{stem}.pdf"
record = "{stem}.xml"
"""


def test_metadata_with_content_from_a_real_server(tmp_path: Path) -> None:
    """A record that comes to a resource brings that, one that goes takes nothing with it."""
    files, dest, config = tmp_path / "files", tmp_path / "copy", tmp_path / "headwater.toml"
    files.mkdir()
    for name in ("a.pdf", "a.xml", "b.pdf", "c.txt"):
        (files / name).write_bytes(name.encode())
    config.write_text(CONFIG)
    with Process(str(config)) as process:
        process.ready()

        def copied() -> list[str]:
            command = ("sync", process.url, dest, "--only-described", "--with-metadata", "--include", "*.pdf", "-q")
            done = run_here(*command)
            assert done.returncode == 0, done.stderr
            return sorted(tree(dest))

        assert copied() == ["a.pdf", "a.xml"]
        (files / "b.xml").write_bytes(b"b.xml")
        until(lambda: copied() == ["a.pdf", "a.xml", "b.pdf", "b.xml"], what="the resource with its record")
        (files / "a.xml").unlink()
        until(lambda: copied() == ["a.pdf", "b.pdf", "b.xml"], what="the deletion of the record alone")
        assert run_here("audit", process.url, dest).returncode == 0
