"""Responses for resources whose content comes from a provider instead of a folder.

The provider is asked for the state that the catalog holds at this moment, so that what is answered is what was
recorded: its tag is the listed digest.
"""

from __future__ import annotations

import time
from email.utils import formatdate

from headwater.catalog.content import OpenContent
from headwater.catalog.interface import Metadata
from headwater.http.request_fields import is_fresh
from headwater.http.responses import Head, RequestFields, Response, line, unmet, whole_or_part

SMALL_OCTETS = 1 << 16
"""What is up to this size is read at once, in the loop: a hop to a thread would cost more than the read."""


def content_response(
    stated: Metadata, content: OpenContent, link: Head, conditions: RequestFields, *, is_head: bool
) -> Response:
    """The response for a resource of which this is `stated`; `link` is a line of its head."""
    octets = content.octets
    lastmod = stated.lastmod.timestamp() if stated.lastmod else 0.0
    etag = (
        b'"%s"' % stated.hash.rpartition(":")[2].encode("ascii")
        if stated.hash
        else b'W/"%x-%x"' % (octets, int(lastmod))
    )
    # No date in the future (RFC 9110 8.8.2.1), where simulated time may well be.
    second = int(min(lastmod, time.time()))
    unchanged = (
        line(b"etag", etag)
        + line(b"last-modified", formatdate(second, usegmt=True).encode("ascii"))
        + line(b"cache-control", b"public, max-age=60, must-revalidate")
        + link
    )
    refusal = unmet(conditions, etag, second)
    if refusal is not None:
        return refusal
    if is_fresh(conditions.if_none_match, conditions.if_modified_since, etag, second):
        return Response(304, unchanged)
    head = (
        line(b"content-type", (stated.type or "application/octet-stream").encode("latin-1", "replace"))
        + line(b"content-length", b"%d" % octets)
        + unchanged
        + line(b"accept-ranges", b"bytes")
        + line(b"x-content-type-options", b"nosniff")
    )
    response = whole_or_part(head, etag, octets, conditions)
    if response.is_refusal or is_head:
        return response
    if response.octets > SMALL_OCTETS:
        response.file = content
        return response
    response.body, response.start = content.read(response.start, response.octets), 0
    return response
