"""Copies of a source inside the folder that it publishes: published too, they would grow with every run of `sync`."""

from __future__ import annotations

import os

from headwater.copies.schema import FOLDER, STATE

_STATE = os.fsencode(f"/{FOLDER}/{STATE}")


def is_copy_of(folder: bytes, base_url: str) -> bool:
    """Whether a folder is a copy of a set of the source at this base URL. A copy that cannot be read is none."""
    if not os.path.lexists(folder + _STATE):
        return False
    from headwater.copies.copy_state import CopyStateReader, copied_sets  # few folders have copies in them
    from headwater.errors import HeadwaterError

    try:
        state = CopyStateReader(os.fsdecode(folder))
    except HeadwaterError:
        return False
    try:
        with state.read() as t:
            return any(one.identity.startswith(base_url.rstrip("/") + "/") for one in copied_sets(t))
    except HeadwaterError:
        return False
    finally:
        state.close()
