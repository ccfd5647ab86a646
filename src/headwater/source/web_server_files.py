"""What a web server has to be told to show a static tree as its lists say: files for nginx, Apache httpd and Caddy.

They lie in the state folder, which nobody serves, and are written anew when something in them changes. A new set or a
new file changes nothing in them: they have the media types of all names that the program knows, and rules made of a
set's `types`. Only resources of copies whose type is not what their names say have rules of their own.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

from headwater.catalog.interface import Catalog
from headwater.files.media_types import MEDIA_TYPES, MediaTypes, media_type
from headwater.ingest.folder.walk import path_of
from headwater.patches import FORMATS
from headwater.progress import Listener, Notice
from headwater.publish.document_names import CHANNELS, DATASET_FORMS
from headwater.publish.site import Site
from headwater.source.config import SourceConfig
from headwater.storage.durable import replace_file
from headwater.storage.object_store import CannotWrite

_DOCUMENTS: Final = {
    "application/xml": "xml",
    "text/plain": "txt",
    "application/zip": "zip",
    **{kind: name.rpartition(".")[2] for name, kind in DATASET_FORMS["dataset"] if kind != "text/turtle"},
    "text/turtle; charset=utf-8": "ttl",
    **{one.media_type: one.suffix for one in FORMATS.values()},
}
_TOPIC: Final = rf"[^/]+/(?:{'|'.join(re.escape(one.name) for one in CHANNELS)})"
_PLAIN = re.compile(r"[\w./~+=@:, -]*").fullmatch
"""A path that means the same in each of the files, in quotes."""
_TYPE = re.compile(r"[A-Za-z0-9!#&^_.+-]+/[A-Za-z0-9!#&^_.+-]+(?:; ?[A-Za-z0-9_.-]+=[A-Za-z0-9_.+-]+)*").fullmatch
_MOST_RULES: Final = 2_000
_MOST_EXTENSIONS: Final = 200_000
_ROWS: Final = 5_000
_BRIEF: Final = (
    r"/(?:[^/]+/resources/|(?:[^/]+/(?:classic/)?capabilitylist\.xml|sourcedescription/[0-9]+\.xml"
    r"|\.well-known/resourcesync|robots\.txt)(?:\.gz)?$)"
)
_LASTING: Final = r"/[^/]+/(?:(?:patch|resourcedump|changedump)/[0-9]+-[0-9a-f-]+\.|archive/[a-z]+/[0-9])"
_ANY: Final = "(?s:.*/)?"

Paths = tuple[str | bytes, ...]
"""Paths within a set: an expression in pieces, where octets stand for themselves."""
TypeRule = tuple[str, Paths, str]
"""A set, paths in it, and the media type of the resources there."""


def write_web_server_files(config: SourceConfig, site: Site, catalog: Catalog, listener: Listener) -> dict[Path, bool]:
    """Write the files of a static tree that are not there or say something else; which they are, and whether one was
    there. Raises CannotWrite."""
    assert config.to is not None
    path, folder = unquote_to_bytes(site.base_path).decode("utf-8", "replace"), str(Path(config.to).absolute())
    if not _PLAIN(path) or not _PLAIN(folder):
        text = "Headwater writes no files for web servers: such a path needs a configuration by hand"
        listener(Notice("HW-PUB-18", text, folder if _PLAIN(path) else site.base_url))
        return {}
    rules, there = list[TypeRule](), {one.name for one in catalog.sets()}
    for one in config.sets:
        if one.types is not None or one.types_file is not None:
            rules += _types_of_settings(one.name, MediaTypes(one.types or {}, one.types_file))
        elif one.copy is not None and config.place_of(one) is not None and one.name in there:
            rules += _stated_types(one.name, catalog, listener)
    hubs = () if config.notify is None else config.notify.hubs
    links = [f', <{hub.replace("$", "%24")}>; rel="hub"'.replace("'", "%27") for hub in hubs]
    values = {"path": path, "folder": folder, "url": site.base_url, "hubs": "".join(links)}
    written = dict[Path, bool]()
    for name, text_of in (("nginx.conf", _nginx), ("apache.conf", _apache), ("Caddyfile", _caddy)):
        file, octets = Path(config.state) / name, text_of(values, rules).encode()
        try:
            if not (is_there := file.is_file()) or file.read_bytes() != octets:
                replace_file(file, [octets], ".headwater-tmp-")
                written[file] = is_there
        except OSError as cause:
            raise CannotWrite(f"cannot write: {cause.strerror}", where=str(file)) from cause
    return written


# Which resources have another type than their names say


def _types_of_settings(name: str, types: MediaTypes) -> list[TypeRule]:
    """Rules for the patterns of a set's settings, in their order, and then for the suffixes."""
    rules, suffixes = [(_paths_of(pattern), kind) for pattern, kind in types.rules], defaultdict[str, list[str]](list)
    for suffix, kind in types.by_suffix.items():
        suffixes[kind].append(re.escape(suffix))
    rules += [((_ANY, rf"[^/]+\.(?i:{'|'.join(some)})"), kind) for kind, some in suffixes.items()]
    return [(name, paths, kind) for paths, kind in rules if _TYPE(kind)]


