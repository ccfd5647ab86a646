"""`sync --exec`: runs a command of the user's after changes, with the report as JSON on its standard input."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.output import complain, harmless_json
from headwater.errors import HeadwaterError, StoreFault, UsageFault

if TYPE_CHECKING:
    from headwater.sync.reports import SyncReport

_STANDARD_ERROR = 2


class RunHook:
    """The words of a command; no shell reads them, and nothing that a source says is ever among them."""

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as cause:
            raise UsageFault(f"--exec {command!r} cannot be split into words: {cause}") from None
        if not self._words:
            raise UsageFault("--exec names no command")

    def tell(self, report: SyncReport, destination: Path) -> bool:
        """Run the command with the report as JSON, if there are changes to be told; False when it has failed.

        What it writes goes to standard error. Only when it has succeeded the changes count as told.
        """
        if report.untold is None:
            return True
        import msgspec

        sys.stderr.flush()
        try:
            octets = harmless_json(msgspec.json.encode(report)) + b"\n"
            done = subprocess.run(self._words, input=octets, stdout=_STANDARD_ERROR, check=False)
        except OSError as cause:
            complain(
                HeadwaterError(
                    f"the command of --exec cannot be run: {cause.strerror}", code="HW-CLI-03", where=self._words[0]
                )
            )
            return False
        if done.returncode:
            ended = f"exit status {done.returncode}" if done.returncode > 0 else f"signal {-done.returncode}"
            complain(
                HeadwaterError(f"the command of --exec ended with {ended}", code="HW-CLI-03", where=self._words[0])
            )
            return False
        _remember(report.untold, destination)
        return True


def _remember(mark: str, destination: Path) -> None:
    from headwater.sync.copy.destination_folder import DestinationFolder, writable_state
    from headwater.sync.state.run_history import keep_told

    try:
        with writable_state(DestinationFolder(destination.absolute())) as database, database.write() as t:
            keep_told(t, mark)
    except StoreFault:
        return  # another run is at work already, or the disk is full: then it is told once more
