"""Builds that are told apart, alerts that read figures that there are, and a web server in front of `serve`."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import headwater
from headwater.aggregator.metrics import metrics_page
from headwater.aggregator.status import read_fleet
from headwater.cli import run
from headwater.errors import Exit
from tests.aggregator.fleet import configuration, fill, store_at
from tests.support.program import run_here
from tests.support.serving import Process, request
from tests.support.waiting import until
from tests.test_packaging import GUIDE, PACKAGING, Client, free_port, nginx, program


def test_the_manual_names_what_operators_are_given() -> None:
    manual = GUIDE.read_text("utf-8")
    listed = (PACKAGING / "README.md").read_text("utf-8")
    for name in ("nginx-serve.conf", RULES.name):
        assert name in manual
        assert name in listed


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a build needs, in a repository with one commit."""
    root, made = PACKAGING.parent, tmp_path_factory.mktemp("build") / "clone"
    shutil.copytree(root / "src", made / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, made)
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    environment = {**os.environ, "GIT_COMMITTER_DATE": "2001-02-03T00:00:00Z"}
    for command in (["init", "-q"], ["add", "."], [*who, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *command], cwd=made, check=True, env=environment)
    return made


def built(folder: Path, kind: str, to: Path) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(to)],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=120,
    )
    (made,) = to.iterdir()
    return made


def version_of(wheel: Path, to: Path) -> str:
    """What the program in a wheel says."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(to)
    environment = {**os.environ, "PYTHONPATH": str(to)}
    command = [sys.executable, "-m", "headwater", "--version"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=to).stdout


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_wheel_says_of_which_commit_it_is(clone: Path, tmp_path: Path) -> None:
    """Also one that is built from the sdist, without git; and whether files were changed since the commit."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=clone, capture_output=True, text=True, check=True
    ).stdout.strip()
    version = f"{headwater.__version__}+20010203.{commit}"
    wheel = built(clone, "wheel", tmp_path / "wheel")
    assert wheel.name.startswith(f"headwater-{version}-")
    assert version_of(wheel, tmp_path / "one") == f"headwater {version}\n"
    sdist = built(clone, "sdist", tmp_path / "sdist")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    assert not (unpacked / ".ci").exists()
    again = built(unpacked, "wheel", tmp_path / "again")
    assert again.name == wheel.name
    assert version_of(again, tmp_path / "two") == f"headwater {version}\n"
    data = {"messages.txt", *(f"aggregator/templates/{one.name}" for one in TEMPLATES.iterdir())}
    assert all((tmp_path / "two" / "headwater" / one).is_file() for one in data), data
    with (clone / "README.md").open("a") as file:
        file.write("more\n")
    assert f"{commit}.changed-" in built(clone, "wheel", tmp_path / "changed").name


TEMPLATES = PACKAGING.parent / "src" / "headwater" / "aggregator" / "templates"
RULES = PACKAGING / "prometheus" / "headwater.rules.yml"
UNIT_TEST = """
rule_files: [rules.yml]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {series: 'headwater_set_last_look_timestamp_seconds{set="s"}', values: '60x60'}
      - {series: 'headwater_set_last_look_timestamp_seconds{set="new"}', values: '0x60'}
      - {series: 'headwater_set_last_look_timestamp_seconds{set="push"}', values: '60x60'}
      - {series: 'headwater_set_waiting{set="push"}', values: '1x60'}
      - {series: 'headwater_set_waiting{set="s"}', values: '0x60'}
      - {series: 'headwater_copy_sound_timestamp_seconds{copy="/c", set="s"}', values: '60x1800'}
      - {series: 'headwater_copy_sound_timestamp_seconds{copy="/c", set="never"}', values: '0x1800'}
      - {series: 'headwater_copy_status_timestamp_seconds{copy="/c"}', values: '0+60x1800'}
      - {series: 'headwater_notify_failures{hub="https://hub.example"}', values: '1x60'}
    alert_rule_test:
      - {eval_time: 15m, alertname: HeadwaterPublicationOld, exp_alerts: []}
      - eval_time: 17m
        alertname: HeadwaterPublicationOld
        exp_alerts:
          - exp_labels: {severity: critical, set: s}
            exp_annotations: {summary: "s was not looked at for 16m 0s: does its publisher run?"}
      - {eval_time: 9m, alertname: HeadwaterHubDown, exp_alerts: []}
      - eval_time: 11m
        alertname: HeadwaterHubDown
        exp_alerts:
          - exp_labels: {severity: critical, hub: "https://hub.example"}
            exp_annotations:
              summary: "The hub https://hub.example has not accepted notifications for ten minutes."
      - {eval_time: 24h, alertname: HeadwaterCopyOld, exp_alerts: []}
      - eval_time: 25h1m
        alertname: HeadwaterCopyOld
        exp_alerts:
          - exp_labels: {severity: critical, copy: /c, set: s}
            exp_annotations:
              summary: "/c: no run without fault brought s up to date for 1d 1h 0m 0s."
      - {eval_time: 25h, alertname: HeadwaterCopyFiguresOld, exp_alerts: []}
"""


