"""Where this machine keeps the certificate authorities it trusts: a libcurl that comes in a wheel cannot know."""

from __future__ import annotations

import os
from typing import NamedTuple

_RED_HAT = "/etc/pki/tls/certs/ca-bundle.crt"


class Authorities(NamedTuple):
    """A file and a folder of certificates; None where there is none (libcurl's own default then holds)."""

    file: str | None
    folder: str | None


def trusted_authorities() -> Authorities:
    """The authorities of the environment (`CURL_CA_BUNDLE`, `SSL_CERT_FILE`, `SSL_CERT_DIR`) or of the machine."""
    import ssl  # imported here: only https needs it

    paths = ssl.get_default_verify_paths()
    file = os.environ.get("CURL_CA_BUNDLE") or paths.cafile or _RED_HAT
    folder = paths.capath
    return Authorities(file if os.path.isfile(file) else None, folder if folder and os.path.isdir(folder) else None)
