"""Requests to an OpenSearch or Elasticsearch cluster: ready octets there, text back, patience in between, its faults.

The one place that imports the client library. Every request that goes through here may be sent twice: the callers make
them so (compare-and-set with a stamp, external versions), because an answer can be lost after the work was done.
"""

from __future__ import annotations

import logging
import random
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import msgspec

from headwater.errors import StoreFault, UsageFault
from headwater.progress import Listener, Notice, silent
from headwater.typed_decoding import from_json, json_decoder

try:
    import certifi
    from elastic_transport import ConnectionError as NoConnection
    from elastic_transport import ConnectionTimeout, HttpHeaders, NodeConfig, NodePool, TlsError, Urllib3HttpNode
except ImportError as cause:  # pragma: no cover - the tests have it
    raise UsageFault("a search cluster needs elastic-transport", code="HW-CLU-07") from cause

# Faults, said to the person who must act

NOBODY, FORBIDDEN, TOO_MANY = 401, 403, 429
_AGAIN = frozenset({TOO_MANY, 502, 503, 504})
"""Statuses that pass: full queues, a node that goes or comes, a primary that moves."""


class ClusterFault(StoreFault):
    """Root of all faults of a search cluster."""

    code = "HW-CLU-01"


class ClusterUnreachable(ClusterFault):
    """No node answered in time, or none could do what was requested."""

    code = "HW-CLU-02"


class ClusterBusy(ClusterFault):
    """The cluster kept refusing requests because its queues or its memory were full."""

    code = "HW-CLU-03"


class ClusterReadOnly(ClusterFault):
    """An index is read-only: an operator set this, or the cluster itself because it lacks disk space."""

    code = "HW-CLU-04"


class ClusterRefused(ClusterFault):
    """The cluster does not accept the credentials, or they lack a privilege."""

    code = "HW-CLU-05"


class ClusterDamaged(ClusterFault):
    """Committed data is missing: another program has removed, restored or changed an index."""

    code = "HW-CLU-06"


class ClusterUnsafe(ClusterUnreachable):
    """No secure connection: the certificate is not trusted, or TLS is refused, cut or not spoken."""

    code = "HW-CLU-08"


_WHO = (
    "Say who asks by HEADWATER_CLUSTER_USER and HEADWATER_CLUSTER_PASSWORD, or by HEADWATER_CLUSTER_API_KEY (by "
    "HEADWATER_INDEX_… for an index that is followed), and see that the cluster knows them: an API key may have "
    "expired or have been revoked."
)


class Reason(msgspec.Struct, frozen=True):
    """Why an engine refused something."""

    type: str = ""
    reason: str | None = None
    unsuccessful: str | None = msgspec.field(default=None, name="additional_unsuccessful_credentials")


class _Refusal(msgspec.Struct, frozen=True):
    error: Reason | str = ""


def reason_of(body: str) -> Reason:
    """What an answer that is no success says; its text as it is when it is not the engine's own JSON."""
    try:
        error = from_json(body, _Refusal).error
    except msgspec.MsgspecError:
        return Reason("", body[:200])
    return error if isinstance(error, Reason) else Reason("", error)


def passes(status: int, reason: Reason) -> bool:
    """Whether the same request may succeed later. A read-only index (flood stage) answers 429, too, and does not."""
    return status in _AGAIN and not (status == TOO_MANY and reason.type == "cluster_block_exception")


def fault_of(status: int, reason: Reason, where: str) -> ClusterFault:
    """The fault that an answer of this status and reason is."""
    what = f"{reason.type}: {reason.reason}" if reason.type else f"status {status}: {reason.reason}"
    if reason.unsuccessful:
        what += f" ({reason.unsuccessful})"
    if status == NOBODY:
        return ClusterRefused(what[:1000], where=where, advice=_WHO)
    kind = ClusterFault  # ours
    if reason.type == "cluster_block_exception" and status in (FORBIDDEN, TOO_MANY):
        kind = ClusterReadOnly
    elif status == FORBIDDEN:
        kind = ClusterRefused
    elif status == TOO_MANY:
        kind = ClusterBusy
    elif status >= 500:
        kind = ClusterUnreachable
    elif reason.type in ("index_not_found_exception", "strict_dynamic_mapping_exception", "alias_not_found_exception"):
        kind = ClusterDamaged
    return kind(what[:1000], where=where)


# Requests

CONFLICT = 409
SLICE_OCTETS = 4 << 20
"""Of one bulk request: far below `http.max_content_length` (100 MB) and small beside a node's indexing pressure."""

SLICE_COUNT = 1_250
_IN_FLIGHT = 4
"""Bulk requests of one writer at a time, so that the engine works while the next is made ready. With these figures a
load in batches of 10,000 was half as fast again as with two requests of 5,000 (one node, two cores)."""

CONNECTIONS = 16  # to each node, and bulk requests of all writers of one handle at a time

