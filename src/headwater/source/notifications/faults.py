"""What may go wrong with a hub; the changes wait, and are sent as soon as it goes well."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import SourceFault


class HubUnreachable(SourceFault):
    """A hub does not answer, or cannot take a notification at this moment."""

    code: ClassVar[str] = "HW-NTF-01"
    advice: ClassVar[str] = "Nothing, if the hub comes back: all is sent then, in order. Else look after the hub."


class HubRefuses(SourceFault):
    """A hub does not take the notifications of a set."""

    code: ClassVar[str] = "HW-NTF-02"
    advice: ClassVar[str] = "Check hubs and token of [notify], and what the hub asks of its publishers."
