"""What `headwater serve` is told: the configuration of a source that a file, or options, or both give."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.cli.shared_options import DESCRIBING
from headwater.errors import HeadwaterError, UsageFault
from headwater.typed_decoding import from_values

if TYPE_CHECKING:
    from headwater.source.config import SourceConfig

_ANY_HOST = ("0.0.0.0", "::", "")  # noqa: S104  compared with, never bound to unasked
_WHOLE = ("catalog", "host", "port", "base_url", "profile", "log_format", "metrics")
_ONE_SET = ("files", "copy", "dataset", "set_name", "title", *DESCRIBING, "versions", "rescan")


def configured(options: dict[str, Any]) -> SourceConfig:
    """The configuration that a file, or the options, or both give. Raises UsageFault."""
    import msgspec

    from headwater.source.config_file import read_config

    given = {name: value for name, value in options.items() if value not in (None, ())}
    path = given.pop("config", None)
    if path is not None:
        if clash := [name for name in _ONE_SET if name in given]:
            raise UsageFault(f"{_option(clash[0])} and CONFIG exclude each other: set it in the file")
        whole = {name: str(value) if isinstance(value, Path) else value for name, value in given.items()}
        return _converted(msgspec.to_builtins(read_config(path)) | whole)
    if "copy" in given:
        return _copied(given)
    kind = "dataset" if "dataset" in given else "files"
    if kind not in given:
        raise UsageFault("nothing to serve", advice="Give --files DIR, --copy DEST, --dataset PATH, or a CONFIG file.")
    if kind == "dataset":
        _refuse(given, ("files", "rescan"), "--dataset")
    place = given[kind].absolute()
    one_set = {kind: str(place), "name": given.get("set_name", kind)}
    one_set |= {"profile": "rdf-dataset"} if kind == "dataset" else {}
    one_set |= {name: given[name] for name in ("title", *DESCRIBING, "versions") if name in given}
    if "rescan" in given:
        one_set["rescan_seconds"] = given["rescan"]
    whole = {name: given[name] for name in _WHOLE if name in given}
    state = given.get("state") or default_state(place, str(one_set["name"]))
    return _converted({**whole, "state": str(Path(state).absolute()), "set": [one_set]})


def _refuse(given: dict[str, Any], names: tuple[str, ...], option: str) -> None:
    if clash := [name for name in names if name in given]:
        raise UsageFault(f"{_option(clash[0])} and {option} exclude each other", advice="Leave one of them out.")


def with_new_sets(options: dict[str, Any], base_url: str) -> SourceConfig:
    """The configuration with the sets that a copy has by now, but for those that cannot be published at this address.

    Raises UsageFault, and faults of the copy's state.
    """
    given = {name: value for name, value in options.items() if value not in (None, ())}
    return _copied({**given, "base_url": base_url}, takes_what_fits=True)


def _fits(data: dict[str, Any]) -> bool:
    """Whether a configuration can be published at its base URL."""
    try:
        _converted(data).site()
    except HeadwaterError:
        return False
    return True


def _copied(given: dict[str, Any], *, takes_what_fits: bool = False) -> SourceConfig:
    """The configuration that publishes the sets of a copy under the names that they have there. Raises UsageFault."""
    _refuse(given, ("files", "dataset", "rescan"), "--copy")
    from headwater.source.copy_sets import published_names

    copy = given["copy"].absolute()
    wanted = given.get("set_name")
    names: dict[str, str | None] = {**published_names(copy, wanted)}
    if wanted is not None and not names:
        names = {wanted: None}  # there is no copy yet: its set of this name is waited for
    if not names:
        raise UsageFault(
            "this folder holds no copy so far",
            where=str(copy),
            advice="Run `headwater sync URL DEST` first, or name the set with --set: it is then waited for.",
        )
    told = {name: given[name] for name in ("title", *DESCRIBING, "versions") if name in given}
    sets = [{"name": ours, "copy": str(copy), "copy_set": theirs, **told} for ours, theirs in names.items()]
    whole = {name: given[name] for name in _WHOLE if name in given}
    state = given.get("state") or default_state(copy, wanted or "copy")
    whole["state"] = str(Path(state).absolute())
    if takes_what_fits:
        sets = [one for one in sets if _fits({**whole, "set": [one]})]
    return _converted({**whole, "set": sets})


def _option(parameter: str) -> str:
    """What a parameter is called on the command line."""
    from headwater.cli.source.serve import command

    return next(one.opts[0] for one in command.params if one.name == parameter)


def _converted(data: dict[str, Any]) -> SourceConfig:
    import msgspec

    from headwater.source.config import BadConfiguration, SourceConfig

    try:
        return from_values(data, SourceConfig, strict=False)
    except msgspec.ValidationError as cause:
        raise BadConfiguration(str(cause)) from cause


def default_state(files: Path, set_name: str) -> Path:
    """Where the state of a folder lies when nobody says: in the user's own state folder, never in what is published."""
    mark = hashlib.sha256(os.fsencode(files.resolve()) + b"\0" + set_name.encode()).hexdigest()[:12]
    return _states() / f"{set_name}-{mark}"


def states_of(files: Path) -> list[Path]:
    """The state folders of `serve --files`, `--copy` and `--dataset` for this folder, where nobody said another."""
    found = sorted(_states().glob("*-????????????"))
    return [one for one in found if one == default_state(files, one.name[: -len("-????????????")])]


def _states() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "headwater"


def own_url(config: SourceConfig, url: str) -> str:
    """The URL of our own address, which must be one that somebody can connect to."""
    if config.host in _ANY_HOST:
        raise UsageFault(
            f"listening on {config.host or 'every address'} needs a base_url, the URL that clients use",
            advice="Add --base-url http://NAME:PORT; it is written into every document.",
        )
    return url
