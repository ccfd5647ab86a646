"""Patches: what an update of a large JSON file by one value costs to transfer, against the whole file."""

from __future__ import annotations

import functools
import http.server
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench.rows import Row

OCTETS = 1_000_000
SHARE = 0.02
"""The bar: so much of the full transfer at most."""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name above
        """Say nothing."""


def run(quick: bool) -> list[Row]:
    """The octets of the update by patch and whole, and the seconds of both runs."""
    octets = OCTETS // 10 if quick else OCTETS
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        patched, whole = _measured(base / "on", octets, "on"), _measured(base / "off", octets, "off")
    share = patched["octets"] / whole["octets"]
    return [
        {
            "work": f"update of a JSON file of {octets:,} octets by one value, applied by patch",
            "ours": f"{patched['octets']:,} octets",
            "against": "the whole file",
            "other": f"{whole['octets']:,} octets",
            "ratio": 1 / share,
            "bar": 1 / SHARE,
            "note": f"{patched['seconds']:.2f} s and {whole['seconds']:.2f} s a run",
        }
    ]


def _measured(base: Path, octets: int, patches: str) -> dict[str, float]:
    (base / "data").mkdir(parents=True)
    file, tree, copy = base / "data" / "large.json", base / "tree", base / "copy"
    records = [{"id": number, "value": number * 0.5, "text": "x" * 40} for number in range(octets // 90)]
    tree.mkdir()
    handler = functools.partial(_Quiet, directory=tree)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for value in (1, 2):
            records[len(records) // 2]["value"] = value
            file.write_text(json.dumps(records, indent=1))
            _headwater("publish", "--files", file.parent, "--to", tree, "--base-url", url, "--patch", "json")
            time.sleep(0.1)
            report = _headwater("sync", f"{url}/", copy, "--patches", patches)
        server.shutdown()
    assert (copy / "large.json").read_bytes() == file.read_bytes()
    return {"octets": report["sets"][0]["octets"], "seconds": report["seconds"]}


def _headwater(*arguments: object) -> Any:
    command = [sys.executable, "-m", "headwater", *map(str, arguments), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)
