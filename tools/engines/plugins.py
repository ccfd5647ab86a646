"""What a secured engine needs besides what it is unpacked from: plugins, put where its own installer would put them."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tools.engines.errors import Unavailable

_SOURCE = Path(__file__).with_name("Analysers.java")
_FACTORIES = {
    "TokenFilterFactory": {"pattern_capture": "PatternCapture", "unique": "Unique"},
    "TokenizerFactory": {"uax_url_email": "UrlEmail"},
}
_SECONDS = 300.0


def add_security(home: Path, parts: Sequence[Path]) -> None:
    """OpenSearch's security, and a library that it expects in a module which the zip for tests leaves out."""
    place = home / "plugins" / "opensearch-security"
    plugin, *libraries = parts
    with zipfile.ZipFile(plugin) as archive:
        archive.extractall(place)
    for library in libraries:
        shutil.copy(library, place)
    (place / "config").rename(home / "config" / place.name)
    descriptor = place / "plugin-descriptor.properties"
    lines = descriptor.read_text("utf-8").splitlines(keepends=True)
    descriptor.write_text("".join(line for line in lines if not line.startswith("extended.plugins")), "utf-8")


def add_analysers(home: Path, version: str, java_home: Path, release: int) -> None:
    """Names of analysers without which Elasticsearch cannot make its index of API keys."""
    place = home / "plugins" / "analysers"
    place.mkdir()
    with tempfile.TemporaryDirectory(dir=place.parent.parent) as classes:
        _compile(home, java_home, release, Path(classes))
        with zipfile.ZipFile(place / "analysers.jar", "w") as archive:
            for path in Path(classes).rglob("*.class"):
                archive.write(path, path.relative_to(classes))
    properties = {
        "name": place.name,
        "description": "names without effect",
        "version": version,
        "elasticsearch.version": version,
        "java.version": str(release),
    }
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    (place / "stable-plugin-descriptor.properties").write_text(text, "utf-8")
    named = {
        f"org.elasticsearch.plugin.analysis.{factory}": {
            name: f"headwater.{_SOURCE.stem}${kind}" for name, kind in kinds.items()
        }
        for factory, kinds in _FACTORIES.items()
    }
    (place / "named_components.json").write_text(json.dumps(named), "utf-8")


def _compile(home: Path, java_home: Path, release: int, into: Path) -> None:
    compiler = java_home / "bin" / "javac"
    if not compiler.exists():
        raise Unavailable(f"{java_home} is no JDK (it lacks javac): install one, or set JAVA_HOME to one")
    options = ("--release", str(release), "-cp", f"{home}/lib/*", "-d", str(into))
    done = subprocess.run([compiler, *options, _SOURCE], capture_output=True, text=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise Unavailable(f"{_SOURCE.name} could not be compiled:\n{done.stderr[:2000]}")
