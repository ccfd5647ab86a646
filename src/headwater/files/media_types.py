"""The media types of files: by the patterns and suffixes of a set's settings, else by a table of ours.

The system's own tables differ between distributions, and a type that changes with the machine would be published as a
change of every resource. Essence only, lower-case (AMB-09, RS-MD-11); an unknown extension is plain octets.
"""

import os
import re
from collections.abc import Mapping

from headwater.errors import UsageFault
from headwater.files.patterns import first_that_fits, lines_of
from headwater.spec.checks import media_type as essence_of

_is_suffix = re.compile(r"[A-Za-z0-9_+-]+").fullmatch


class MediaTypes:
    """What a set's settings say of media types: by patterns of paths, of which the first that fits counts, and by the
    suffixes and patterns of a file, whose lines have a type and then these, as in /etc/mime.types."""

    def __init__(self, patterns: Mapping[str, str], file: str | None = None) -> None:
        """Raises UsageFault."""
        rules, self.by_suffix = list(patterns.items()), dict[str, str]()
        try:
            for line in [] if file is None else lines_of(file):
                kind, *names = line.partition("#")[0].split()
                self.by_suffix |= dict.fromkeys([one.lower() for one in names if _is_suffix(one)], essence_of(kind))
                rules += [(one, kind) for one in names if not _is_suffix(one)]
            self.rules = [(pattern, essence_of(kind)) for pattern, kind in rules]
            self._first = first_that_fits(pattern for pattern, _kind in rules)
        except (OSError, UsageFault) as cause:
            raise UsageFault(f"types cannot be read: {cause}", code="HW-CFG-01", where=file) from cause

    def given(self, path: bytes) -> str | None:
        """The type of the file at this relative path; None where the settings say nothing of it."""
        text = os.fsdecode(path)
        number = self._first(text)
        return self.by_suffix.get(_suffix_of(text).lower()) if number is None else self.rules[number][1]


UNKNOWN = "application/octet-stream"

MEDIA_TYPES = {
    "application/atom+xml": "atom",
    "application/epub+zip": "epub",
    "application/geo+json": "geojson",
    "application/gzip": "gz tgz",
    "application/java-archive": "jar",
    "application/json": "json map",
    "application/ld+json": "jsonld",
    "application/mets+xml": "mets",
    "application/mods+xml": "mods",
    "application/msword": "doc dot",
    "application/n-quads": "nq",
    "application/n-triples": "nt",
    "application/ndjson": "ndjson jsonl",
    "application/ogg": "ogx",
    "application/pdf": "pdf",
    "application/postscript": "ai eps ps",
    "application/rdf+xml": "rdf owl",
    "application/rtf": "rtf",
    "application/schema+json": "jschema",
    "application/sparql-query": "rq",
    "application/sql": "sql",
    "application/tei+xml": "tei",
    "application/toml": "toml",
    "application/trig": "trig",
    "application/vnd.apache.parquet": "parquet",
    "application/vnd.ms-excel": "xls xlt",
    "application/vnd.ms-powerpoint": "ppt pot pps",
    "application/vnd.oasis.opendocument.presentation": "odp",
    "application/vnd.oasis.opendocument.spreadsheet": "ods",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation": "pptx",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.rar": "rar",
    "application/vnd.sqlite3": "sqlite sqlite3",
    "application/warc": "warc",
    "application/wasm": "wasm",
    "application/x-7z-compressed": "7z",
    "application/x-bibtex": "bib",
    "application/x-bzip2": "bz2",
    "application/x-hdf5": "h5 hdf5",
    "application/x-netcdf": "nc cdf",
    "application/x-sh": "sh",
    "application/x-tar": "tar",
    "application/x-tex": "tex latex",
    "application/x-xz": "xz",
    "application/xhtml+xml": "xhtml xht",
    "application/xml": "xml xsl xsd rng",
    "application/xml-dtd": "dtd",
    "application/xslt+xml": "xslt",
    "application/yaml": "yaml yml",
    "application/zip": "zip",
    "application/zstd": "zst",
    "audio/aac": "aac",
    "audio/flac": "flac",
    "audio/midi": "mid midi",
    "audio/mp4": "m4a",
    "audio/mpeg": "mp3 mp2",
    "audio/ogg": "ogg oga opus",
    "audio/vnd.wave": "wav",
    "audio/x-aiff": "aif aiff",
    "font/otf": "otf",
    "font/ttf": "ttf",
    "font/woff": "woff",
    "font/woff2": "woff2",
    "image/apng": "apng",
    "image/avif": "avif",
    "image/bmp": "bmp",
    "image/gif": "gif",
    "image/heic": "heic",
    "image/jp2": "jp2 j2k",
    "image/jpeg": "jpg jpeg jpe",
    "image/jxl": "jxl",
    "image/png": "png",
    "image/svg+xml": "svg",
    "image/tiff": "tif tiff",
    "image/vnd.adobe.photoshop": "psd",
    "image/vnd.djvu": "djvu djv",
    "image/vnd.microsoft.icon": "ico",
    "image/webp": "webp",
    "message/rfc822": "eml",
    "model/gltf+json": "gltf",
    "model/gltf-binary": "glb",
    "model/obj": "obj",
    "model/stl": "stl",
    "text/calendar": "ics",
    "text/css": "css",
    "text/csv": "csv",
    "text/html": "html htm",
    "text/javascript": "js mjs",
    "text/markdown": "md markdown",
    "text/n3": "n3",
    "text/plain": "txt text log asc c cc cpp h hpp java py pyi rs go rb pl r ini cfg conf diff patch",
    "text/tab-separated-values": "tsv",
    "text/turtle": "ttl",
    "text/vcard": "vcf",
    "text/vtt": "vtt",
    "text/x-rst": "rst",
    "video/mp4": "mp4 m4v",
    "video/mpeg": "mpeg mpg",
    "video/ogg": "ogv",
    "video/quicktime": "mov qt",
    "video/webm": "webm",
    "video/x-matroska": "mkv",
    "video/x-msvideo": "avi",
}

_BY_EXTENSION = {extension: kind for kind, extensions in MEDIA_TYPES.items() for extension in extensions.split()}


def media_type(name: str) -> str:
    """The media type of a file with this name, path or URI; `application/octet-stream` when its extension says nothing.

    Percent-encoding never touches a letter or a digit, so that a relative URI of ours says the same as its path.
    """
    extension = _suffix_of(name)
    return _BY_EXTENSION.get(extension) or _BY_EXTENSION.get(extension.lower(), UNKNOWN)


def _suffix_of(name: str) -> str:
    stem, _dot, extension = name.rpartition(".")
    return "" if not stem or stem.endswith("/") else extension
