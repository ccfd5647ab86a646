"""What may be wrong with rules for links: the user must change them."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import UsageFault


class BadLinkRule(UsageFault):
    """A rule for links is invalid."""

    code: ClassVar[str] = "HW-CFG-05"
    advice: ClassVar[str] = "docs/links.md shows each kind of rule by an example and what comes of it."
