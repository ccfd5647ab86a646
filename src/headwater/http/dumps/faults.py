"""Why a request for a package is refused, each with the status of the answer."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import UsageFault


class DumpRefused(UsageFault):
    """A request for a package that cannot be answered as it stands."""

    code: ClassVar[str] = "HW-SRV-06"
    advice: ClassVar[str] = 'Send one of {"uris": […]}, {"since": "<W3C Datetime>"} and {"page": N} as JSON.'
    status: ClassVar[int] = 400


class TooMuchAsked(DumpRefused):
    """A request for more than one package may hold."""

    code: ClassVar[str] = "HW-SRV-07"
    advice: ClassVar[str] = "Ask for less at a time, within the limits."
    status: ClassVar[int] = 413


class NotKnownSince(DumpRefused):
    """Changes since a moment of which the source's record of changes no longer tells."""

    code: ClassVar[str] = "HW-SRV-08"
    advice: ClassVar[str] = "Read the Resource List, and ask for resources by their URIs."
    status: ClassVar[int] = 410


class WrongMediaType(DumpRefused):
    """A body that is not JSON as it stands."""

    code: ClassVar[str] = "HW-SRV-09"
    advice: ClassVar[str] = "Send JSON with `Content-Type: application/json`, not compressed."
    status: ClassVar[int] = 415


class TooManyDumps(DumpRefused):
    """As many packages as are made at a time are being made."""

    code: ClassVar[str] = "HW-SRV-10"
    advice: ClassVar[str] = "Try again in a moment, or fetch the resources one by one."
    status: ClassVar[int] = 503


class NoSuchPage(DumpRefused):
    """A page that the Resource List does not have."""

    code: ClassVar[str] = "HW-SRV-11"
    advice: ClassVar[str] = "Read the Resource List again: its index names the pages."
    status: ClassVar[int] = 404


class BodyTooLate(DumpRefused):
    """The body of a request has not come, or not whole."""

    code: ClassVar[str] = "HW-SRV-12"
    advice: ClassVar[str] = "Send it again."
    status: ClassVar[int] = 408


class OldProtocol(DumpRefused):
    """A request by HTTP/1.0, in which the end of an answer that is made while it is sent could be a fault as well."""

    code: ClassVar[str] = "HW-SRV-13"
    advice: ClassVar[str] = "Use HTTP/1.1; a proxy in front of the server must use it as well."
    status: ClassVar[int] = 505