def _paths_of(pattern: str) -> Paths:
    """The paths of a pattern (`files.patterns`), by what all three servers know. Octets and characters are one."""
    names = re.sub(r"(?:(?:^|/)\*\*)+$", "/", pattern.lstrip("/"))
    found: list[str | bytes] = [] if "/" in pattern.rstrip("/") else [_ANY]
    for number, piece in enumerate(re.split(r"((?<![^/])\*\*/|\*+|\?|\[!?+.[^\]]*\])", names.rstrip("/"))):
        inner = re.sub(r"[^A-Za-z0-9-]", lambda one: f"\\x{ord(one[0]):02x}", piece[1:-1].removeprefix("!"))
        if number % 2 == 0:
            found.append(piece.encode("utf-8", "surrogateescape"))
        elif piece[0] != "[":
            found.append({"**/": _ANY, "?": "[^/]"}.get(piece, "[^/]*"))
        else:
            found.append(f"[{'^/' if piece[1] == '!' else ''}{inner}]" if piece.isascii() else "[^/]+")
    return (*found, ("/(?s:.+)" if names.rstrip("/") else "(?s:.+)") if names.endswith("/") else "(?s:/.*)?")


def _stated_types(name: str, catalog: Catalog, listener: Listener) -> list[TypeRule]:
    """Rules by which each resource has the type that is stated of it; the first that fits a path holds.

    An extension has the type that most of its resources have. What has another one is named by its path.
    """
    counts: defaultdict[Paths, Counter[str]] = defaultdict(Counter)
    unlike = set[Paths]()
    for uri, stated in _types_of(catalog, name):
        ending = _with_extension(path_of(uri))
        if ending in counts or len(counts) < _MOST_EXTENSIONS:
            counts[ending][stated] += 1
        if media_type(uri) != stated and len(unlike) < _MOST_RULES:
            unlike.add(ending)
    by_ending = {one: counts[one].most_common(1)[0][0] for one in sorted(unlike & counts.keys(), key=repr)}
    by_path, wrong = dict[Paths, str](), 0
    for uri, stated in _types_of(catalog, name) if unlike else ():
        path = path_of(uri)
        if by_ending.get(_with_extension(path), media_type(uri)) == stated:
            continue
        if len(by_ending) + len(by_path) < _MOST_RULES:
            by_path[(path,)] = stated
        else:
            wrong += 1
    if wrong:
        text = f"{wrong:,} resources of {name!r} have other media types than a web server is told to send"
        listener(Notice("HW-PUB-18", text))
    return [(name, paths, kind) for paths, kind in (by_path | by_ending).items()]


def _with_extension(path: bytes) -> Paths:
    """All paths with the extension of this one."""
    stem, dot, extension = path.rpartition(b"/")[2].rpartition(b".")
    return (_ANY, "[^/]+", dot + extension) if stem else (_ANY, r"\.?[^./]*")


def _types_of(catalog: Catalog, name: str) -> Iterator[tuple[str, str]]:
    """The URIs of the resources of a set that state a usable type, with it."""
    after = ""
    while rows := catalog.resources(name, after, _ROWS):
        after = rows[-1].uri
        yield from ((one.uri, kind) for one in rows if (kind := one.metadata.type) is not None and _TYPE(kind))


# The files


def _quoted(name: bytes) -> str:
    """An expression for these octets, of plain characters alone, for PCRE."""
    return re.sub(rb"[^A-Za-z0-9/_]", lambda one: b"\\x%02x" % one[0][0], name).decode()


def _quoted_for_go(name: bytes) -> str:
    """The same for Go, which reads UTF-8."""
    return re.sub(r"[^A-Za-z0-9/_]", lambda one: f"\\x{{{ord(one[0]):x}}}", name.decode("utf-8", "replace"))


