"""Access tokens of a set that is filled by push: compared in constant time and never kept in clear."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from headwater.errors import UsageFault

SHORTEST: Final = 16
"""Characters of a token: fewer can be guessed."""
LONGEST: Final = 1_000


class BadToken(UsageFault):
    """A token is invalid, too short, or cannot be read."""

    code: ClassVar[str] = "HW-CFG-02"


_FILE_ADVICE: Final = (
    "Name a file with one token a line that the process may read; a relative path is relative to the configuration."
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


class TokenOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where tokens stand: in the configuration, in a file (one a line), and in an environment variable."""

    token: str | None = None
    token_file: str | None = None
    token_env: str | None = None

    def token_texts(self, environment: Mapping[str, str] = os.environ) -> list[str]:
        """The tokens in clear. Raises BadToken."""
        texts, file, variable = [] if self.token is None else [self.token], self.token_file, self.token_env
        if file is not None:
            try:
                found = Path(file).read_text("utf-8").split()
            except (OSError, UnicodeDecodeError) as cause:
                reason = cause.strerror if isinstance(cause, OSError) else "it is not UTF-8"
                what = f"the file of tokens cannot be read: {reason}"
                raise BadToken(what, where=file, advice=_FILE_ADVICE) from cause
            if not found:
                raise BadToken("the file of tokens is empty, and is to have one", where=file, advice=_FILE_ADVICE)
            texts += found
        if variable is not None:
            if not (value := environment.get(variable, "").strip()):
                raise BadToken(
                    "this environment variable is not set, or empty, and is to have a token",
                    where=variable,
                    advice=f"Set it for the process (export {variable}=…), or give token_file instead of token_env.",
                )
            texts.append(value)
        return [_checked(text, file or variable) for text in texts]


def _checked(token: str, where: str | None = None) -> str:
    """The token. Raises BadToken, which says what is wrong with it and shows nothing of it."""
    if not SHORTEST <= len(token) <= LONGEST:
        raise BadToken(f"a token has {len(token):,} characters, and {SHORTEST} to {LONGEST:,} are needed", where=where)
    if not token.isascii() or not token.isprintable() or " " in token:
        raise BadToken("a token has a space, or a character that is not printable ASCII", where=where)
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("ascii")).digest()
