"""The configuration of what fills a set: a folder, push, or the copy of a destination (`docs/configuration.md`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec

from headwater.catalog.catalog_url import anchored, is_cluster
from headwater.errors import UsageFault
from headwater.ingest.push.resource_locations import Locations
from headwater.source.datasets.dataset_config import DATASET_KEYS, UNFIT_KEYS, DatasetConfig
from headwater.source.tokens import AccessTokens, read_tokens

Positive = Annotated[float, msgspec.Meta(gt=0)]


PUSH_KEYS = (
    "index",
    "pair_seconds",
    "poll_seconds",
    "resource_root",
    "resource_sets",
    "token",
    "token_env",
    "token_file",
)
FOLDER_KEYS = ("include", "exclude", "hidden", "hashes", "canonical_hash", "watch", "rescan_seconds", "settle_seconds")
"""Keys of one kind of set that mean nothing to the other."""


class BadDatasetConfig(UsageFault):
    """A set with profile = "rdf-dataset" lacks what it is made of, or has a setting that does not go with it."""

    code: ClassVar[str] = "HW-CFG-08"
    advice: ClassVar[str] = "docs/datasets.md has an example, and says which keys do not go with a dataset, and why."


class BadPushConfig(UsageFault):
    """A set has none of `files`, `feed`, `copy` and `profile`, or several, or a setting of another kind."""

    code: ClassVar[str] = "HW-CFG-03"
    advice: ClassVar[str] = (
        'Give a set `files = "DIR"`, or `copy = "DEST"`, or `feed = "events"` or "dit" and what belongs to it, or'
        ' `profile = "rdf-dataset"` and `dataset = "PATH"`.'
    )


@cache
def _defaults(kind: type[msgspec.Struct]) -> Mapping[str, object]:
    """What each key is when it is not given; to find that out takes as long as to read the set."""
    return {one.name: one.default for one in msgspec.structs.fields(kind)}


class PushConfig(DatasetConfig, frozen=True, kw_only=True):
    """The keys of a push set's `[[set]]`: where its resources lie, who may announce, which index is followed."""

    files: str = ""
    feed: Literal["events", "dit"] | None = None
    copy: str | None = None
    copy_set: str | None = None
    resource_root: str | None = None
    token: str | None = None
    token_file: str | None = None
    token_env: str | None = None
    resource_sets: tuple[str, ...] = ()
    index: str | None = None
    poll_seconds: Positive = 1.0
    pair_seconds: Positive = 5.0

    def __post_init__(self) -> None:
        if self.is_dataset and (complaint := self.dataset_complaint()):
            raise BadDatasetConfig(complaint)
        if bool(self.files) + (self.feed is not None) + (self.copy is not None) + self.is_dataset != 1:
            if self.dataset or self.sparql or self.oxigraph:
                raise BadDatasetConfig(
                    'a set with a dataset has profile = "rdf-dataset", and neither files, feed nor copy'
                )
            raise BadPushConfig("a set has either files or a feed, or a copy, or is a dataset")
        others: list[tuple[tuple[str, ...], str]] = [(PUSH_KEYS, "push set")] if self.feed is None else []
        others += [(FOLDER_KEYS, "set with a folder")] if not self.files else []
        others += [(("max_delete",), "set with a folder, or a push set")] if not (self.files or self.feed) else []
        others += [(("copy_set",), "set with a copy")] if self.copy is None else []
        others += [(DATASET_KEYS, 'set with profile = "rdf-dataset"')] if not self.is_dataset else []
        defaults = _defaults(type(self))
        for keys, whose in others:
            if wrong := next((one for one in keys if getattr(self, one, defaults.get(one)) != defaults.get(one)), None):
                raise BadPushConfig(f"{wrong} belongs to a {whose}")
        unfit = UNFIT_KEYS if self.is_dataset else ()
        if wrong := next((one for one in unfit if getattr(self, one, defaults.get(one)) != defaults.get(one)), None):
            raise BadDatasetConfig(f"{wrong} does not go with a dataset")
        if self.index is not None and self.feed != "dit":
            raise BadPushConfig('only a set with feed = "dit" follows an index')

    @property
    def root(self) -> str | None:
        """The folder whose files this server serves; None when they lie elsewhere."""
        return self.files or self.copy or self.resource_root

    @property
    def shown(self) -> str:
        """What people are told that is published."""
        made_of = self.files or self.copy or self.dataset or self.sparql or self.oxigraph
        return made_of or f"the push set {getattr(self, 'name', '')}"

    @property
    def is_scanned(self) -> bool:
        """Whether a folder is scanned for its resources."""
        return bool(self.files)

    def locations(self, prefix: str) -> Locations:
        """How the set's locations are resolved, below its URL prefix."""
        return Locations(prefix, self.resource_root)

    def tokens(self, environment: Mapping[str, str] = os.environ) -> AccessTokens:
        """Who may announce to the set. Raises BadToken."""
        return read_tokens(environment, token=self.token, file=self.token_file, variable=self.token_env)

    def anchored_paths(self, folder: Path) -> dict[str, str]:
        """The paths of the set, relative ones below `folder`; also the one in the address of its index."""
        names = ("files", "copy", "resource_root", "token_file", "dataset", "oxigraph")
        paths = {name: str(folder / Path(text).expanduser()) for name in names if (text := getattr(self, name))}
        if self.index is not None and is_cluster(self.index):
            paths["index"] = anchored(self.index, folder)
        return paths
