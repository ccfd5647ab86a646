"""`headwater publish CONFIG`, killed as a kernel does at one step of publishing a patch: for tests, as a process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from headwater import cli
from headwater.publish.change_lists import ChangeLists
from headwater.publish.patches import PatchMaker
from headwater.publish.store_writer import StoreWriter

STEPS = ("made", "stored", "noted", "named")


def killing(do: Callable[..., Any], when: Callable[..., object], *, is_before: bool = False) -> Callable[..., Any]:
    """The function, with the end of the process before or after it where the arguments are those meant."""

    def wrapped(*arguments: Any, **named: Any) -> Any:
        if is_before and when(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        result = do(*arguments, **named)
        if when(*arguments):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return wrapped


def set_up(step: str) -> None:
    """Have the process end at this step."""
    if step in ("made", "stored"):
        write = killing(StoreWriter.blocks, lambda _self, name, *_: "/patch/" in name, is_before=step == "made")
        StoreWriter.blocks = write  # type: ignore[method-assign]
    elif step == "noted":
        PatchMaker._note = killing(PatchMaker._note, lambda _self, _name, made, *_: made)  # type: ignore[method-assign]
    else:
        ChangeLists._write = killing(ChangeLists._write, lambda *_: True)  # type: ignore[method-assign]


if __name__ == "__main__":
    set_up(sys.argv[1])
    cli.run(["publish", sys.argv[2]])
