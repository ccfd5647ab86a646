"""What can go wrong with a search cluster, said to the person who must act: code, what happened, what to do."""

from __future__ import annotations

import ssl
from http.client import BadStatusLine

import msgspec

from headwater.errors import StoreFault
from headwater.typed_decoding import from_json

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


class ClusterUnsafe(ClusterFault):
    """No secure connection: the certificate is not trusted, or only one side uses TLS. No patience helps."""

    code = "HW-CLU-08"


_WHO = (
    "Say who asks by HEADWATER_CLUSTER_USER and HEADWATER_CLUSTER_PASSWORD, or by HEADWATER_CLUSTER_API_KEY (by "
    "HEADWATER_INDEX_… for an index that is followed), and see that the cluster knows them: an API key may have "
    "expired or have been revoked."
)
_PLAIN = "The node talks plain HTTP: leave out tls=true, or name the port on which it talks TLS."
_TLS = "The node talks TLS: add ?tls=true to the cluster's URL, with ca=FILE where its authority is one of your own."
_NAMES = "Name the node as its certificate does, or give it a certificate for the name in the URL."
_CERTIFICATES = {
    9: "Set this machine's clock, or wait: the certificate counts later.",
    10: "Renew the certificate on the cluster's nodes, or its authority's.",
    62: _NAMES,
    64: _NAMES,
}
"""By OpenSSL's numbers: not yet valid, expired, another host name, another IP address."""

_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE"})


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
    kind = _kind(status, reason)
    return ClusterFault(what[:1000], where=where) if kind is None else kind(what[:1000], where=where)


def _kind(status: int, reason: Reason) -> type[ClusterFault] | None:
    """Whose fault it is; None: ours."""
    if reason.type == "cluster_block_exception" and status in (FORBIDDEN, TOO_MANY):
        return ClusterReadOnly
    if status == FORBIDDEN:
        return ClusterRefused
    if status == TOO_MANY:
        return ClusterBusy
    if status >= 500:
        return ClusterUnreachable
    if reason.type in ("index_not_found_exception", "strict_dynamic_mapping_exception", "alias_not_found_exception"):
        return ClusterDamaged
    return None


def fault_of_connection(cause: Exception, said: str, where: str) -> ClusterFault:
    """The fault that it is when a request got no answer. Only a ClusterUnreachable may pass."""
    error = next((one for one in _chain(cause) if isinstance(one, ssl.SSLError)), None)
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _CERTIFICATES.get(error.verify_code)
        return ClusterUnsafe(
            f"the certificate is not trusted: {error.verify_message.rstrip('.')}", where=where, advice=advice
        )
    if error is not None and error.reason in _NO_TLS:
        return ClusterUnsafe("the node does not talk TLS", where=where, advice=_PLAIN)
    if error is not None and "ALERT" in (error.reason or ""):
        return ClusterUnsafe(f"the node refuses this TLS connection: {said}", where=where)
    if "more than 100 headers" in said:
        return ClusterFault(said, where=where)
    return ClusterUnreachable(f"no answer: {said}", where=where)


def tls_is_wanted(where: str) -> ClusterUnsafe:
    """The fault that it is to talk plain HTTP to a port that talks TLS."""
    return ClusterUnsafe("the node talks TLS alone", where=where, advice=_TLS)


def hung_up(cause: Exception) -> bool:
    """Whether somebody took the connection and then closed it, or said what is no HTTP."""
    return any(isinstance(one, ConnectionResetError | BadStatusLine) for one in _chain(cause))


def _chain(cause: BaseException) -> list[BaseException]:
    """An exception and all that it came from, also what a library has put into its arguments."""
    found = [cause]
    for one in found:
        more = (one.__cause__, one.__context__, *one.args)
        found += [other for other in more if isinstance(other, BaseException) and other not in found]
    return found
