"""The octets of a document, inflated and in UTF-8, within bounds (AMB-10, AMB-14, AMB-96).

Gzip is known by the first octets; there are at most two layers, and growth is limited. A byte order mark decides the
encoding, and so does the form of 16-bit and 32-bit text; then the `charset` of the HTTP answer, then the XML
declaration, then UTF-8. Where one of these has the first other letters of the document not at all, the next one is
taken. What stands before an XML declaration is left out (AMB-97).
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from typing import Final

from headwater.deflate import DeflateError, gzip_inflater
from headwater.spec.kinds import ReadLimits
from headwater.spec.text_values import BadCompression, LimitExceeded, NotXml, ReaderWarnings, Truncated

MAGIC: Final = b"\x1f\x8b"
BLOCK: Final = 1 << 16
_SLICE: Final = (
    1 << 12
)  # zlib gives nothing of a call that meets damage: so much is lost at most, however octets arrive
_LAYERS: Final = 2  # a .xml.gz that a server compresses once more; nobody needs a third


class Inflater:
    """Decompresses pushed octets, in blocks of at most 64 KiB; what is not gzip passes through."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self._layers = [_Layer(limits) for _ in range(_LAYERS)]
        self._received = 0
        self._produced = 0

    def push(self, data: bytes) -> Iterator[bytes]:
        """The plain octets that `data` gives. Raises BadCompression or LimitExceeded."""
        for start in range(0, len(data), BLOCK):  # growth is judged by what was taken, not by what lies ready
            piece = data[start : start + BLOCK]
            self._received += len(piece)
            yield from self._counted(self._layers[0].push(piece))
            if self._received > self._limits.compressed_octets and self._layers[0].compressed:
                raise LimitExceeded(f"more than {self._limits.compressed_octets:,} octets in compressed form")

    def finish(self) -> Iterator[bytes]:
        """What is left at the end. Raises Truncated when the compressed form is cut off."""
        yield from self._counted(self._layers[0].finish())
        yield from self._counted((), self._layers[1].finish())

    @property
    def has_trailing(self) -> bool:
        """Whether something other than gzip follows the gzip form, and was left out (AMB-92)."""
        return any(layer.has_trailing for layer in self._layers)

    def _counted(self, outer: Iterable[bytes], inner: Iterable[bytes] = ()) -> Iterator[bytes]:
        """The blocks that the outer layer gives, as the inner one makes them; and those that the inner one has left."""
        limits = self._limits
        for block in chain(chain.from_iterable(map(self._layers[1].push, outer)), inner):
            if not self._produced and block.startswith(MAGIC):
                raise LimitExceeded(f"more than {_LAYERS} layers of gzip", rule="AMB-14")
            self._produced += len(block)
            if self._produced > limits.octets:
                raise LimitExceeded(f"more than {limits.octets:,} octets")
            if self._produced > limits.ratio_octets and self._produced > limits.ratio * self._received:
                raise LimitExceeded(f"grows more than {limits.ratio} times by decompression", rule="AMB-14")
            yield block


class _Layer:
    """One layer: passes through, or is gzip of one or more members (RFC 1952, 2.2)."""

    def __init__(self, limits: ReadLimits) -> None:
        self._limits = limits
        self._head = b""
        self._decided = False
        self._members = 0
        self._stream = gzip_inflater()
        self.compressed = False
        self.has_trailing = False

    def push(self, data: bytes) -> Iterator[bytes]:
        if not self._decided:
            data = self._head + data
            if len(data) < len(MAGIC) and MAGIC.startswith(data):
                self._head = data
                return
            self._decided, self._head = True, b""
            self.compressed = data.startswith(MAGIC)
            self._members = 1
        if self.has_trailing:
            return
        if self.compressed:
            for start in range(0, len(data), _SLICE):
                yield from self._inflate(data[start : start + _SLICE])
            return
        yield data

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._stream.eof:
                data = self._next_member(data)
                if not data:
                    return
            try:
                block = self._stream.decompress(data, BLOCK)
            except DeflateError as cause:
                raise BadCompression("the gzip form is damaged") from cause
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            if block:
                yield block

    def _next_member(self, data: bytes) -> bytes:
        """Begin another member; padding with zeros is legal at the end of a gzip file."""
        data = (self._head + data).lstrip(b"\0")
        self._head = b""
        if len(data) < len(MAGIC) and MAGIC.startswith(data):
            self._head = data
            return b""
        if not data.startswith(MAGIC):
            self.has_trailing = True
            return b""
        self._members += 1
        if self._members > self._limits.gzip_members:
            raise LimitExceeded(f"more than {self._limits.gzip_members:,} gzip members", rule="AMB-14")
        self._stream = gzip_inflater()
        return data

    def finish(self) -> Iterator[bytes]:
        if self.compressed:
            if not self._stream.eof:
                yield from self._flush()
            if not self._stream.eof:
                raise Truncated("the gzip form is cut off", rule="AMB-14")
            self.has_trailing = self.has_trailing or bool(self._head)
        elif self._head:
            yield self._head

    def _flush(self) -> Iterator[bytes]:
        # Output may still be pending when the last block was exactly full; all input has been consumed by then.
        try:
            while block := self._stream.decompress(b"", BLOCK):
                yield block
        except DeflateError as cause:
            raise BadCompression("the gzip form is damaged") from cause


