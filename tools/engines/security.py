"""What a secured node has besides: TLS by an authority of its own, and a user who may do everything."""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from pathlib import Path

from tools.engines.certificates import Authority
from tools.engines.unprivileged import hand_over

USER, PASSWORD = "admin", "open sesame: 42%"
_BCRYPT = "04$HeadwaterHeadwaterTeseBwm3h4IBK/oz1meQRj826a1FN02C3.u"
"""Of that password, with the fewest rounds: what it guards lives for the time of a test."""

_FOLDER = "tls"
_NODE_DN = "CN=node"


@dataclass(frozen=True)
class Security:
    """How to get into a secured node, and the settings that make it one; `authority` signs whatever else is wanted."""

    authority: Authority
    settings: dict[str, str]
    user: str = USER
    password: str = PASSWORD

    @property
    def ca(self) -> Path:
        """The certificate to trust."""
        return self.authority.own.certificate

    @property
    def authorization(self) -> str:
        """The header by which the user is known."""
        return "Basic " + base64.b64encode(f"{self.user}:{self.password}".encode()).decode()

    def context(self) -> ssl.SSLContext:
        """TLS that trusts this node's authority alone."""
        return ssl.create_default_context(cafile=self.ca)


def secure(name: str, folder: Path) -> Security:
    """Give the node in `folder` certificates (for localhost and ::1, not for 127.0.0.1) and its user."""
    config = folder / "config"
    authority = Authority(config / _FOLDER)
    authority.issue(("DNS:localhost", "IP:::1"))
    settings = _elasticsearch(config) if name == "elasticsearch" else _opensearch(config)
    hand_over(config)
    return Security(authority, {"http.host": "_local_", **settings})


def _elasticsearch(config: Path) -> dict[str, str]:
    (config / "users").write_text(f"{USER}:$2a${_BCRYPT}\n")
    (config / "users_roles").write_text(f"superuser:{USER}\n")
    tls = "xpack.security.http.ssl"
    return {
        "xpack.security.enabled": "true",
        f"{tls}.enabled": "true",
        f"{tls}.certificate": f"{_FOLDER}/node.pem",
        f"{tls}.key": f"{_FOLDER}/node.key",
    }


def _opensearch(config: Path) -> dict[str, str]:
    meta = "_meta: {type: internalusers, config_version: 2}"
    known = f"{USER}: {{hash: $2y${_BCRYPT}, backend_roles: [admin]}}"
    (config / "opensearch-security" / "internal_users.yml").write_text(f"{meta}\n{known}\n")
    files = {"pemcert": "node.pem", "pemkey": "node.key", "pemtrustedcas": "authority.pem"}
    return {
        "plugins.security.allow_default_init_securityindex": "true",
        "plugins.security.nodes_dn": _NODE_DN,
        "plugins.security.password.hashing.bcrypt.rounds": "4",  # a user costs a second otherwise
        "plugins.security.restapi.roles_enabled": "all_access",
        "plugins.security.ssl.http.enabled": "true",
        "plugins.security.ssl.transport.enforce_hostname_verification": "false",
        **{
            f"plugins.security.ssl.{layer}.{key}_filepath": f"{_FOLDER}/{file}"
            for layer in ("http", "transport")
            for key, file in files.items()
        },
    }
