"""Fast path for small files that are as a scan has recorded them: opened in their folder, read, looked at once.

What it gives None for is opened and judged by `FileContentReader.open`, which gives the same octets or says what is
wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.catalog.content import RecordedResource
from headwater.files.nofollow import OpenFolder
from headwater.files.recorded_file import read_in_state
from headwater.ingest.content.resource_folder import ResourceFolder
from headwater.ingest.folder.signature import recorded_state

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
            state = recorded_state(resource.memo)
            if path is not None and state is not None and state[0] == resource.metadata.length:
                found[number] = read_in_state(opened, folder.path_of(path), state)
    return found
