"""Reads the settings of the older ResourceSync simulator, a YAML file, so that its scenarios go on working.

YAML can say a great deal in few octets; nothing of that is needed here, so aliases are refused and depth is bounded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import msgspec

from headwater.errors import UsageFault
from headwater.simulate.settings import ChangeMix, Sizes
from headwater.typed_decoding import from_values

_LARGEST = 1 << 16
_DEEPEST = 20


class YamlMissing(UsageFault):
    """The library that reads YAML is not installed."""

    code: ClassVar[str] = "HW-SIM-04"
    advice: ClassVar[str] = "Install it: pip install '.[yaml]' in the clone, or pip install pyyaml."


try:
    import yaml
except ImportError as cause:  # pragma: no cover - the tests have it
    raise YamlMissing("settings of the older simulator are YAML, which needs PyYAML") from cause

Event = Literal["create", "update", "delete"]


class BadSettings(UsageFault):
    """The settings file of the older simulator cannot be read, or has an invalid value."""

    code: ClassVar[str] = "HW-SIM-03"
    advice: ClassVar[str] = "docs/simulate.md lists the supported keys."


class _Source(msgspec.Struct, frozen=True):
    number_of_resources: Annotated[int, msgspec.Meta(ge=0)] | None = None
    change_delay: Annotated[float, msgspec.Meta(gt=0)] | None = None
    event_types: tuple[Event, ...] | None = None
    average_payload: Annotated[int, msgspec.Meta(ge=0)] | None = None
    max_events: Annotated[int, msgspec.Meta(ge=-1)] | None = None


class OldSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What such a file says; None where it says nothing. `unknown` are the keys that mean nothing to us."""

    resources: int | None = None
    rate: float | None = None
    mix: ChangeMix | None = None
    sizes: Sizes | None = None
    changes: int | None = None
    unknown: tuple[str, ...] = ()


def read_old_settings(path: Path) -> OldSettings:
    """Read a file; its keys stand under `source` or at the top. Raises BadSettings."""
    data = _mapping(path)
    source = data.get("source", {})
    if not isinstance(source, dict):
        raise BadSettings("`source` is no mapping", where=str(path))
    known = _Source.__struct_fields__
    merged = {name: value for part in (data, source) for name, value in part.items() if name in known}
    try:
        said = from_values(merged, _Source)
    except msgspec.ValidationError as cause:
        raise BadSettings(str(cause), where=str(path)) from cause
    unknown = [f"source.{name}" for name in source if name not in known]
    unknown += [str(name) for name in data if name not in known and name != "source"]
    return OldSettings(
        resources=said.number_of_resources,
        rate=1 / said.change_delay if said.change_delay else None,
        mix=_mix(said.event_types, path) if said.event_types is not None else None,
        sizes=Sizes.around(said.average_payload) if said.average_payload is not None else None,
        changes=said.max_events if said.max_events is not None and said.max_events >= 0 else None,
        unknown=tuple(unknown),
    )


def _mix(events: tuple[Event, ...], path: Path) -> ChangeMix:
    """All that are named come equally often."""
    if not events:
        raise BadSettings("`event_types` names none", where=str(path))
    return ChangeMix(
        created=float("create" in events), updated=float("update" in events), deleted=float("delete" in events)
    )


def _mapping(path: Path) -> dict[object, object]:
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
        if len(text) > _LARGEST:
            raise BadSettings(f"larger than {_LARGEST:,} octets", where=str(path))
        _check(text, path)
        data = yaml.safe_load(text)
    except OSError as cause:
        raise BadSettings(f"cannot be read: {cause.strerror}", where=str(path)) from cause
    except (yaml.YAMLError, ValueError) as cause:
        raise BadSettings(f"not YAML: {' '.join(str(cause).split())}", where=str(path)) from cause
    if not isinstance(data, dict):
        raise BadSettings("no mapping of keys to values", where=str(path))
    return data


def _check(text: bytes, path: Path) -> None:
    """Refuse what could take more memory or stack than it has octets, before anything is built of it."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise BadSettings("aliases are not understood here", where=str(path))
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise BadSettings(f"deeper than {_DEEPEST} levels", where=str(path))
