"""Errors that end the reading of a document, each with its rule id and, where known, the line."""

from __future__ import annotations

from headwater.errors import SourceFault


class DocumentFault(SourceFault):
    """A document cannot be read (any further). `line` counts from 1; None where lines mean nothing."""

    code = "HW-DOC-01"

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        line: int | None = None,
        rule: str | None = None,
        advice: str | None = None,
    ):
        super().__init__(what, where=where, rule=rule, advice=advice)
        self.line = line
        self.locate(where)

    def locate(self, where: str | None) -> None:
        """Say which document it is."""
        self.where = where if self.line is None else f"{where or 'document'}, line {self.line}"


class NotXml(DocumentFault):
    """Not well-formed XML, or in an unknown encoding."""

    code = "HW-DOC-02"


class EmptyDocument(NotXml):
    """The document is empty, or has nothing but white space."""

    code = "HW-DOC-03"


class Truncated(NotXml):
    """The document, or its compressed form, is truncated."""

    code = "HW-DOC-04"


class BadCompression(NotXml):
    """A gzip document whose compressed form is damaged."""

    code = "HW-DOC-05"


class DtdRefused(DocumentFault):
    """A document type declaration: no ResourceSync document needs one, and entities are a known attack."""

    code = "HW-DOC-06"


class NotSitemap(DocumentFault):
    """A web page, or XML whose root is neither `urlset` nor `sitemapindex` in the Sitemap namespace (RS-DOC-01)."""

    code = "HW-DOC-07"


class LimitExceeded(DocumentFault):
    """The document is larger, deeper or denser than the limits allow."""

    code = "HW-DOC-08"
