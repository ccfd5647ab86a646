"""Certificates for tests, made by the `openssl` that every system has: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.engines.errors import Unavailable

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


@dataclass(frozen=True)
class Certificate:
    """Two files in PEM: the certificate, and its private key (PKCS #8, not encrypted)."""

    certificate: Path
    key: Path


class Authority:
    """Makes itself and signs certificates, as files in a folder. Raises `Unavailable` without openssl."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.own = Certificate(folder / f"{name}.pem", folder / f"{name}.key")
        folder.mkdir(parents=True, exist_ok=True)
        files = ("-keyout", str(self.own.key), "-out", str(self.own.certificate))
        signs = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")  # without it Python from 3.13 on trusts nothing
        _openssl("req", "-x509", *_KEY, *files, "-days", "30", "-subj", f"/CN={name}", *signs)

    def issue(self, names: Sequence[str], *, file: str = "node", days: int = 30) -> Certificate:
        """A certificate for these names (`DNS:localhost`, `IP:127.0.0.1`); with -1 days one that has expired."""
        issued = Certificate(self._folder / f"{file}.pem", self._folder / f"{file}.key")
        request = self._folder / f"{file}.csr"
        subject = ("-subj", f"/CN={file}", "-addext", f"subjectAltName={','.join(names)}")
        _openssl("req", "-new", *_KEY, "-keyout", str(issued.key), "-out", str(request), *subject)
        signer = ("-CA", str(self.own.certificate), "-CAkey", str(self.own.key), "-CAcreateserial")
        files = ("-in", str(request), "-out", str(issued.certificate))
        _openssl("x509", "-req", *files, *signer, "-days", str(days), "-copy_extensions", "copy")
        return issued


def _openssl(*arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise Unavailable("openssl is missing: install it (Debian: apt-get install openssl)")
    subprocess.run([program, *arguments], check=True, capture_output=True, timeout=60)