@pytest.mark.skipif(program("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_the_alerts_and_they_fire_in_time(tmp_path: Path) -> None:
    shutil.copy(RULES, tmp_path / "rules.yml")
    (tmp_path / "test.yml").write_text(UNIT_TEST)
    for command in (["check", "rules", "rules.yml"], ["test", "rules", "test.yml"]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_read_figures_that_there_are(tmp_path: Path) -> None:
    """Of a running source with a hub, of a copy by `status --metrics`, and of a service."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a").write_text("a")
    options = ("--files", str(tmp_path / "files"), "--state", str(tmp_path / "s"), "--port", "0", "--metrics", "--hub")
    with Process(*options) as process:
        url = process.ready()
        shown = request(url, "/metrics").body.decode()
        assert run(["sync", url, str(tmp_path / "copy"), "--quiet"]) == Exit.DONE
    shown += run_here("status", tmp_path / "copy", "--metrics").stdout.decode()
    store = store_at(tmp_path / "agg")
    shown += metrics_page(read_fleet(configuration(tmp_path / "agg", fill(store, 20)), store), of_service=True).decode()
    figures = {re.split("[{ ]", line)[0] for line in shown.splitlines() if not line.startswith("#")}
    wanted = set(re.findall(r"headwater_[a-z_]+", "".join(re.findall(r"expr: (.*)", RULES.read_text("utf-8")))))
    assert len(wanted) > 10
    assert wanted <= figures


def test_the_manual_has_the_settings_of_the_file_for_nginx() -> None:
    file = (PACKAGING / "web" / "nginx-serve.conf").read_text("utf-8")
    page = (GUIDE.parent / "publish-behind-a-web-server.md").read_text("utf-8").partition("gzip off;")[2]
    told, given = (set(re.findall(r"(?:proxy|client)_\w+ [^;]+;", one)) for one in (page.partition("```")[0], file))
    assert len(told) > 6
    assert "proxy_buffering off;" in told
    assert told == given - {"proxy_pass http://127.0.0.1:8000/metrics;"}


@pytest.mark.skipif(program("nginx") is None, reason="nginx is not installed")
def test_nginx_before_a_server_passes_on_what_it_says(tmp_path: Path) -> None:
    """With the base URL of the proxy in all documents; figures go to this machine alone, and a copy is in sync."""
    port, base, files = free_port(), tmp_path / "server", tmp_path / "files"
    for folder in (base, files):
        folder.mkdir()
    (files / "a.txt").write_bytes(b"a\n" * 1000)
    where = f"http://127.0.0.1:{port}/sync"
    options = ("--files", str(files), "--state", str(tmp_path / "s"), "--port", "0", "--metrics", "--base-url", where)
    with Process(*options) as process, (base / "err").open("wb") as errors:
        process.listening()
        until(lambda: request(process.address, "/health").status == 200)
        text = (PACKAGING / "web" / "nginx-serve.conf").read_text("utf-8").replace("# auth_basic", "# no")
        text = text.replace("http://127.0.0.1:8000", process.address)
        running = subprocess.Popen([str(program("nginx")), *nginx(text, base, port)], stdout=errors, stderr=errors)
        try:
            client = Client(port)
            until(lambda: client.answers() or running.poll() is not None)
            assert running.poll() is None, (base / "err").read_text()
            status, headers, body = client.get("/sync/files/resourcelist.xml", Accept_Encoding="gzip")
            assert (status, headers["content-encoding"]) == (200, "gzip")
            assert f"<loc>{where}/files/resources/a.txt</loc>".encode() in gzip.decompress(body)
            assert client.get("/sync/files/resources/a.txt", Range="bytes=0-1")[::2] == (206, b"a\n")
            assert client.get("/sync/metrics")[0] == 200
            assert run(["sync", f"http://127.0.0.1:{port}/", str(tmp_path / "copy"), "--quiet"]) == Exit.DONE
            assert run(["audit", f"http://127.0.0.1:{port}/", str(tmp_path / "copy")]) == Exit.DONE
        finally:
            running.terminate()
            running.wait(30)
