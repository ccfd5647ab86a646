"""A hub for tests: the real program on a state folder of its own."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import closing
from pathlib import Path
from urllib.parse import urlencode

from tools.engines.launch import free_port

TOKEN = "a-token-of-the-tests"


class HubProcess:
    """Runs `headwater hub`; `start` again after a `kill` has the same address."""

    def __init__(self, state: Path, *options: str, private: bool = True) -> None:
        self._state = state
        self._options = ("--state", str(state), "--token", TOKEN, *(("--allow-private",) if private else ()), *options)
        self._listen = f"127.0.0.1:{free_port()}"
        self.url = ""
        self.start()

    def start(self) -> None:
        command = (sys.executable, "-m", "headwater", "hub", "--listen", self._listen, "--quiet", "--json")
        self.process = subprocess.Popen([*command, *self._options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert self.process.stdout is not None
        told = json.loads(self.process.stdout.readline())
        self.url = told["url"]

    def kill(self) -> None:
        self.process.kill()
        self._reap()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._reap()

    def _reap(self) -> int:
        status = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    def post(self, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        request = urllib.request.Request(self.url, body, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, refusal.read().decode()

    def form(self, fields: dict[str, str], **headers: str) -> tuple[int, str]:
        return self.post(urlencode(fields).encode(), headers)

    def ask(self, mode: str, topic: str, callback: str, **more: str) -> tuple[int, str]:
        fields = {"hub.mode": mode, "hub.topic": topic, "hub.callback": callback}
        return self.form(fields | {f"hub.{name}": value for name, value in more.items()})

    def publish(
        self, topic: str, body: bytes, media_type: str = "application/xml", token: str | None = TOKEN, links: str = ""
    ) -> tuple[int, str]:
        headers = {"Content-Type": media_type, "Link": f'<{topic}>; rel="self", <{self.url}>; rel="hub"{links}'}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return self.post(body, headers)

    def counts(self) -> dict[str, int]:
        with urllib.request.urlopen(f"{self.url}health", timeout=60) as answer:
            return json.load(answer)  # type: ignore[no-any-return]

    def has_subscription(self, topic: str, callback: str) -> bool:
        """Whether a subscription has taken effect. The number of all does not tell: leases end meanwhile."""
        with closing(sqlite3.connect(f"file:{self._state / 'hub.sqlite'}?mode=ro", uri=True)) as database:
            query = "SELECT count(*) FROM subscriptions WHERE topic = ? AND callback = ?"
            return bool(database.execute(query, (topic, callback)).fetchone()[0])
