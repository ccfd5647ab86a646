"""Fast path for small files that are as a scan has recorded them: opened in their folder, read, looked at once.

The look comes after the reading: a file that is in the recorded state then was in it while it was read, because
whatever writes to a file moves its ctime. What it gives None for is opened and judged by `FileContentReader.open`,
which gives the same octets or says what is wrong.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from headwater.catalog.content import RecordedResource
from headwater.files.nofollow import OpenFolder
from headwater.ingest.content.resource_folder import READ, ResourceFolder
from headwater.ingest.folder.signature import matches
from headwater.ingest.folder.walking.walk import STATE_FOLDER

IS_ON = True
"""Whether it is used: tests and measurements do without."""


def recorded_files(
    folder: ResourceFolder, resources: Sequence[RecordedResource], paths: Sequence[bytes | None]
) -> list[bytes | None]:
    """The octets of the resources whose files lie at these relative paths; None where another way has to tell."""
    found: list[bytes | None] = [None] * len(resources)
    if not IS_ON:
        return found
    with OpenFolder() as opened:
        for number, (path, resource) in enumerate(zip(paths, resources, strict=True)):
            length = resource.metadata.length
            if path is None or length is None or STATE_FOLDER in path:
                continue
            try:
                descriptor = opened.open(folder.path_of(path), READ)
                try:
                    octets = os.pread(descriptor, length, 0)  # which fails for a FIFO, a terminal and a folder
                    state = os.fstat(descriptor)
                finally:
                    os.close(descriptor)
            except OSError:
                continue
            if len(octets) == length and matches(resource.memo, state):
                found[number] = octets
    return found
