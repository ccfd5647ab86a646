"""Whether deflating a member of a package is likely to pay, by its media type and its length."""

from __future__ import annotations

from functools import lru_cache

SMALLEST = 64
"""Octets below which deflating gains nothing: the ZIP headers of a member are longer."""

_TEXT = frozenset(
    {
        "application/ecmascript",
        "application/graphql",
        "application/javascript",
        "application/json",
        "application/ld+json",
        "application/marc",
        "application/mbox",
        "application/n-quads",
        "application/n-triples",
        "application/octet-stream",
        "application/postscript",
        "application/rtf",
        "application/sparql-query",
        "application/sql",
        "application/tei+xml",
        "application/toml",
        "application/trig",
        "application/wasm",
        "application/x-javascript",
        "application/x-ndjson",
        "application/x-sh",
        "application/x-tar",
        "application/x-tex",
        "application/x-yaml",
        "application/xml",
        "application/xml-dtd",
        "application/yaml",
        "image/bmp",
        "image/svg+xml",
        "image/x-portable-bitmap",
        "image/x-portable-graymap",
        "image/x-portable-pixmap",
        "audio/midi",
        "audio/wav",
        "audio/x-wav",
        "font/otf",
        "font/ttf",
        "message/http",
        "message/rfc822",
    }
)


def pays(media_type: str | None, octets: int | None) -> bool:
    """Whether a resource of this media type and length is worth deflating. Unknown types are; most images, sound,
    films, PDF, office documents and archives are compressed already. A length that is not known counts as large."""
    is_tiny = octets is not None and octets < SMALLEST
    return not is_tiny and (not media_type or _is_of_text(media_type))


@lru_cache(256)
def _is_of_text(media_type: str) -> bool:
    """Whether content of this type is not compressed already; a set has few types, and a package many members."""
    kind = media_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(("+xml", "+json", "+yaml")) or kind in _TEXT
