"""Access tokens of a set that is filled by push: compared in constant time and never kept in clear."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

from headwater.errors import UsageFault

SHORTEST: Final = 16
"""Characters of a token: fewer can be guessed."""
LONGEST: Final = 1_000


class BadToken(UsageFault):
    """A token is invalid, too short, or cannot be read."""

    code: ClassVar[str] = "HW-CFG-02"
    advice: ClassVar[str] = (
        "A token is 16 to 1,000 printable characters without spaces; `openssl rand -hex 32` makes one."
    )


class AccessTokens:
    """The tokens that one set accepts; without any it accepts none."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = tuple(_digest(_checked(token)) for token in tokens)

    @property
    def is_empty(self) -> bool:
        """Whether there is no token at all."""
        return not self._digests

    def accepts(self, token: bytes) -> bool:
        """Whether this is one of the tokens; takes as long for every token, right or wrong."""
        digest = hashlib.sha256(token).digest()
        found = False
        for one in self._digests:
            found |= hmac.compare_digest(one, digest)
        return found


def read_tokens(
    environment: Mapping[str, str], *, token: str | None = None, file: str | None = None, variable: str | None = None
) -> AccessTokens:
    """The tokens that stand in the configuration, in a file (one a line) and in the environment.

    Raises BadToken.
    """
    return AccessTokens(token_texts(environment, token=token, file=file, variable=variable))


def token_texts(
    environment: Mapping[str, str], *, token: str | None = None, file: str | None = None, variable: str | None = None
) -> list[str]:
    """The same tokens in clear, for who sends them. Raises BadToken."""
    texts = [] if token is None else [token]
    if file is not None:
        try:
            texts += Path(file).read_text("utf-8").split()
        except (OSError, UnicodeDecodeError) as cause:
            raise BadToken("the file of tokens cannot be read", where=file) from cause
    if variable is not None:
        if not (value := environment.get(variable, "").strip()):
            raise BadToken("the environment has no token under this name", where=variable)
        texts.append(value)
    return [_checked(text) for text in texts]


def _checked(token: str) -> str:
    if not SHORTEST <= len(token) <= LONGEST or not token.isascii() or not token.isprintable() or " " in token:
        raise BadToken("not a token")
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("ascii")).digest()