SNIFFED: Final = 256
"""Octets within which an XML declaration must end to be looked at here."""

_EVIDENCE: Final = 64  # octets from the first one that is not ASCII by which an encoding is judged
_UTF8: Final = "utf-8"
_MARK: Final = codecs.BOM_UTF8
_DECLARATION: Final = b"<?xml"
_DECLARED = re.compile(rb"""<\?xml\s[^>]{0,200}?encoding\s*=\s*["']\s*([^"'<>]{1,60}?)\s*["']""")
_CHARSET = re.compile(r""";\s*charset\s*=\s*["']?\s*([^\s"';,]{1,60})""", re.IGNORECASE)
_LEAD = re.compile(rb"(?:[ \t\r\n]|\xef\xbb\xbf)*")
_OTHER_LETTER = re.compile(rb"[\x80-\xff]")
_PLAIN: Final = b'<?xml A="\\u0041+AEE-.xn--bcher-kva.b">'
"""Octets that mean the same in every encoding that ASCII is a part of, and not in those of other purposes."""

_WIDE: Final = (  # the 32-bit marks first: the little-endian one begins like that of UTF-16
    (re.compile(rb"\xff\xfe\0\0|\0\0\xfe\xff"), "utf-32"),
    (re.compile(rb"\xff\xfe|\xfe\xff"), "utf-16"),
    (re.compile(rb"[< \t\r\n]\0\0\0"), "utf-32-le"),
    (re.compile(rb"\0\0\0[< \t\r\n]"), "utf-32-be"),
    (re.compile(rb"[< \t\r\n]\0"), "utf-16-le"),
    (re.compile(rb"\0[< \t\r\n]"), "utf-16-be"),
)
_WIDE_NAME = re.compile(r"(?:(?:utf|ucs)[-_]?(?:16|32|2|4)(?:[-_]?[lb]e)?|unicode|iso-10646.*)\Z", re.IGNORECASE)
_STOP: Final = "headwater.stop"
codecs.register_error(_STOP, lambda error: ("\0", getattr(error, "end", 0)))  # no XML: the parser stops there


def charset_of(content_type: str | None) -> str | None:
    """The `charset` of a `Content-Type`, as it is written there."""
    found = _CHARSET.search(content_type or "")
    return found[1] if found else None


def codec_of(name: str) -> str | None:
    """Python's name for an encoding that ASCII is a part of; None where it is unknown, or of another kind."""
    plain = "".join(filter(str.isalnum, name.lower()))
    if plain.startswith("utf8") or plain.endswith("utf8"):
        return _UTF8
    named = name.lower().removeprefix("x-").replace("windows-31j", "cp932").replace("windows-", "cp")
    for tried in (name, named):
        try:
            if _PLAIN.decode(tried) == _PLAIN.decode("ascii"):
                return codecs.lookup(tried).name
        except (LookupError, ValueError):
            continue
    return None


