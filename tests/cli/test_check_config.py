"""`headwater check-config`: what `serve` and `publish` would refuse of a configuration is told, and where it is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.cli import run
from headwater.errors import Exit
from tests.support.program import run_here

SET = '[[set]]\nname = "a"\nfiles = "files"\n'


def written(folder: Path, text: str) -> Path:
    (folder / "files").mkdir(exist_ok=True)
    (folder / "source.toml").write_text(text)
    return folder / "source.toml"


def test_a_right_configuration_is_told_and_nothing_is_made(tmp_path: Path) -> None:
    path = written(tmp_path, f'state = "state"\n{SET}')
    done = run_here("check-config", path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode() == f"{path}: 1 set, nothing would be refused\n"
    told = json.loads(run_here("check-config", path, "--json").stdout)
    assert told == {"config": str(path), "sets": 1, "problems": [], "warnings": []}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["files", "source.toml"]


REFUSED = {
    "no TOML": ("state = ", "HW-CFG-01", "source.toml"),
    "no set": ('state = "s"\n', "HW-CFG-01", "source.toml"),
    "a key that is misspelt": (f'state = "s"\n{SET}rescan_second = 3\n', "HW-CFG-01", "[[set]] 1 'a'"),
    "a bad catalog": (f'state = "s"\ncatalog = "opensearch://"\n{SET}', "HW-", ""),
    "an unknown digest": (f'state = "s"\n{SET}hashes = ["crc"]\n', "HW-OWN-04", "a"),
    "a state that is published": (f'state = "files"\n{SET}', "HW-OWN-03", "files"),
    "two sets of one name": (f'state = "s"\n{SET}{SET}', "HW-SITE-01", "source.toml"),
    "a token that is not there": (
        'state = "s"\n[[set]]\nname = "p"\nfeed = "events"\ntoken_file = "none"\n', "HW-", "none",
    ),
    "credentials that are not there": (
        'state = "s"\n[[set]]\nname = "d"\nprofile = "rdf-dataset"\nsparql = "http://e.example/"\n'
        'sparql_authorization_env = "NOT_SET_HERE"\n',
        "HW-", "NOT_SET_HERE",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_be_refused_is_told_with_its_place(case: str, tmp_path: Path) -> None:
    text, code, where = REFUSED[case]
    path = written(tmp_path, text)
    done = run_here("check-config", path, "--json")
    (problem,) = json.loads(done.stdout)["problems"]
    assert done.returncode == 2
    assert problem["code"].startswith(code)
    assert where in (problem["where"] or "")
    assert problem["do"]
    shown = run_here("check-config", path)
    assert (shown.returncode, shown.stdout) == (2, b"")
    assert problem["code"] in shown.stderr.decode()
    serve = run_here("serve", path, "--port", "0", "--base-url", "http://e.example")
    assert serve.returncode == 2
    assert problem["code"] in serve.stderr.decode()


def test_folders_authorities_and_libraries_that_are_missing_are_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = 'catalog = "elasticsearch://localhost:9200/x?tls=true&ca=gone.pem"\nlog_file = "logs/source.log"\n'
    path = written(tmp_path, f'state = "state"\n{keys}[[set]]\nfiles = "files"\n')
    (tmp_path / "files").mkdir(exist_ok=True)
    wanted = [f"the folder of log_file is not there: {tmp_path}/logs", f"catalog: ca is not there: {tmp_path}/gone.pem"]
    for is_installed, more in ((True, []), (False, ["elastic-transport is not installed (HW-CLU-07)"])):
        with monkeypatch.context() as patched:
            if not is_installed:
                patched.setattr("headwater.cli.serve_options.find_spec", lambda _name: None)
            assert run(["check-config", str(path), "--json"]) == Exit.DONE
        told = json.loads(capsys.readouterr().out)["warnings"]
        assert told[:2] == wanted
        assert [one.partition("library ")[2] for one in told[2:]] == more
    (tmp_path / "logs").mkdir()
    (tmp_path / "gone.pem").write_text("a")
    assert run(["check-config", str(path), "--json"]) == Exit.DONE
    assert json.loads(capsys.readouterr().out)["warnings"] == []


def test_all_sets_that_are_wrong_are_told(tmp_path: Path) -> None:
    """The first fault of each; and what is not there is a warning, since it may come."""
    text = 'state = "state"\n' + "".join(
        f'[[set]]\nname = "{name}"\n{keys}\n'
        for name, keys in (("a", "files = 3"), ("b", 'files = "gone"'), ("C", 'files = "files"'))
    )
    told = json.loads(run_here("check-config", written(tmp_path, text), "--json").stdout)
    assert [one["where"].partition(", ")[2] for one in told["problems"]] == ["[[set]] 1 'a'", "[[set]] 3 'C'"]
    text = text.replace("files = 3", 'files = "files"\nhashes = ["crc"]').replace('"C"', '"c"\nhashes = ["x"]')
    told = json.loads(run_here("check-config", written(tmp_path, text), "--json").stdout)
    assert [one["what"] for one in told["problems"]] == ["unknown hash: 'crc'", "unknown hash: 'x'"]
    assert told["warnings"] == [f"set 'b': files is not there: {tmp_path}/gone"]
