"""The `[notify]` table of a source's configuration: which hubs are told, and how (`docs/configuration.md`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec

from headwater.address_levels import Level, level_of, literal_address
from headwater.errors import UsageFault
from headwater.notify.http_proxy import HttpProxy, read_proxy
from headwater.publish.site import BadSite, check_url
from headwater.source.tokens import BadToken, token_texts

_MOST_HUBS = 16


class BadNotifyConfig(UsageFault):
    """The `[notify]` table has no hub, one twice, or something that is no URL of one."""

    code: ClassVar[str] = "HW-CFG-06"
    advice: ClassVar[str] = 'Write it like hubs = ["https://hub.example.org/"], with the URL that subscribers use.'


class NotifyConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where notifications are sent, with which token, and how many changes are told together."""

    hubs: tuple[str, ...]
    token: str | None = None
    token_file: str | None = None
    token_env: str | None = None
    proxy: str | None = None
    authorities: str | None = None
    batch_count: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    batch_seconds: Annotated[float, msgspec.Meta(ge=0, le=3_600)] = 0.02
    framework_seconds: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 60.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.hubs) <= _MOST_HUBS or len(set(self.hubs)) != len(self.hubs):
            raise BadNotifyConfig(f"notify.hubs names from one to {_MOST_HUBS} hubs, each once")
        for hub in self.hubs:
            try:
                check_url(hub)
            except BadSite as cause:
                raise BadNotifyConfig(f"notify.hubs: {cause.what}") from cause
        self.proxy_for("https", "")

    def proxy_for(self, _scheme: str, host: str) -> HttpProxy | None:
        """The proxy by which a hub is asked: none for this machine itself. Raises BadNotifyConfig."""
        if self.proxy is None:
            return None
        try:
            proxy = read_proxy(self.proxy)
        except UsageFault as cause:
            raise BadNotifyConfig(f"notify.proxy: {cause.what}", advice=cause.todo) from None
        literal = literal_address(host)
        return None if literal is not None and level_of(literal) is Level.LOCAL else proxy

    def sent_token(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """The token that is sent to the hubs; None where there is none. Raises BadToken."""
        found = token_texts(environment, token=self.token, file=self.token_file, variable=self.token_env)
        if len(found) > 1:
            raise BadToken("[notify] takes one token", advice="Give one of token, token_file and token_env.")
        return found[0] if found else None

    def anchored(self, folder: Path) -> NotifyConfig:
        """The same, with relative paths below `folder`."""
        paths = {
            name: str(folder / Path(path).expanduser())
            for name in ("token_file", "authorities")
            if (path := getattr(self, name)) is not None
        }
        return msgspec.structs.replace(self, **paths)