class Utf8Input:
    """Takes the octets of a document as they come, and gives them as UTF-8 from the first markup on."""

    def __init__(self, charset: str | None, warnings: ReaderWarnings, skipped: Callable[[bytes, int, int], None]):
        """`charset`: that of the answer. `skipped` is told of octets that are left out."""
        self.encoding = _UTF8
        self._charset = charset
        self._warnings = warnings
        self._skipped = skipped
        self._held = b""
        self._wide: codecs.IncrementalDecoder | None = None
        self._is_wide: bool | None = None
        self._mark: bool | None = None
        self._lead = 0
        self._candidates: tuple[str, ...] = ()
        self._decoder: codecs.IncrementalDecoder | None = None
        self._passes = False

    def push(self, data: bytes, *, final: bool = False) -> bytes:
        """The octets in UTF-8; NUL for what the encoding does not have. Raises NotXml for an unknown encoding."""
        if self._passes:
            return data
        if self._is_wide is None:
            data = self._held + data
            self._held = data if len(data) < 4 and not final else b""
            if self._held:
                return b""
            name = next((name for first, name in _WIDE if first.match(data)), None)  # 16-bit or 32-bit text?
            self._is_wide = name is not None
            if name is not None:
                self.encoding, self._wide = name, _decoder(name)
        if self._wide is not None:
            data = self._wide.decode(data).encode(_UTF8)
        return self._body(data, final=final) if self._candidates else self._head(data, final=final)

    def _head(self, data: bytes, *, final: bool) -> bytes:
        """Leave out what comes before the first markup, and find the encoding."""
        data = self._held + data
        if self._mark is None and (data or final):
            self._mark = data.startswith(_MARK) or self._wide is not None
        lead = _LEAD.match(data)
        end = lead.end() if lead else 0
        if not self._mark and data.rfind(_MARK, 0, end) >= 0:
            self._mark = True
        self._skipped(data, 0, end)
        self._lead += end
        data = data[end:]
        if len(data) < SNIFFED and not final:
            self._held = data
            return b""
        self._held = b""
        if data.startswith(_DECLARATION) and self._lead > (len(_MARK) if self._mark and self._wide is None else 0):
            self._warnings.warn("AMB-97", "white space before the XML declaration was left out")
        found = _DECLARED.match(data[:SNIFFED])
        self._candidates = self._choose(found[1].decode("latin-1") if found else None)
        self._passes = self._candidates == (_UTF8,) and self._wide is None
        return self._body(data, final=final)

    def _choose(self, declared: str | None) -> tuple[str, ...]:
        """The encodings in the order in which they are tried."""
        if self._mark or self._wide is not None:
            name = codec_of(declared) if declared else None
            if declared and name is not None and (name != _UTF8 or self._wide is not None):
                self._warnings.warn("AMB-96", "the declared encoding is not that of the octets, which counts", declared)
            return (_UTF8,)
        names = [self._known(name) for name in (self._charset, declared) if name]
        if declared and not any(names) and not _WIDE_NAME.match(declared):
            raise NotXml(f"the encoding {declared[:40]} is unknown", line=1)
        known = [name for name in names if name is not None]
        if len(set(known)) > 1:
            self._warnings.warn("AMB-96", "charset of the answer and declared encoding differ", f"{known}")
            known.sort(key=_UTF8.__ne__)  # what is well-formed UTF-8 by chance is hardly anything else
        return tuple(dict.fromkeys((*known, _UTF8)))

    def _known(self, name: str) -> str | None:
        codec = codec_of(name)
        if codec is None:
            self._warnings.warn("AMB-96", "an encoding that is unknown, or not that of the octets, was ignored", name)
        elif codec == _UTF8 and name.lower() != _UTF8:
            self._warnings.warn("AMB-96", "a name that no encoding has was read as UTF-8", name)
        return codec

    def _body(self, data: bytes, *, final: bool) -> bytes:
        if self._passes or self._wide is not None:
            return data
        if self._decoder is not None:
            return self._decoder.decode(data).encode(_UTF8)
        data, self._held = self._held + data, b""
        found = _OTHER_LETTER.search(data)
        escapes = self._candidates[0].startswith(("iso2022", "hz"))  # other letters in ASCII, after an escape
        if found is None and not escapes:
            return data
        at = 0 if escapes or found is None else found.start()
        if len(data) - at < _EVIDENCE and not final:
            self._held = data[at:]
            return data[:at]
        self._decide(data[at : at + _EVIDENCE], final=final and len(data) - at <= _EVIDENCE)
        return data[:at] + self._body(data[at:], final=final)

    def _decide(self, evidence: bytes, *, final: bool) -> None:
        fitting = []
        for name in self._candidates:
            with suppress(UnicodeError):
                codecs.getincrementaldecoder(name)("strict").decode(evidence, final)
                fitting.append(name)
        first = self._candidates[0]
        self.encoding = fitting[0] if fitting else first
        if self.encoding != first:
            self._warnings.warn("AMB-96", f"bytes that are not {first} were read as {self.encoding}")
        self._passes = self.encoding == _UTF8
        self._decoder = None if self._passes else _decoder(self.encoding)


def _decoder(name: str) -> codecs.IncrementalDecoder:
    return codecs.getincrementaldecoder(name)(_STOP)
