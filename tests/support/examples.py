"""How many examples Hypothesis tries: few in every run of the suite, many in a long one (`make test-long`)."""

from __future__ import annotations

import os

MANY = os.environ.get("HEADWATER_MANY_EXAMPLES") == "1"


def examples(many: int) -> int:
    """So `many` in a long run, a fifth of them (but 20 at least) in any other."""
    return many if MANY else min(many, max(20, many // 5))