_NODE_SECONDS = 5.0
"""For a first answer, where there are other nodes: one that was paused takes connections and says nothing …"""
_NODE_OCTETS = 256 << 10  # … and a second more for each so many octets of a request
_REST_SECONDS = 5.0
"""A node that gave no answer is not asked for so long while others are, and twice as long each time again …"""
_LONGEST_REST_SECONDS = 60.0  # … up to this

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_HURRIED_SECONDS = 5.0  # for an answer, once we are to end

logging.getLogger("elastic_transport").addHandler(logging.NullHandler())


class Node(NamedTuple):
    """One address of the cluster."""

    host: str
    port: int


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a cluster: its nodes, whether by TLS and trusting which `ca` file, and as whom.

    An API key counts before a user. No secret is in what `repr` tells.
    """

    nodes: tuple[Node, ...]
    tls: bool = False
    ca: str | None = None
    user: str | None = None
    password: str = ""
    api_key: str | None = None

    def __repr__(self) -> str:
        return f"Access(nodes={self.nodes!r}, tls={self.tls!r}, ca={self.ca!r}, user={self.user!r}, …)"


class ClusterAnswer(NamedTuple):
    """What a node said."""

    status: int
    body: str


class _Item(msgspec.Struct, frozen=True):
    status: int = 200
    error: Reason | None = None


class _Bulk(msgspec.Struct, frozen=True):
    errors: bool = False
    items: msgspec.Raw = msgspec.Raw(b"[]")  # looked at only when there are errors


_bulk_of = json_decoder(_Bulk)
_items_of = json_decoder(list[dict[str, _Item]])


class Cluster:
    """Connections to the nodes, use from any thread. `patience_seconds`: how long a request is tried again for.

    `request_seconds`: an answer is not waited for longer, so it should be well below patience. Where there are several
    nodes, another one is asked after `node_seconds`, then after twice that, and so on: a node may be silent, or all of
    them slow. Who gave no answer rests meanwhile.

    What passes (no connection, or none that is secure, 429, 502 to 504) is tried again with growing pauses on other
    nodes, and told to the listener. What does not pass is raised at once as a `ClusterFault`. Raises UsageFault for
    credentials and certificates that can be none.
    """

    def __init__(
        self,
        access: Access,
        *,
        patience_seconds: float = 60.0,
        request_seconds: float = 30.0,
        node_seconds: float = _NODE_SECONDS,
        listener: Listener = silent,
    ) -> None:
        self.patience_seconds = patience_seconds
        self._listener = listener
        nodes = dict.fromkeys(access.nodes)
        known_as = authorization(access.user, access.password, access.api_key)
        context = trusting(access.ca, certifi.where()) if access.tls else None
        configurations = [
            NodeConfig(
                "https" if access.tls else "http",
                node.host,
                node.port,
                connections_per_node=CONNECTIONS,
                headers=HttpHeaders({"authorization": known_as} if known_as else {}),
                ssl_context=context,
            )
            for node in nodes
        ]
        self._nodes = NodePool(
            configurations,
            Urllib3HttpNode,
            dead_node_backoff_factor=_REST_SECONDS,
            max_dead_node_backoff=_LONGEST_REST_SECONDS,
        )
        self._node_count = len(nodes)
        self._request_seconds = request_seconds
        self._node_seconds = node_seconds
        self._hurried = False
        self._workers = ThreadPoolExecutor(CONNECTIONS, thread_name_prefix="headwater-bulk")

    def hurry(self) -> None:
        """Try nothing again from now on, and wait for an answer only briefly: whoever asks for more is to end."""
        self._hurried = True

    def close(self) -> None:
        """Give up all connections."""
        self.hurry()
        self._workers.shutdown()
        for node in self._nodes.all():
            node.close()

    def patience(self) -> Patience:
        """For what an answer says in its body that it could not do: to be asked for again."""
        return Patience(self.patience_seconds, self._listener, lambda: self._hurried)

    def ask(self, method: str, path: str, body: bytes | None = None, *, accept: Sequence[int] = ()) -> ClusterAnswer:
        """The answer to one request: a success, or one whose status is in `accept`. Raises ClusterFault."""
        headers = None if body is None else _JSON_LINES if "/_bulk" in path else _JSON
        patience = self.patience()
        silent_nodes = 0
        while True:
            node = self._nodes.get()
            seconds = self._seconds(body, silent_nodes)
            try:
                found = node.perform_request(method, path, body, headers=headers, request_timeout=seconds)
            except (NoConnection, ConnectionTimeout) as cause:
                self._nodes.mark_dead(node)
                silent_nodes += isinstance(cause, ConnectionTimeout)
                kind = ClusterUnsafe if isinstance(cause, TlsError) else ClusterUnreachable
                patience.wait(kind(f"no answer: {str(cause)[:300]}", where=f"{node.base_url}{path}"), cause)
                continue
            self._nodes.mark_live(node)
            answer = ClusterAnswer(found.meta.status, found.body.decode("utf-8", "surrogatepass"))
            if 200 <= answer.status < 300 or answer.status in accept:
                return answer
            reason = reason_of(answer.body)
            fault = fault_of(answer.status, reason, f"{node.base_url}{path}")
            if not passes(answer.status, reason):
                raise fault
            patience.wait(fault)

    def results(self, path: str, part: Sequence[bytes]) -> list[tuple[int, Reason | None]]:
        """Send operations once; of each its status, and why it failed, if it did. Empty: none has failed."""
        path += f"{'&' if '?' in path else '?'}filter_path=errors,items.*.status,items.*.error"
        found = _bulk_of(self.ask("POST", path, b"".join(part)).body)
        items = _items_of(found.items) if found.errors else []
        return [(one.status, one.error) for entry in items for one in entry.values()]

    def bulk(self, index: str, part: Sequence[bytes]) -> bool:
        """Send operations (action and document, each line with its end); whether none met a newer version (409).

        Rejected ones (429 and the like) are sent again. Raises ClusterFault.
        """
        patience = self.patience()
        clean = True
        while part:
            results = self.results(f"/{index}/_bulk?require_alias=true", part)
            if not results:
                return clean
            rejected: list[bytes] = []
            fault: ClusterFault | None = None
            for operation, (status, error) in zip(part, results, strict=True):
                if status == CONFLICT:
                    clean = False
                elif error is not None:
                    fault = fault_of(status, error, f"/{index}/_bulk")
                    if not passes(status, error):
                        raise fault
                    rejected.append(operation)
            if fault is not None:
                if len(rejected) < len(part):
                    patience = self.patience()  # it goes on, however slowly
                patience.wait(fault)
            part = rejected
        return clean

    def stream(self, index: str, operations: Iterator[bytes], before: Callable[[], None]) -> bool:
        """As `bulk`, in requests of which some are under way at once; `before` is called ahead of each."""
        under_way: list[Future[bool]] = []
        clean = True
        try:
            for part in slices(operations):
                before()
                if len(under_way) >= _IN_FLIGHT:
                    clean &= under_way.pop(0).result()
                under_way.append(self._workers.submit(self.bulk, index, part))
            while under_way:
                clean &= under_way.pop(0).result()
        finally:
            for future in under_way:  # none may still write once we have said that it failed
                future.exception()
        return clean

    def _seconds(self, body: bytes | None, silent_nodes: int) -> float:
        if self._hurried:
            return _HURRIED_SECONDS
        if self._node_count == 1:
            return self._request_seconds
        node_seconds = self._node_seconds + len(body or b"") / _NODE_OCTETS
        return min(node_seconds * 2.0**silent_nodes, self._request_seconds)


class Patience:
    """How long one request is tried again for; not at all once we are `hurried`."""

    def __init__(self, seconds: float, listener: Listener, hurried: Callable[[], bool] = lambda: False) -> None:
        self._until = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE
        self._listener = listener
        self._hurried = hurried

    def wait(self, fault: ClusterFault, cause: Exception | None = None) -> None:
        """Pause before the next attempt, or raise the fault when patience is at its end."""
        if self._hurried() or time.monotonic() + self._pause > self._until:
            raise fault from cause
        self._listener(Notice(fault.code, f"{fault.what}; trying again", fault.where))
        time.sleep(self._pause * random.uniform(0.5, 1.0))
        self._pause = min(self._pause * 2, _LONGEST_PAUSE)


def slices(operations: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Runs of operations for one bulk request each."""
    part: list[bytes] = []
    octets = 0
    for operation in operations:
        if part and (octets + len(operation) > SLICE_OCTETS or len(part) >= SLICE_COUNT):
            yield part
            part, octets = [], 0
        part.append(operation)
        octets += len(operation)
    if part:
        yield part


