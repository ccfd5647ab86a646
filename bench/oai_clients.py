"""Four clients of OAI-PMH as processes: what each has harvested, as titles by identifiers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_SCYTHE = """
import sys
from oaipmh_scythe import Scythe
from oaipmh_scythe.exceptions import NoRecordsMatch
since = {"from_": sys.argv[2]} if sys.argv[2] else {}
with Scythe(sys.argv[1]) as scythe:
    try:
        for one in scythe.list_records(metadata_prefix="oai_dc", **since):
            title = "" if one.deleted else one.metadata["title"][0]
            print(one.header.identifier, title, sep="\\t")
    except NoRecordsMatch:
        pass
"""
_SICKLE = """
import sys, warnings
warnings.simplefilter("ignore")
from sickle import Sickle, oaiexceptions
since = {"from": sys.argv[2]} if sys.argv[2] else {}
try:
    for one in Sickle(sys.argv[1], timeout=600).ListRecords(metadataPrefix="oai_dc", **since):
        print(one.header.identifier, "" if one.deleted else one.metadata["title"][0], sep="\\t")
except oaiexceptions.NoRecordsMatch:
    pass
"""
_PERL = """
use strict; use HTTP::OAI; use HTTP::OAI::Metadata::OAI_DC;
my ($url, $since) = @ARGV;
my $harvester = HTTP::OAI::Harvester->new(baseURL => $url, resume => 1);
die "no Identify" if $harvester->Identify->is_error;
my $answer = $harvester->ListRecords(
    metadataPrefix => "oai_dc", ($since ? (from => $since) : ()),
    handlers => {metadata => "HTTP::OAI::Metadata::OAI_DC"},
    onRecord => sub {
        my $one = shift;
        print $one->identifier, "\\t", ($one->is_deleted ? "" : $one->metadata->dc->{title}->[0]), "\\n";
    });
die $answer->message if $answer->is_error;
"""
_MONTHS = """
import calendar, datetime as dt, re, sys, urllib.parse, urllib.request
url, since = sys.argv[1:]

def get(**query):
    with urllib.request.urlopen(url + "?" + urllib.parse.urlencode(query), timeout=600) as answer:
        return answer.read().decode()

told = since or re.findall("<earliestDatestamp>([^<]*)<", get(verb="Identify"))[0]
day, today = dt.date.fromisoformat(told[:10]), dt.datetime.now(dt.UTC).date()
while day <= today:
    last = min(today, day.replace(day=calendar.monthrange(day.year, day.month)[1]))
    window = {"from": since or f"{day}T00:00:00Z", "until": f"{last}T23:59:59Z"}
    query = {"verb": "ListRecords", "metadataPrefix": "oai_dc", **window}
    while query:
        page = get(**query)
        for one in re.findall("<record[ >].*?</record>", page, re.DOTALL):
            title = re.findall("<dc:title>([^<]*)<", one)
            print(re.findall("<identifier>([^<]*)<", one)[0], title[0] if title else "", sep="\\t")
        token = re.findall("<resumptionToken[^>]*>([^<]+)<", page)
        query = {"verb": "ListRecords", "resumptionToken": token[0]} if token else None
    day, since = last + dt.timedelta(1), ""
"""
_PROGRAMS = {
    "oaipmh-scythe": [sys.executable, "-c", _SCYTHE],
    "Sickle": [sys.executable, "-c", _SICKLE],
    "HTTP::OAI": ["perl", "-e", _PERL],
    "windows of a month": [sys.executable, "-c", _MONTHS],
}


def client_names() -> list[str]:
    """The clients that are installed: HTTP::OAI is a Perl module (Debian libhttp-oai-perl)."""
    probe = subprocess.run(["perl", "-MHTTP::OAI", "-e", "1"], stderr=subprocess.DEVNULL, check=False)
    return [one for one in _PROGRAMS if one != "HTTP::OAI" or probe.returncode == 0]


def start(name: str, url: str, since: str, found: Path) -> subprocess.Popen[bytes]:
    """Have a client write to `found` what it harvests from a base URL, since a time (empty: everything)."""
    with found.open("wb") as out:
        return subprocess.Popen([*_PROGRAMS[name], url, since], stdout=out)


def titles(found: Path) -> dict[str, str]:
    """What a client has written: the last title by identifier, empty for a deleted record."""
    with found.open(encoding="utf-8") as lines:
        pairs = (line.rstrip("\n").partition("\t") for line in lines)
        return {identifier: title for identifier, _, title in pairs}
