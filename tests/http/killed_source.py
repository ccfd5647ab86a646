"""The configuration of a source that is killed while its folder changes: small documents, and looks without a pause."""

from __future__ import annotations

import os
from pathlib import Path

KILLS = int(os.environ.get("HEADWATER_KILLS", "4"))
"""How often the server is killed; set the variable for a longer siege."""

_CONFIG = """
state = "state"
port = {port}
page_entries = 12
segment_entries = 70
[[set]]
files = "files"
max_delete = 1
rescan_seconds = 1
"""


def write_config(folder: Path, port: int, settings: str) -> Path:
    """The configuration of the folder `files` beside it; `settings` are more lines of the set."""
    config = folder / "source.toml"
    config.write_text(_CONFIG.format(port=port) + settings)
    return config
