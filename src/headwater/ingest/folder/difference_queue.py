"""A queue of differences that spills to disk when it grows, so that a million of them cost no memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

from headwater.ingest.folder.comparison import Candidate, MissingResource

_IN_MEMORY = 4 << 20


class DifferenceQueue:
    """First all is put, then all is taken, in the same order. A context manager: its file ends with it."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed by __exit__
        self.candidates = 0
        self.octets = 0
        self.vanished = 0
        self.left_out = 0
        """How many of the vanished the set's settings no longer take; whoever puts them knows."""

    def __enter__(self) -> DifferenceQueue:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()

    def put(self, one: Candidate | MissingResource) -> None:
        """Add one difference."""
        if isinstance(one, MissingResource):
            self.vanished += 1
            fields = [b"", one.uri.encode()]
        else:
            self.candidates += 1
            self.octets += one.octets
            fields = [one.path, one.uri.encode(), b"%d" % one.octets]
        for field in fields:
            self._file.write(len(field).to_bytes(4, "little") + field)

    def take(self) -> Iterator[Candidate | MissingResource]:
        """Everything that was put; may be asked for again."""
        self._file.seek(0)
        for _number in range(self.candidates + self.vanished):
            path = self._field()
            uri = self._field().decode()
            yield Candidate(uri, path, int(self._field())) if path else MissingResource(uri)

    def _field(self) -> bytes:
        return self._file.read(int.from_bytes(self._file.read(4), "little"))
