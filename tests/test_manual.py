"""The documentation is run: command lines, examples of the library, and the pages that are written from the program."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tools.engines.launch import free_port

from headwater.errors import message, messages
from headwater.source.config import read_config
from headwater.spec.records import HASHLIB
from tests.support.serving import request
from tests.support.waiting import until

pytestmark = pytest.mark.long(25)

ROOT = Path(__file__).resolve().parent.parent
PAUSE = re.compile(r"sleep \d+(?:$|; (?=headwater))")
"""With it a page has its reader wait until a server has published what the commands before have changed."""
CHANGES = ("echo ", "rm ")
"""How commands begin that change a file of a published folder, once it is served."""


def test_every_code_in_the_source_is_in_the_table_and_none_is_there_for_nothing() -> None:
    used: set[str] = set()
    for path in (ROOT / "src" / "headwater").rglob("*.py"):
        used |= set(re.findall(r"\b(?:HW-(?:[A-Z]+-)?\d+|RS-DOC-19|RS-DISC-05)\b", path.read_text("utf-8")))
    assert used == set(messages())


def test_the_advice_on_digests_names_those_that_there_are() -> None:
    assert message("HW-OWN-04").advice == f"Use one of {', '.join(HASHLIB)}."


def test_the_map_names_every_room_and_nothing_that_is_not_there() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    source = ROOT / "src" / "headwater"
    for name in re.findall(r"`([a-z_]+/[a-z_/]*(?:\.py)?)`", text):
        assert (source / name).exists() or (ROOT / name).exists(), name
    rooms = {path.name for path in source.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= set(re.findall(r"[a-z]+", text))


def test_links_between_the_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


# -- command lines and examples


class Scratch:
    """A folder in which the page is carried out from top to bottom, at ports of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.ports = neighbouring_ports()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "HOME": str(folder), "COLUMNS": "120", "LC_ALL": "C.UTF-8"}
        self.environment.pop("XDG_STATE_HOME", None)
        self.servers: list[subprocess.Popen[bytes]] = []
        self.served: list[int] = []
        self.changed = 0

    def at_my_port(self, text: str) -> str:
        return re.sub(r"(:|--port )(800[0-2])\b", lambda found: f"{found[1]}{self.ports[found[2]]}", text)

    def carry_out(self, command: str) -> str:
        """What a command says; in the background when it ends with &, once it answers."""
        if PAUSE.match(command):
            until(lambda: self.published_changes() >= self.changed, what="what was changed")
            command = PAUSE.sub("", command)
        self.changed += bool(self.served) and command.startswith(CHANGES)
        arguments = ["bash", "-c", self.at_my_port(command.removesuffix("&"))]
        if command.endswith("&"):
            quiet = subprocess.DEVNULL
            self.servers.append(
                subprocess.Popen(
                    arguments, cwd=self.folder, env=self.environment, stdout=quiet, stderr=quiet, start_new_session=True
                )
            )
            if "--port" in command:
                port = self.ports[command.split("--port ")[1][:4]]
                self.wait_until_published(port)
                self.served.append(port)
                self.changed = self.published_changes()
            return ""
        done = subprocess.run(
            arguments,
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}"
        return done.stdout

    def wait_until_published(self, port: int) -> None:
        """Until the server answers with a Source Description."""

        def answered() -> bool:
            try:
                return request(f"http://127.0.0.1:{port}", "/.well-known/resourcesync").status == 200
            except OSError:
                return False  # it does not listen yet

        until(answered)

    def published_changes(self) -> int:
        """How many changes all servers have published."""
        reports = [json.loads(request(f"http://127.0.0.1:{port}", "/health").body) for port in self.served]
        return sum(one.get("published_changes", 0) for report in reports for one in report["sets"])

    def close(self) -> None:
        for server in self.servers:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(30)


def neighbouring_ports() -> dict[str, int]:
    """Three free ports, two of them one after the other: the hub of `serve --hub` takes the second.

    They are none that the system gives to others while the page is carried out, which takes minutes.
    """
    while True:
        one, other = free_port(), free_port()
        with suppress(OSError), socket.create_server(("127.0.0.1", one + 1)):
            return {"8000": one, "8001": one + 1, "8002": other}


@contextmanager
def scratch(folder: Path) -> Iterator[Scratch]:
    made = Scratch(folder)
    try:
        yield made
    finally:
        made.close()


def blocks(page: Path) -> list[tuple[int, str, str]]:
    """Line number, language and text of every fenced block."""
    text = page.read_text("utf-8")
    found = re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start()) + 1, match[1], match[2]) for match in found]


def check_console(block: str, place: Scratch) -> None:
    """Each `$` line is carried out; what follows is what it says, `…` standing for anything."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        said = place.carry_out(command)
        if expected or not command.startswith(("mkdir", "echo", "sleep", "rm")):
            pattern = re.escape(place.at_my_port(expected)).replace("…", ".*")
            if not re.fullmatch(pattern, said, re.DOTALL):
                pytest.fail(f"$ {command}\n{said}\n-- is not --\n{expected}", pytrace=False)


@pytest.mark.parametrize("page", ["manual.md", "push.md"])
def test_a_page_is_carried_out_from_top_to_bottom(tmp_path: Path, page: str) -> None:
    with scratch(tmp_path) as place:
        for line, language, block in blocks(ROOT / "docs" / page):
            print(f"docs/{page}, line {line}")  # shown when the block fails
            if language == "console":
                check_console(block, place)
            elif language == "python":
                (tmp_path / "example.py").write_text(place.at_my_port(block))
                place.carry_out("python -W error example.py")
            elif named := re.match(r"# (\w+\.toml)\n", block):
                (tmp_path / named[1]).write_text(block)
                if "[[set]]" in block:
                    read_config(tmp_path / named[1])
            else:
                assert language in {"text", "toml"}


def test_the_readme_names_commands_that_exist() -> None:
    from headwater.cli import COMMANDS

    text = "\n".join(block for _, _, block in blocks(ROOT / "README.md"))
    assert set(re.findall(r"^headwater (\w+)", text, re.MULTILINE)) <= set(COMMANDS)
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"^make (\w+)", text, re.MULTILINE)) <= targets


def test_each_proxy_of_a_source_in_the_documentation_speaks_http_1_1() -> None:
    """nginx speaks 1.0 unless told otherwise, and a package on demand is then refused with 505."""
    places = [
        (page.name, place)
        for page in sorted((ROOT / "docs").glob("*.md"))
        for place in re.findall(r"location /(?:sync/)? \{[^}]*\}", page.read_text("utf-8"))
        if ":8000" in place
    ]
    assert len(places) == 2
    assert [name for name, place in places if "proxy_http_version 1.1;" not in place] == []
