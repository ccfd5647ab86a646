"""Warnings of one reading: what was forgiven, counted by kind with its rule id, whatever the document's size."""

from __future__ import annotations

from typing import Final

import msgspec

EXAMPLES: Final = 3
_EXAMPLE_LENGTH: Final = 200
_KINDS: Final = 200  # messages are constants of our code, so this is never reached; it is here so that nothing can grow


class Warned(msgspec.Struct, frozen=True):
    """A warning: the rule that was broken, what was done about it, how often, and the first few texts concerned."""

    rule: str
    message: str
    count: int
    examples: tuple[str, ...]


class ReaderWarnings:
    """The warnings of one reading, in the order of their first occurrence."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._examples: dict[tuple[str, str], list[str]] = {}

    def warn(self, rule: str, message: str, example: str = "") -> None:
        """Count one lapse."""
        key = (rule, message)
        if key not in self._counts:
            if len(self._counts) >= _KINDS:
                return
            self._counts[key] = 0
            self._examples[key] = []
        self._counts[key] += 1
        examples = self._examples[key]
        if example and len(examples) < EXAMPLES and (shown := example[:_EXAMPLE_LENGTH]) not in examples:
            examples.append(shown)

    def all(self) -> tuple[Warned, ...]:
        """Every kind of lapse so far."""
        return tuple(
            Warned(rule, message, count, tuple(self._examples[rule, message]))
            for (rule, message), count in self._counts.items()
        )
