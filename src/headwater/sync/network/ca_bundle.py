"""The CA bundle of this machine: a libcurl that comes in a wheel does not know where it is."""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from headwater.errors import UsageFault

_RED_HAT = "/etc/pki/tls/certs/ca-bundle.crt"
_MOST_OCTETS = 16 << 20
_CERTIFICATE = re.compile(rb"-----BEGIN [A-Z0-9 ]*CERTIFICATE-----")


class CaBundle(NamedTuple):
    """A file and a folder of certificates; None where there is none (libcurl's own default then holds).

    `octets` is the content of a file, in its place.
    """

    file: str | None
    folder: str | None
    octets: bytes | None = None


def ca_bundle(more: str | None = None) -> CaBundle:
    """The authorities of the environment (`CURL_CA_BUNDLE`, `SSL_CERT_FILE`, `SSL_CERT_DIR`) or of the machine.

    Those of the file `more` are believed beside them. Raises UsageFault when it cannot be read.
    """
    import ssl  # imported here: only https needs it

    paths = ssl.get_default_verify_paths()
    file = os.environ.get("CURL_CA_BUNDLE") or paths.cafile or _RED_HAT
    folder = paths.capath
    known = file if os.path.isfile(file) else None
    return CaBundle(
        known, folder if folder and os.path.isdir(folder) else None, None if more is None else _joined(known, more)
    )


def _joined(known: str | None, more: str) -> bytes:
    try:
        with open(more, "rb") as given:
            octets = given.read(_MOST_OCTETS)
        if not _CERTIFICATE.search(octets):
            raise UsageFault("there is no certificate in PEM form", where=more)
        if known is not None:
            with open(known, "rb") as machine:
                octets += b"\n" + machine.read(_MOST_OCTETS)
    except OSError as cause:
        raise UsageFault(f"the CA certificates cannot be read: {cause.strerror}", where=more) from cause
    return octets
