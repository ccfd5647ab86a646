"""A source, a hub and subscribers as processes, with a bad proxy before the hub and one before the subscribers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path

from tools.engines.launch import free_port

from tests.notify.chain.bad_proxy import BadProxy, Upstream
from tests.support.waiting import until

TOKEN = "a-token-of-the-chain"
_LONGEST_SECONDS = 120.0


class Chain:
    """The processes: 0 is the hub, 1 the source, the others are subscribers, each with a copy."""

    def __init__(self, folder: Path, subscribers: int, *, poll_seconds: float = 30.0) -> None:
        self._folder = folder
        self.files = folder / "files"
        self.files.mkdir(parents=True)
        self._ports = [free_port() for _ in range(subscribers + 2)]
        self.copies = [folder / f"copy{number}" for number in range(subscribers)]
        self.to_hub = BadProxy(lambda _path: ("127.0.0.1", self._ports[0]), 1)
        self.to_subscribers = BadProxy(self._subscriber_of, 2)
        self._log = (folder / "log").open("ab")
        self.source_url = f"http://127.0.0.1:{self._ports[1]}/"
        self.changes_url = f"{self.source_url}files/changes"
        self._stack = contextlib.ExitStack()
        for proxy in (self.to_hub, self.to_subscribers):
            self._stack.enter_context(proxy)
        config = folder / "source.toml"
        config.write_text(
            f'state = "state"\nport = {self._ports[1]}\n[notify]\nhubs = ["{self.to_hub.url}"]\ntoken = "{TOKEN}"\n'
            f'batch_seconds = 0.2\n[[set]]\nname = "files"\nfeed = "events"\nresource_root = "{self.files}"\n'
            f'token = "{TOKEN}"\n'
        )
        hub = ["hub", "--listen", f"127.0.0.1:{self._ports[0]}", "--base-url", self.to_hub.url]
        hub += [
            "--state",
            str(folder / "hub"),
            "--token",
            TOKEN,
            "--allow-private",
        ]
        self.commands = [hub, ["serve", str(config), "--quiet"]]
        for number, copy in enumerate(self.copies):
            callback, at = f"{self.to_subscribers.url}{number}", f"127.0.0.1:{self._ports[2 + number]}"
            sync = [
                "sync",
                self.source_url,
                str(copy),
                "--follow",
                str(poll_seconds),
                "--max-delete",
                "1.0",
            ]
            self.commands.append([*sync, "--push", "--listen", at, "--callback-url", callback])
        self.kills: Counter[int] = Counter()
        self.stops: Counter[int] = Counter()
        self.processes = [self._start(command) for command in self.commands[:2]]
        self.wait_until_back(1)
        self.processes += [self._start(command) for command in self.commands[2:]]
        self._seconds: defaultdict[int, dict[int, float]] = defaultdict(dict)

    def _subscriber_of(self, path: str) -> Upstream | None:
        number = path.split("/")[1]
        return ("127.0.0.1", self._ports[2 + int(number)]) if number.isdecimal() else None

    def _start(self, command: list[str]) -> subprocess.Popen[bytes]:
        # source and hub run first where that is allowed: they would have machines of their own
        first = ["nice", "-n", "-5"] if command[0] != "sync" else []
        whole = [*first, sys.executable, "-m", "headwater", *command]
        return subprocess.Popen(whole, stdout=self._log, stderr=self._log, env={**os.environ, "PYTHONDEVMODE": ""})

    def wait_until_back(self, number: int) -> None:
        """Wait until hub or source listens; else it would be killed before it has done anything."""

        def is_listening() -> bool:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self._ports[number])):
                return True
            return False

        until(is_listening, _LONGEST_SECONDS, what=f"process {number}")

    def kill(self, number: int) -> None:
        """Kill one, and start it again."""
        process = self.processes[number]
        self.kills[number] += 1
        self._note_work(number, process)
        process.kill()
        process.wait(_LONGEST_SECONDS)
        self.processes[number] = self._start(self.commands[number])

    def pause(self, number: int, seconds: float) -> None:
        """Let one stand still for a while."""
        process = self.processes[number]
        self.stops[number] += 1
        process.send_signal(signal.SIGSTOP)
        threading.Timer(seconds, process.send_signal, (signal.SIGCONT,)).start()

    def keep_up(self) -> None:
        """Start what has ended by itself: a first run that found no source, say."""
        for number, process in enumerate(self.processes):
            if process.poll() is not None:
                self.processes[number] = self._start(self.commands[number])

    def be_bad(self, chance: float) -> None:
        """How often each fault of the proxies happens."""
        self.to_hub.chance = self.to_subscribers.chance = chance

    def recorded(self) -> int:
        """How many changes the source has recorded."""
        catalog = sqlite3.connect(
            f"file:{self._folder}/state/catalog.sqlite?mode=ro", uri=True, timeout=_LONGEST_SECONDS
        )
        try:
            return int(catalog.execute("SELECT count(*) FROM change").fetchone()[0])
        finally:
            catalog.close()

    def work(self) -> str:
        """The processor time that each kind of process has taken."""
        for number, process in enumerate(self.processes):
            self._note_work(number, process)
        seconds = [sum(self._seconds[number].values()) for number in range(len(self.processes))]
        each = sum(seconds[2:]) / len(self.copies)
        return f"hub {seconds[0]:.0f} s, source {seconds[1]:.0f} s, a subscriber {each:.1f} s of processor time"

    def disturbed(self) -> str:
        """How often processes were killed and stopped, and which faults the proxies have made."""
        faults = self.to_hub.faults() + self.to_subscribers.faults()
        each = range(len(self.processes))
        kills, stops = ([counts[number] for number in each] for counts in (self.kills, self.stops))
        return (
            f"{sum(kills)} kills (of each process {min(kills)} to {max(kills)}), {sum(stops)} stops "
            f"({min(stops)} to {max(stops)}), {faults} requests that went wrong"
        )

    def _note_work(self, number: int, process: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(OSError, IndexError):
            told = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            self._seconds[number][process.pid] = (int(told[11]) + int(told[12])) / os.sysconf("SC_CLK_TCK")

    def close(self) -> None:
        """End all."""
        for process in reversed(self.processes):
            process.send_signal(signal.SIGCONT)
            process.send_signal(signal.SIGTERM)
        until = time.monotonic() + _LONGEST_SECONDS
        for process in self.processes:
            process.wait(max(1.0, until - time.monotonic()))
        self._stack.close()
        self._log.close()