_JSON = HttpHeaders({"content-type": "application/json"})
_JSON_LINES = HttpHeaders({"content-type": "application/x-ndjson"})


def authorization(user: str | None, password: str, api_key: str | None) -> str | None:
    """The header by which we are known; an API key counts before a user. Raises UsageFault, which tells no secret.

    An API key is what the cluster calls `encoded`, or `id:api_key`.
    """
    if api_key:
        key = api_key.strip()
        if ":" in key:
            key = b64encode(key.encode()).decode()
        if not (key.isascii() and key.isprintable()) or " " in key:
            advice = "Give the `encoded` value of the cluster's answer, or its `id` and `api_key` as id:api_key."
            raise UsageFault("the API key has impossible characters", advice=advice)
        return f"ApiKey {key}"
    if user is None:
        return None
    if ":" in user:
        raise UsageFault("a user name cannot have a colon", advice="Choose another user.")
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()  # UTF-8, as both engines read it


def trusting(ca: str | None, otherwise: str | None = None) -> ssl.SSLContext:
    """TLS that trusts the authorities of this file; None: the machine's, with those of `otherwise` where it lists none.

    Raises UsageFault when they cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        if ca is None and otherwise is not None and not context.cert_store_stats()["x509_ca"]:
            context.load_verify_locations(otherwise)
    except OSError as cause:
        said = cause.strerror or str(cause)
        advice = "ca= names a file with the certificate of the authority that signed the cluster's, as PEM."
        raise UsageFault(f"no certificate can be read: {said}", where=ca or otherwise, advice=advice) from cause
    return context
