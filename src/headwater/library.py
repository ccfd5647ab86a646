"""The library functions of a source, for `import headwater`: publish a folder, write one document as a file.

The destination's functions are in `sync`, reading and writing of documents in `spec`.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, get_args

import msgspec

from headwater.errors import Exit, UsageFault
from headwater.progress import Listener, silent
from headwater.spec.records import Document, Entry, ToDict
from headwater.spec.writer import Profile, write_document

Placing = Literal["link", "copy", "none"]
"""How files get into the output: as hard links (copies where the system allows no links), as copies, or not at all."""


_ADVICE = "Correct the call; docs/reference/library.md lists the parameters."


class PublishReport(ToDict, msgspec.Struct, frozen=True, kw_only=True):
    """What publishing did: resources, documents, and why deletions are held back.

    `exit_status` is that of the command: 4 where deletions wait, or files could not be read or were changing.
    """

    source_description: str
    resources: int
    created: int
    updated: int
    deleted: int
    documents_written: int
    documents_kept: int
    held_back: str | None
    exit_status: int = 0


def publish_folder(  # noqa: PLR0913 - a public function whose options are keywords with defaults
    files: str | os.PathLike[str],
    to: str | os.PathLike[str],
    base_url: str,
    *,
    set_name: str = "files",
    describedby: str | None = None,
    state: str | os.PathLike[str] | None = None,
    include: Iterable[str] = (),
    exclude: Iterable[str] = (),
    max_delete: float = 0.2,
    hashes: Iterable[str] = ("md5", "sha-256"),
    profile: Profile = Profile.V11,
    resources: Placing = "link",
    resource_base: str | None = None,
    dump: bool = False,
    change_dump: bool = False,
    listener: Listener = silent,
) -> PublishReport:
    """Publish the folder `files` as static files below `to`, which your web server shows at `base_url`.

    **The web server must not serve `state`**, the folder of the catalog (default: `.headwater` below `to`). Call this
    again after changes: it reads and writes only what changed. `describedby` is the URL of a document about the set.
    With `resources="none"` it writes only documents; `resource_base` is the URL of the files elsewhere. `dump` and
    `change_dump` add packages. When all files vanished, or more than the share `max_delete`, it holds the deletions
    back and reports them: the files stay public. Raises UsageFault, and StoreFault when it cannot write.
    """
    from headwater.source.config import OUTPUT_STATE, SetConfig, SourceConfig
    from headwater.source.source import Source

    if not isinstance(max_delete, int | float) or not 0 <= max_delete <= 1:
        raise UsageFault(f"max_delete is a share between 0 and 1, not {max_delete!r:.100}", advice=_ADVICE)
    if resources not in get_args(Placing):
        raise UsageFault(f'resources is "link", "copy" or "none", not {resources!r:.100}', advice=_ADVICE)
    if not isinstance(profile, Profile):
        raise UsageFault(f"profile is one of Profile, not {profile!r:.100}", advice=_ADVICE)
    for name, texts in (("include", include), ("exclude", exclude), ("hashes", hashes)):
        if isinstance(texts, str):
            what = f'{name} is several of them in a tuple or list, as ("…",), not {texts!r:.100}'
            raise UsageFault(what, advice=_ADVICE)
    out = Path(to)
    one = SetConfig(
        files=os.fspath(files),
        name=set_name,
        describedby=describedby,
        include=tuple(include),
        exclude=tuple(exclude),
        max_delete=max_delete,
        hashes=tuple(hashes),
        resource_base=resource_base,
        dump=dump,
        change_dump=change_dump,
    )
    kept_in = os.fspath(state) if state is not None else str(out / OUTPUT_STATE)
    config = SourceConfig(
        state=kept_in, to=str(out), base_url=base_url, profile=profile, resources=resources, sets=(one,)
    )
    with Source(config, listener=listener) as source:
        (worked,) = source.run_once()
        scanned, published = worked.scanned, worked.published
        return PublishReport(
            source_description=source.site.url(".well-known/resourcesync"),
            resources=source.catalog.state(worked.name).count,
            created=scanned.created,
            updated=scanned.updated,
            deleted=scanned.deleted,
            documents_written=len(published.written) if published else 0,
            documents_kept=published.kept if published else 0,
            held_back=str(scanned.held_back) if scanned.held_back else None,
            exit_status=Exit.TRANSFERS_FAILED if worked.is_incomplete else Exit.DONE,
        )


def write_file(
    path: str | os.PathLike[str], document: Document, entries: Iterable[Entry], profile: Profile = Profile.V11
) -> int:
    """Write a document as the file `path`, whole or not at all; returns its length in bytes.

    After any failure, also a power loss, `path` is the old or the new document. Raises UsageFault for what breaks a
    MUST of the standard, and StoreFault when it cannot write.
    """
    from headwater.storage.durable import replace_file
    from headwater.storage.folder_store import TEMPORARY
    from headwater.storage.object_store import CannotWrite

    try:
        return replace_file(Path(path), write_document(document, entries, profile), TEMPORARY)
    except OSError as cause:
        no_place = isinstance(cause, FileNotFoundError | IsADirectoryError | NotADirectoryError)
        advice = "Name a file in a folder that is there." if no_place else None
        raise CannotWrite(f"cannot write: {cause.strerror or cause}", where=os.fspath(path), advice=advice) from cause
