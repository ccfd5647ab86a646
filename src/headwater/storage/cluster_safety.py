"""Who we are to a search cluster, whom we trust there, and whether a port wants TLS."""

from __future__ import annotations

import socket
import ssl
from base64 import b64encode

from headwater.errors import UsageFault

_PROBE_SECONDS = 5.0


def authorization(user: str | None, password: str, api_key: str | None) -> str | None:
    """The header by which we are known; an API key counts before a user. Raises UsageFault, which tells no secret.

    An API key is what the cluster calls `encoded`, or `id:api_key`.
    """
    if api_key:
        key = api_key.strip()
        if ":" in key:
            key = b64encode(key.encode()).decode()
        if not (key.isascii() and key.isprintable()) or " " in key:
            raise UsageFault(
                "the API key has characters that none has",
                advice="Give the `encoded` value of the cluster's answer, or its `id` and `api_key` as id:api_key.",
            )
        return f"ApiKey {key}"
    if user is None:
        return None
    if ":" in user:
        raise UsageFault("the name of a user has a colon, which no cluster understands", advice="Choose another user.")
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()  # UTF-8, as both engines read it


def trusting(ca: str | None, otherwise: str | None = None) -> ssl.SSLContext:
    """TLS that trusts the authorities of this file; None: the machine's, with those of `otherwise` where it lists none.

    Raises UsageFault when they cannot be read.
    """
    try:
        context = ssl.create_default_context(cafile=ca)
        if ca is None and otherwise is not None and not context.cert_store_stats()["x509_ca"]:
            context.load_verify_locations(otherwise)
    except OSError as cause:
        said = cause.strerror or str(cause)
        advice = "ca= names a file with the certificate of the authority that signed the cluster's, as PEM."
        raise UsageFault(f"no certificate can be read: {said}", where=ca or otherwise, advice=advice) from cause
    return context


def wants_tls(host: str, port: int) -> bool:
    """Whether who listens there begins with TLS: nothing of ours is sent, nothing of theirs believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), _PROBE_SECONDS) as plain, context.wrap_socket(plain):
            return True
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")  # it refuses us, in the words of TLS
    except OSError:
        return False
