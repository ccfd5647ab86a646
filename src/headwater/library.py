"""The source's whole work as one function, for programs that `import headwater` (the destination's is in `sync`)."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from headwater.progress import Listener, silent


class PublishedFolder(msgspec.Struct, frozen=True, kw_only=True):
    """What publishing a folder did: resources held and changed, documents written and kept, deletions held back."""

    source_description: str
    resources: int
    created: int
    updated: int
    deleted: int
    documents_written: int
    documents_kept: int
    held_back: str | None


def publish_folder(
    files: str | os.PathLike[str],
    to: str | os.PathLike[str],
    base_url: str,
    *,
    set_name: str = "files",
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    max_delete: float = 0.2,
    listener: Listener = silent,
) -> PublishedFolder:
    """Publish the folder `files` as static files below `to`, which a web server shows at `base_url`.

    Call it again after changes: only what changed is read and written. When more than the share `max_delete` of the
    resources has vanished, their deletion is held back and said so. Raises `UsageFault` for what cannot be asked for
    and `StoreFault` when the state or the output cannot be written.
    """
    from headwater.server.config import SetConfig, SourceConfig
    from headwater.server.set_source import Tree
    from headwater.server.source import Source

    out = Path(to)
    one = SetConfig(
        files=os.fspath(files),
        name=set_name,
        include=tuple(include),
        exclude=tuple(exclude),
        max_delete=max_delete,
    )
    config = SourceConfig(state=str(out / ".headwater"), base_url=base_url, sets=(one,))
    with Source(config, tree=Tree(out, "link"), listener=listener) as source:
        worked = source.run_once()[0]
        scanned, published = worked.scanned, worked.published
        return PublishedFolder(
            source_description=source.site.url(".well-known/resourcesync"),
            resources=source.catalog.state(set_name).count,
            created=scanned.created,
            updated=scanned.updated,
            deleted=scanned.deleted,
            documents_written=len(published.written) if published else 0,
            documents_kept=published.kept if published else 0,
            held_back=str(scanned.held_back) if scanned.held_back else None,
        )
