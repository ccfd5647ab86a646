"""What can go wrong with a search cluster, said to the person who must act: code, what happened, what to do."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headwater.errors import StoreFault, UsageFault

TOO_MANY = 429
AGAIN = frozenset({TOO_MANY, 502, 503, 504})
"""Statuses that pass: full queues, a node that goes or comes, a primary that moves."""


class ClusterFault(StoreFault):
    """Root of all faults of a search cluster."""

    code: ClassVar[str] = "HW-CLU-01"
    advice: ClassVar[str] = "Report this as a bug: the cluster refused a request that Headwater wrote."


class ClusterUnreachable(ClusterFault):
    """No node answered for as long as we wait, or none could do what was asked."""

    code: ClassVar[str] = "HW-CLU-02"
    advice: ClassVar[str] = "Look after the cluster's nodes; nothing is lost: run the same command again."


class ClusterBusy(ClusterFault):
    """The cluster went on refusing requests because its queues or its memory were full."""

    code: ClassVar[str] = "HW-CLU-03"
    advice: ClassVar[str] = "Give the cluster time, memory or nodes, then run the same command again: nothing is lost."


class ClusterReadOnly(ClusterFault):
    """Somebody, or the cluster itself for want of disk space, has made an index read-only."""

    code: ClassVar[str] = "HW-CLU-04"
    advice: ClassVar[str] = (
        "Free disk space on the cluster's nodes (flood stage), or take the block `index.blocks.…` from the index, "
        "then run the same command again: what was accepted is there."
    )


class ClusterRefused(ClusterFault):
    """The cluster does not know us, or we may not do this."""

    code: ClassVar[str] = "HW-CLU-05"
    advice: ClassVar[str] = "Give a user or an API key that may read and write the indices of this prefix."


class ClusterDamaged(ClusterFault):
    """Something that was committed is not there: an index was removed, restored or changed by another program."""

    code: ClassVar[str] = "HW-CLU-06"
    advice: ClassVar[str] = "Restore all indices of the prefix from one snapshot; let no other program write to them."


class ClientMissing(UsageFault):
    """The client library for search clusters is not installed."""

    code: ClassVar[str] = "HW-CLU-07"
    advice: ClassVar[str] = "Install it: pip install 'headwater[cluster]'."


class Reason(msgspec.Struct, frozen=True):
    """Why an engine refused something."""

    type: str = ""
    reason: str | None = None


class _Refusal(msgspec.Struct, frozen=True):
    error: Reason | str = ""


def reason_of(body: str) -> Reason:
    """What an answer that is no success says; its text as it is when it is not the engine's own JSON."""
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
    except msgspec.MsgspecError:
        return Reason("", body[:200])
    return error if isinstance(error, Reason) else Reason("", error)


def passes(status: int, reason: Reason) -> bool:
    """Whether the same request may succeed later. A read-only index (flood stage) answers 429, too, and does not."""
    return status in AGAIN and not (status == TOO_MANY and reason.type == "cluster_block_exception")


def fault_of(status: int, reason: Reason, where: str) -> ClusterFault:
    """The fault that an answer of this status and reason is."""
    what = f"{reason.type}: {reason.reason}" if reason.type else f"status {status}: {reason.reason}"
    kind = _kind(status, reason)
    return ClusterFault(what[:1000], where=where) if kind is None else kind(what[:1000], where=where)


def _kind(status: int, reason: Reason) -> type[ClusterFault] | None:
    """Whose fault it is; None: ours."""
    if reason.type == "cluster_block_exception" and status in (403, TOO_MANY):
        return ClusterReadOnly
    if status in (401, 403):
        return ClusterRefused
    if status == TOO_MANY:
        return ClusterBusy
    if status >= 500:
        return ClusterUnreachable
    if reason.type in ("index_not_found_exception", "strict_dynamic_mapping_exception", "alias_not_found_exception"):
        return ClusterDamaged
    return None
