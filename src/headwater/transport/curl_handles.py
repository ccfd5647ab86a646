"""The binding to libcurl: an easy handle for each transfer, and the multi handle that drives all of them.

The only module that imports pycurl. Options that never change are set when a handle is made, those of one request when
it starts; what is asked for, of whom and in which order is decided elsewhere.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Sequence
from typing import Any

import pycurl

from headwater.transport import scheduler as dispatch
from headwater.transport.access import AddressGuard, CaBundle, SignInCredentials
from headwater.transport.fetch import FailureKind, FetchFailure, TransportOptions
from headwater.transport.response import ResponseReceiver
from headwater.transport.scheduler import ScheduledFetch, host_of

SLOWEST_OCTETS_PER_SECOND = 32
"""Below this for `stall_timeout_seconds` an answer counts as stalled: a large file may come slowly."""

SLOWEST_DOCUMENT = 1024
"""The same of a document, which a run waits for with its lock held, and whose size nobody has stated."""

RECEIVE_OCTETS = 128 * 1024
PAUSE: int = pycurl.WRITEFUNC_PAUSE
"""What a reception returns to have its transfer paused."""

COMPLETE: int = pycurl.E_OK
NOT_TAKEN: int = pycurl.E_WRITE_ERROR
"""Results of a transfer: it is complete; the reception did not take what came."""

CurlError: type[Exception] = pycurl.error
"""What libcurl raises when an option or a request cannot be as asked."""

_WAITED = re.compile(r" after \d+ (?:ms|milliseconds)")  # differs each time, and one cause is told once
_USERINFO = re.compile(r"[^\s'\"/@]*@")  # of a proxy of the environment
_LOOPBACK = "localhost,127.0.0.0/8,::1"

_FAILURES: dict[int, tuple[FailureKind, bool]] = {
    result: (kind, passing)
    for kind, passing, results in (
        (FailureKind.CONNECT, True, (pycurl.E_COULDNT_RESOLVE_PROXY, pycurl.E_COULDNT_RESOLVE_HOST)),
        (FailureKind.CONNECT, True, (pycurl.E_COULDNT_CONNECT,)),
        (FailureKind.TRUNCATED, True, (pycurl.E_PARTIAL_FILE, pycurl.E_GOT_NOTHING)),
        (FailureKind.TRUNCATED, True, (pycurl.E_SEND_ERROR, pycurl.E_RECV_ERROR)),
        (FailureKind.TLS, True, (pycurl.E_SSL_CONNECT_ERROR,)),
        (FailureKind.TLS, False, (pycurl.E_PEER_FAILED_VERIFICATION, pycurl.E_SSL_CERTPROBLEM, pycurl.E_SSL_CIPHER)),
        (FailureKind.TLS, False, (pycurl.E_SSL_CACERT_BADFILE, pycurl.E_SSL_ISSUER_ERROR)),
        (FailureKind.TLS, False, (pycurl.E_SSL_INVALIDCERTSTATUS,)),
        (FailureKind.TOO_LARGE, False, (pycurl.E_FILESIZE_EXCEEDED, 100)),  # CURLE_TOO_LARGE: a header beyond limits
    )
    for result in results
}
"""libcurl's results as our kinds, and whether another try may succeed; any other is a protocol failure for good."""


_NOT_HTTP = (1, 8)
"""CURLE_UNSUPPORTED_PROTOCOL and CURLE_WEIRD_SERVER_REPLY: an answer that does not begin as one of HTTP."""

_NO_TLS = ("wrong version number", "packet length too long", "http request")
"""Words of OpenSSL for what is no TLS, above all an answer in plain HTTP."""

_CUT = "unexpected eof"
"""Its words for a connection that has ended where TLS had not: the answer may be longer (RFC 8446, 6.1)."""


_METHODS = {"GET": pycurl.HTTPGET, "HEAD": pycurl.NOBODY, "POST": pycurl.POSTFIELDS}
"""The options that make a request one of a method."""


class _Socket(socket.socket):
    """A socket for libcurl, which takes a duplicate of its descriptor and has no use for it afterwards."""

    def __del__(self) -> None:
        self.close()