_NGINX: Final = r"""
# How long caches keep what they got. nginx then drops headers of an outer `http` block: repeat them in `server`.
set $<cache> "";
if ($uri ~ "^<at>/") { set $<cache> no-cache; }
if ($uri ~ "^<at><brief>") { set $<cache> "public, max-age=60, must-revalidate"; }
if ($uri ~ "^<at><lasting>") { set $<cache> "public, max-age=31536000, immutable"; }
add_header Cache-Control $<cache>;

location ^~ "<path>/" {
    alias "<folder>/";
    charset off; gzip off;  # documents lie compressed beside themselves; resources are sent as they are listed
    gzip_static on; gzip_vary on;
    types {<documents>
    }

    # The state of the command, and files that are not in their place yet.
    location ~ "/\.headwater" { return 404; }

    # A name without an ending.
    location ~ "^<at>/\.well-known/resourcesync$" { types { } default_type application/xml; }
<topics>
    # Files of the sets: a file a.gz beside a file a is another file, and not the same one compressed.<rules>
    location ~ "^<at>/[^/]+/resources/" {
        gzip_static off; gzip_vary off;
        default_type application/octet-stream;
        types_hash_max_size 4096;
        types {<types>
        }
    }
}
"""
_NGINX_TOPIC: Final = r"""
    # The newest notifications, where hubs fetch them.
    location ~ "^<at>/(?<headwater_topic><topic>)$" {
        add_header Cache-Control no-cache;
        add_header Link '<<url>/$headwater_topic>; rel="self"<hubs>';
    }
"""
_APACHE: Final = r"""# Needs mod_alias, mod_headers, mod_mime and mod_rewrite.

<root>
<Directory "<folder>">
    Options None
    AllowOverride None
    Require all granted
</Directory>
<LocationMatch "^<at>/">
    SetHandler default-handler
    AddDefaultCharset Off
    Header set Cache-Control no-cache
</LocationMatch>
<LocationMatch "^<at><brief>">
    Header set Cache-Control "public, max-age=60, must-revalidate"
</LocationMatch>
<LocationMatch "^<at><lasting>">
    Header set Cache-Control "public, max-age=31536000, immutable"
</LocationMatch>

# The state of the command, and files that are not in their place yet.
RedirectMatch 404 "^<at>/(?s:.*/)?\.headwater"

# Documents lie compressed beside themselves; resources are sent as they are listed.
RewriteEngine on
RewriteRule "^<at>/" - [E=no-gzip:1]
RewriteCond "%{HTTP:Accept-Encoding}" "\bgzip\b"
RewriteCond "<folder>/$1.gz" -f
RewriteRule "^<at>/(?![^/]+/resources/)(.+)$" "<path>/$1.gz" [PT,E=headwater_gzip:1]
Header set Content-Encoding gzip env=headwater_gzip
<LocationMatch "^<at>/(?![^/]+/resources/)">
    Header merge Vary Accept-Encoding
    RemoveEncoding .gz
</LocationMatch><documents>
<topics>
# Files of the sets: a file a.gz beside a file a is another file, and not the same one compressed.
<LocationMatch "^<at>/[^/]+/resources/">
    ForceType application/octet-stream
    RemoveEncoding .gz .tgz .Z .bz2 .xz .br .zst
</LocationMatch><types>
"""
_APACHE_TOPIC: Final = r"""
# The newest notifications, where hubs fetch them.
<LocationMatch "^<at>/(?<TOPIC><topic>)(?:\.gz)?$">
    Header set Link '<<url>/%{MATCH_TOPIC}e>; rel="self"<hubs>'
</LocationMatch>
"""
_CADDY: Final = r"""
<root> {
	root * "<folder>"

	# The state of the command, and files that are not in their place yet.
	@headwater_state path_regexp `/\.headwater`
	handle @headwater_state {
		respond 404
	}

	# Files of the sets: a file a.gz beside a file a is another file, and not the same one compressed.
	@headwater_resources path_regexp `^/[^/]+/resources/`
	handle @headwater_resources {
		route {
			header Cache-Control "public, max-age=60, must-revalidate"
			header Content-Type application/octet-stream<types>
			file_server
		}
	}

	# Documents lie compressed beside themselves.
	handle {
		route {
			header Cache-Control no-cache
			@headwater_brief path_regexp `^<brief>`
			header @headwater_brief Cache-Control "public, max-age=60, must-revalidate"
			@headwater_lasting path_regexp `^<lasting>`
			header @headwater_lasting Cache-Control "public, max-age=31536000, immutable"<documents><topics>
			file_server {
				precompressed gzip
			}
		}
	}
}
"""
_CADDY_TOPIC: Final = r"""
			@headwater_topic path_regexp headwater_topic `^/(<topic>)$`
			header @headwater_topic Link `<<url>/{re.headwater_topic.1}>; rel="self"<hubs>`"""


