"""Pages of the documentation, carried out in an empty folder and compared with what comes of it.

- A block ```console is carried out from top to bottom: each `$ ` line is a command (one that ends in a backslash goes
  on in the next line), and what follows is its output, `…` standing for anything. A command has to succeed, unless
  `$ echo $?` follows. One that ends in ` &` runs in the background from when it answers; `kill %1` ends the first.
- A block whose first line is `# name.toml` is written to that file; a block ```python is run.
- After `sleep N`, servers have published what the commands before have changed, and a command that only reads
  (`cat`, `ls`, `headwater status`, …) is repeated until it says what the page says.
- A block directly after `<!-- not carried out: REASON -->` is not carried out.
- `<!-- setup`, commands as in a console block, `-->`: carried out, and readers do not see it.
- Ports 8000, 8001 and 8002 are replaced by free ones, of which 8001 comes after 8000.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from tools.engines.launch import free_port

from headwater.source.config import read_config
from tests.support.serving import request
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

SHOWN = {"apache", "caddyfile", "csv", "diff", "http", "ini", "json", "nginx", "sparql", "text", "toml", "turtle"} | {
    "xml",
    "yaml",
}
"""Languages of blocks that are only shown. What a reader types stands in ```console or ```python."""

PAUSE = re.compile(r"sleep [\d.]+(?:$|; *(?=\S))")
CHANGES = ("echo ", "rm ", "cp ", "mv ", "printf ")
"""How commands begin that change a file of a published folder, once it is served."""
READS = re.compile(r"(?:cat|ls|curl|grep|find|tail|wc|headwater (?:status|why|explore))\b")
"""Commands that may be repeated: nothing comes of it."""
PORT = re.compile(r"(:|--port[ =]|port = |http\.server )(800[0-2])\b")
PATIENCE = 20


@dataclass
class Block:
    """A fenced block, or the commands of a hidden one (language `setup`)."""

    line: int
    language: str
    text: str
    reason: str | None = None
    """Why it is not carried out, if the page says so."""

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        named = re.match(r"# ([\w./-]+\.toml)\n", self.text)
        return named[1] if named else None


FENCE = re.compile(
    r"(?:^[ ]*<!-- not carried out: (?P<reason>[^\n]+?) -->\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^(?P=indent)```[ ]*$"
    r"|^<!-- setup\n(?P<setup>.*?)^-->$",
    re.MULTILINE | re.DOTALL,
)


def blocks(page: Path) -> list[Block]:
    """Every fenced block, and those that are hidden."""
    text = page.read_text("utf-8")
    found = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        if match["setup"] is not None:
            found.append(Block(line, "setup", match["setup"]))
            continue
        inside = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.MULTILINE)
        found.append(Block(line, match["language"], inside, match["reason"]))
    return found


class Scratch:
    """A folder in which a page is carried out from top to bottom, at ports of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.here = folder
        self.ports = neighbouring_ports()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "HOME": str(folder), "COLUMNS": "120", "LC_ALL": "C.UTF-8"}
        self.environment.pop("XDG_STATE_HOME", None)
        self.servers: list[subprocess.Popen[bytes]] = []
        self.served: list[int] = []
        self.changed = 0
        self.status = 0

    def at_my_port(self, text: str) -> str:
        return PORT.sub(lambda found: f"{found[1]}{self.ports[found[2]]}", text)

    def carry_out(self, command: str) -> None:
        """Carry out what has to succeed."""
        status, said = self.tried(command)
        if status:
            pytest.fail(f"$ {command}\n{said}\n(status {status})", pytrace=False)

    def tried(self, command: str) -> tuple[int, str]:
        """The status of a command and what it says; in the background when it ends with &, once it answers."""
        if pause := PAUSE.match(command):
            until(lambda: self.published_changes() >= self.changed, what="what was changed")
            command = command[pause.end() :]
        if not command or command == "echo $?":
            return 0, f"{self.status}\n" if command else ""
        if moved := re.fullmatch(r"cd (\S+)", command):
            self.here = (self.folder if moved[1] == "~" else self.here / moved[1]).resolve(strict=True)
            return 0, ""
        if told := re.fullmatch(r"export (\w+)=(\S*)", command):
            self.environment[told[1]] = self.at_my_port(told[2]).strip("\"'")
            return 0, ""
        if ended := re.fullmatch(r"kill %(\d)", command):
            self.end(self.servers[int(ended[1]) - 1])
            return 0, ""
        self.changed += bool(self.served) and command.startswith(CHANGES)
        arguments = ["bash", "-c", self.at_my_port(command.removesuffix("&"))]
        if command.endswith("&"):
            self.start(command, arguments)
            return 0, ""
        done = subprocess.run(
            arguments,
            cwd=self.here,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
        self.status = done.returncode
        return self.status, done.stdout

    def start(self, command: str, arguments: list[str]) -> None:
        said = (self.folder / f".said-{len(self.servers)}").open("wb")
        server = subprocess.Popen(
            arguments,
            cwd=self.here,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        said.close()
        self.servers.append(server)
        if " sync " in command:
            return  # it does not listen
        files = [self.here / name for name in re.findall(r"\S+\.toml\b", command)]
        told = self.at_my_port("\n".join([command, *(file.read_text("utf-8") for file in files if file.exists())]))
        is_source = re.search(r"headwater (serve|simulate)", command) is not None
        for port in self.ports.values():
            if re.search(rf"(?::|--port[ =]|port = |http\.server ){port}\b", told):
                self.wait_until_it_answers(server, port, is_source)
                return

    def wait_until_it_answers(self, server: subprocess.Popen[bytes], port: int, is_source: bool) -> None:
        """Until there is an answer; of a source, until it has published."""

        def answered() -> bool:
            if server.poll() is not None:
                said = (self.folder / f".said-{self.servers.index(server)}").read_text("utf-8", "replace")
                pytest.fail(f"{server.args!r} has ended:\n{said}", pytrace=False)
            try:
                status = request(f"http://127.0.0.1:{port}", "/.well-known/resourcesync").status
            except OSError:
                return False  # it does not listen yet
            return status == 200 or not is_source

        until(answered)
        if is_source:
            self.served.append(port)
            self.changed = self.published_changes()

    def published_changes(self) -> int:
        """How many changes all sources have published."""
        count = 0
        for port in self.served:
            with suppress(OSError, ValueError):  # it was ended, or is none of ours
                report = json.loads(request(f"http://127.0.0.1:{port}", "/health").body)
                count += sum(one.get("published_changes", 0) for one in report.get("sets", ()))
        return count

    def said_in_the_background(self) -> str:
        """What the newest server has said so far."""
        return (self.folder / f".said-{len(self.servers) - 1}").read_text("utf-8", "replace")

    @staticmethod
    def end(server: subprocess.Popen[bytes]) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(server.pid, signal.SIGTERM)
        server.wait(30)

    def close(self) -> None:
        for server in self.servers:
            self.end(server)


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


def commands_of(block: str) -> list[tuple[str, str]]:
    """Each command with the output that the page shows."""
    found = []
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = next((n for n, line in enumerate(lines) if not line.endswith("\\")), len(lines) - 1) + 1
        found.append(("\n".join(lines[:end]).strip(), "\n".join(lines[end:])))
    return found


def check_console(block: str, place: Scratch) -> None:
    """Each `$` line is carried out; what follows is what it says, `…` standing for anything."""
    commands = commands_of(block)
    assert commands, f"no command in a console block:\n{block}"
    paused = False
    for n, (command, expected) in enumerate(commands):
        may_fail = n + 1 < len(commands) and commands[n + 1][0] == "echo $?"
        pattern = re.compile(re.escape(place.at_my_port(expected).strip()).replace("…", ".*"), re.DOTALL)
        paused = paused or PAUSE.match(command) is not None
        read = PAUSE.sub("", command)
        is_server = command.endswith("&")
        end = time.monotonic() + (PATIENCE if is_server or (paused and READS.match(read)) else 0)
        begun = False
        while True:
            if is_server and begun:
                said = place.said_in_the_background()
            else:
                status, said = place.tried(command)
            begun = True
            as_expected = (status == 0 or may_fail) and pattern.fullmatch(said.strip()) is not None
            if as_expected or time.monotonic() > end:
                break
            time.sleep(0.1)
        if not as_expected:
            pytest.fail(f"$ {command}\n{said}\n(status {status})\n-- is not --\n{expected}", pytrace=False)
        paused = paused and not read  # the command after `sleep` alone


def carry_out_page(page: Path, folder: Path) -> None:
    """A whole page, from top to bottom."""
    with scratch(folder) as place:
        for block in blocks(page):
            print(f"{page.relative_to(ROOT)}, line {block.line}")  # shown when the block fails
            carry_out_block(block, place)


def carry_out_block(block: Block, place: Scratch) -> None:
    if block.reason is not None:
        return
    if block.language == "setup":
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            place.carry_out(part.strip())
    elif block.language == "console":
        check_console(block.text, place)
    elif block.language == "python":
        (place.here / "example.py").write_text(place.at_my_port(block.text), "utf-8")
        place.carry_out("python -W error example.py")
    elif block.file is not None:
        path = place.here / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(place.at_my_port(block.text), "utf-8")
        if "[[set]]" in block.text:
            read_config(path)
    else:
        assert block.language in SHOWN, f"```{block.language or ' without a language'}: neither carried out nor shown"
        if block.language == "toml":
            tomllib.loads(block.text.replace("…", ""))
