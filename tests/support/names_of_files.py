"""Names of files read forwards and backwards: the path of a URI, and the URI that a path stands for."""

from __future__ import annotations

from urllib.parse import quote, unquote

from headwater.sync.copy.file_names import escaped_path, natural_path


def path_of(uri: str, base: str) -> bytes:
    """The relative path of a normalised URI: the natural one if there is one, else the escaped one."""
    return natural_path(uri, base) or escaped_path(uri)


def uri_of(path: bytes, base: str) -> str:
    """The URI that a path stands for: exactly what was escaped, or a URI whose natural path this is."""
    if path.startswith(b"%uri/http"):
        parts = path.decode("ascii", "replace").split("/")[1:]
        text = "".join([part.removesuffix("~") for part in parts[:-1]] + parts[-1:])
        return "" if text == "%" else unquote(text, errors="surrogatepass")
    return base + quote(path, safe="/-._~!$&'()*+,;=:@")