def _filled(how: str, template: str, topics: str, values: Mapping[str, str]) -> str:
    """A template with its values, where <name> stands for one; `how` says where the file is to be included."""
    text = f"# Written by `headwater publish`, and anew when something in it changes. {how}\n{template}"
    values = {"topics": topics if values["hubs"] else "", **values, "topic": _TOPIC}
    values |= {"brief": _BRIEF, "lasting": _LASTING}
    for name, value in values.items():
        text = text.replace(f"<{name}>", value)
    return text


def _stated(rules: Iterable[TypeRule], quoted: Callable[[bytes], str]) -> list[tuple[str, str]]:
    """Expressions of paths in the tree, and their types; the first that fits holds."""
    pieces = (
        (name, [quoted(one) if isinstance(one, bytes) else one for one in paths], kind) for name, paths, kind in rules
    )
    return [(f"/{name}/resources/{''.join(some)}", kind) for name, some, kind in pieces]


_DOCUMENT_PATHS: Final = [(rf"/.+\.{extension}", kind) for kind, extension in _DOCUMENTS.items()]
_DOCUMENT_PATHS.append((r"/\.well-known/resourcesync", "application/xml"))
_RESOURCE_PATHS: Final = [
    (rf"/[^/]+/resources/(?s:.*/)?[^/]+\.(?i:{extensions.replace(' ', '|')})", kind)
    for kind, extensions in MEDIA_TYPES.items()
]


def _nginx(values: Mapping[str, str], rules: Iterable[TypeRule]) -> str:
    at = _quoted(values["path"].encode())
    form = f'\n    location ~ "^{at}%s$" {{ gzip_static off; gzip_vary off; types {{ }} default_type "%s"; }}'
    filled = {
        "at": at,
        "cache": "headwater_cache" + re.sub("[^A-Za-z0-9]", "_", values["path"]),
        "documents": "".join(map('\n        "{0[0]}" {0[1]};'.format, _DOCUMENTS.items())),
        "rules": "".join(map(form.__mod__, _stated(rules, _quoted))),
        "types": "".join(map("\n            {0[0]} {0[1]};".format, MEDIA_TYPES.items())),
    }
    return _filled("Include it in the `server` block of nginx.", _NGINX, _NGINX_TOPIC, {**values, **filled})


def _apache(values: Mapping[str, str], rules: Iterable[TypeRule]) -> str:
    at, path, folder = _quoted(values["path"].encode()), values["path"], values["folder"]
    form = f'\n<LocationMatch "^{at}%s$">\n    ForceType "%s"\n</LocationMatch>'
    filled = {
        "at": at,
        "root": f'Alias "{path}/" "{folder}/"' if path else f'DocumentRoot "{folder}"',
        "documents": "".join(form % (rf"{where}(?:\.gz)?", kind) for where, kind in _DOCUMENT_PATHS),
        "types": "".join(map(form.__mod__, [*_RESOURCE_PATHS, *reversed(_stated(rules, _quoted))])),
        "hubs": values["hubs"].replace("%", "%%"),
    }
    return _filled("Include it in the `<VirtualHost>` of Apache.", _APACHE, _APACHE_TOPIC, {**values, **filled})


def _caddy(values: Mapping[str, str], rules: Iterable[TypeRule]) -> str:
    form = '\n\t\t\t@headwater_{0} path_regexp `^%s$`\n\t\t\theader @headwater_{0} Content-Type "%s"'
    typed = [*_DOCUMENT_PATHS, *_RESOURCE_PATHS, *reversed(_stated(rules, _quoted_for_go))]
    lines = [form.format(number) % row for number, row in enumerate(typed)]
    filled = {
        "root": f'handle_path "{values["path"]}/*"' if values["path"] else "handle",
        "documents": "".join(lines[: len(_DOCUMENT_PATHS)]),
        "types": "".join(lines[len(_DOCUMENT_PATHS) :]),
    }
    return _filled("Import it in the site block of Caddy.", _CADDY, _CADDY_TOPIC, {**values, **filled})