class EasyHandle:
    """One easy handle with its reception, used for one request after another."""

    def __init__(
        self,
        reception: ResponseReceiver,
        options: TransportOptions,
        guard: AddressGuard,
        may_take: Callable[[EasyHandle, int], bool],
    ) -> None:
        """`may_take`: whether so many octets may come now, where there is a limit; else the transfer is paused."""
        self.reception = reception
        self.may_take = may_take
        self.guard = guard
        self.barred: str | None = None
        self.job: ScheduledFetch | None = None
        self.patience = options.stall_timeout_seconds
        self._renew(options)

    def _renew(self, options: TransportOptions) -> None:
        """A handle of libcurl, of which nothing is set that belongs to one request."""
        reception = self.reception
        self.certified = False
        self.slowest = 0
        self.lines: list[bytes] = []
        self.targeted = False
        self.curl: Any = pycurl.Curl()
        self.curl.handle = self
        for option, value in (
            (pycurl.NOSIGNAL, 1),
            (pycurl.PATH_AS_IS, 1),
            (pycurl.FOLLOWLOCATION, 0),
            (pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS),
            (pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1),
            (pycurl.HTTP_CONTENT_DECODING, 0),
            (pycurl.USERAGENT, options.user_agent),
            (pycurl.CONNECTTIMEOUT_MS, int(options.connect_timeout_seconds * 1000)),
            (pycurl.LOW_SPEED_TIME, options.stall_timeout_seconds),
            (pycurl.BUFFERSIZE, RECEIVE_OCTETS),
        ):
            self.curl.setopt(option, value)
        excepted = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
        if options.proxy is not None:
            self.curl.setopt(pycurl.PROXY, options.proxy)
        elif excepted.strip() != "*":
            excepted = f"{excepted},{_LOOPBACK}".lstrip(",")
        self.curl.setopt(pycurl.NOPROXY, excepted)
        self.curl.setopt(pycurl.HEADERFUNCTION, reception.line)
        self.curl.setopt(pycurl.WRITEFUNCTION, reception.body if options.octets_per_second is None else self._write)
        self.curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open)

    def _open(self, _purpose: int, address: Any) -> socket.socket | int:
        if self.job is not None:
            where, port = str(address.addr[0]), int(address.addr[1])
            if barred := self.guard.objection(host_of(self.job.site), where, port):
                self.barred = barred
                return int(pycurl.SOCKET_BAD)
        return _Socket(address.family, address.socktype, address.protocol)

    def _write(self, chunk: bytes) -> int | None:
        taken = self.reception.body(chunk) if self.may_take(self, 0) else PAUSE
        if taken != PAUSE:  # else it comes again
            self.may_take(self, len(chunk))
        return taken

    def prepare(
        self, uri: str, method: str, body: bytes | None, lines: list[bytes], slowest: int, *, proxied: bool
    ) -> None:
        """Say what is asked for, in the octets of `uri`: by HEAD, GET, or POST with a body, with these header lines
        beside those that libcurl makes. An answer that comes with less than `slowest` octets a second for the time of a
        stall is given up.

        Small hexadecimal digits are sent so, which libcurl would capitalise; a proxy takes only whole URIs. What was
        said once for a handle is said for all that it asks for afterwards. Raises ValueError for any other method, and
        for a body that does not fit it.
        """
        self.barred = None
        self.slowest = slowest
        self.curl.setopt(pycurl.URL, uri)
        self.targeted = self.targeted or "%" in uri
        if self.targeted and not proxied:
            self.curl.setopt(pycurl.REQUEST_TARGET, dispatch.request_target(uri))
        self.curl.setopt(pycurl.LOW_SPEED_LIMIT, slowest)
        if lines is not self.lines:
            self.lines = lines
            self.curl.setopt(pycurl.HTTPHEADER, lines)
        if (body is not None) != (method == "POST") or method not in _METHODS:
            raise ValueError(f"method {method} {'without' if body is None else 'with'} a body")
        self.curl.setopt(pycurl.HTTPGET, 1)  # no HEAD that was before: with a body libcurl would send one again
        self.curl.setopt(_METHODS[method], 1 if body is None else body)

    def identify(self, credentials: SignInCredentials | None, options: TransportOptions) -> None:
        """Show a client certificate, or none: libcurl cannot forget one, so that the handle is exchanged then."""
        if credentials is None or credentials.certificate is None:
            if self.certified:
                self.curl.close()
                self._renew(options)
        elif not self.certified:
            self.certified = True
            self.curl.setopt(pycurl.SSLCERT, credentials.certificate)
            self.curl.setopt(pycurl.SSLKEY, credentials.key or credentials.certificate)
            self.curl.setopt(pycurl.SSLKEYPASSWD, "")  # else OpenSSL would ask the terminal for one

    def trust(self, authorities: CaBundle) -> None:
        """The authorities whose certificates are believed."""
        if authorities.octets is not None:
            self.curl.setopt(pycurl.CAINFO_BLOB, authorities.octets)
        elif authorities.file:
            self.curl.setopt(pycurl.CAINFO, authorities.file)
        if authorities.folder:
            self.curl.setopt(pycurl.CAPATH, authorities.folder)

    def carry_on(self) -> bool:
        """Let a paused transfer go on; False when the reception refused what libcurl had kept for it."""
        try:
            self.curl.pause(pycurl.PAUSE_CONT)
        except pycurl.error:
            return False
        return True

    def judge(self, code: int, text: str) -> FetchFailure | None:
        """What libcurl's result and the reception's own objections make of a transfer; None: it is complete."""
        reception = self.reception
        if reception.failure is not None:
            return reception.failure
        if code == pycurl.E_OK and reception.status == 0:
            return FetchFailure(FailureKind.PROTOCOL, "the answer is not HTTP", self._is_reused())
        if code == pycurl.E_OK or (reception.cut and code == pycurl.E_WRITE_ERROR):
            return None
        if self.barred is not None and code == pycurl.E_COULDNT_CONNECT:
            return FetchFailure(FailureKind.ADDRESS_REFUSED, self.barred)
        text = _WAITED.sub("", text)
        if code == pycurl.E_OPERATION_TIMEDOUT:
            if self.curl.getinfo(pycurl.PRETRANSFER_TIME) <= 0:
                return FetchFailure(FailureKind.TIMEOUT, text, passing=True)
            sent = "nothing" if reception.octets == 0 else f"less than {self.slowest:,} octets a second"
            return FetchFailure(FailureKind.STALLED, f"sent {sent} for {self.patience} s", passing=True)
        if code == pycurl.E_SSL_CONNECT_ERROR and any(sign in text for sign in _NO_TLS):
            return FetchFailure(FailureKind.TLS, "what answers there does not speak TLS")
        if code == pycurl.E_RECV_ERROR and _CUT in text:
            return FetchFailure(FailureKind.TRUNCATED, "the connection was cut, and TLS not ended", passing=True)
        kind, passing = _FAILURES.get(code, (FailureKind.PROTOCOL, code in _NOT_HTTP and self._is_reused()))
        return FetchFailure(kind, _USERINFO.sub("***@", text) or f"error {code} of libcurl", passing)

    def _is_reused(self) -> bool:
        """Whether the connection had another answer before, of which something may have been left on it."""
        return bool(self.curl.getinfo(pycurl.NUM_CONNECTS) == 0)


class MultiHandle:
    """The transfers that are under way. Adding one may raise CurlError: it cannot be sent as it is."""

    def __init__(self, most: int) -> None:
        self.curl: Any = pycurl.CurlMulti()
        self.curl.setopt(pycurl.M_MAXCONNECTS, most)
        self.at_work = False
        """Whether libcurl is calling back; it adds and removes no transfer meanwhile."""

    def perform(self) -> None:
        """Send and receive what can be without waiting."""
        self.at_work = True
        try:
            self.curl.perform()
        finally:
            self.at_work = False

    def finished(self) -> Sequence[tuple[EasyHandle, int, str]]:
        """The transfers that have ended since the last time: libcurl's result of each, and its words for people."""
        ended: list[tuple[EasyHandle, int, str]] = []
        left = 1
        while left:
            left, complete, failed = self.curl.info_read()
            ended.extend((curl.handle, COMPLETE, "") for curl in complete)
            ended.extend((curl.handle, code, text) for curl, code, text in failed)
        return ended
