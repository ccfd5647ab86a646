"""A document read at once into its three parts, as most tests want it."""

from headwater.spec import reader
from headwater.spec.reading.reader_warnings import Warned
from headwater.spec.records import Document, Entry


def read_bytes(data: bytes, base_uri: str | None = None) -> tuple[Document, list[Entry], tuple[Warned, ...]]:
    """The head, the entries, and what had to be forgiven."""
    read = reader.read_bytes(data, base_uri)
    return read.document, read.entries, read.warnings
