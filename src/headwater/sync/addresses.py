"""The address of a source as a user gives it, and where its documents lie by custom."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from headwater.errors import UsageFault
from headwater.spec.uris import resolve

CUSTOMARY_NAMES = ("resourcesync.xml", "capabilitylist.xml", "resourcelist.xml", "sitemap.xml", "sitemap_index.xml")
"""Names by which tools write such documents; no rule of the standard leads to them."""

_NO_HOST = re.compile(r"[@\s\x00-\x1f\x7f\"<>\\^`{|}]")


def starting_uri(url: str) -> str:
    """The URI to begin with; a bare host is taken as `http://` (it may redirect). Raises UsageFault."""
    text = url.strip()
    if "://" not in text:
        if re.match(r"https?(?::(?!\d)|//)", text, re.IGNORECASE):
            raise UsageFault("an http or https address begins with http:// or https://", where=url)
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        host = None
    if not host or parts.scheme.lower() not in ("http", "https") or _NO_HOST.search(parts.netloc):
        raise UsageFault("the source must be an http or https address, without a user name", where=url)
    text = text.partition("#")[0]
    return text if parts.path else resolve(text, "/")


def is_host(url: str) -> bool:
    """Whether the address names a host and nothing on it."""
    parts = urlsplit(url)
    return parts.path in ("", "/") and not parts.query
