"""What may be wrong with a SPARQL endpoint."""

from __future__ import annotations

from typing import ClassVar

from headwater.errors import StoreFault, UsageFault


class BadEndpoint(UsageFault):
    """The address of a SPARQL endpoint is invalid."""

    code: ClassVar[str] = "HW-SPQ-01"
    advice: ClassVar[str] = "Give the address that accepts SPARQL by POST, like https://HOST/update."


class EndpointUnreachable(StoreFault):
    """The SPARQL endpoint does not answer, or breaks off."""

    code: ClassVar[str] = "HW-SPQ-02"
    advice: ClassVar[str] = "See to the endpoint, then run the same command again: it goes on where it was."


class EndpointRefused(StoreFault):
    """The SPARQL endpoint refuses: it is read-only, wants other credentials, or does not take what it is asked."""

    code: ClassVar[str] = "HW-SPQ-03"
    advice: ClassVar[str] = (
        "Check the addresses for updates and queries, and the credentials; the endpoint's log has the details."
    )


class UpdateTooLarge(EndpointRefused):
    """The SPARQL endpoint, or a proxy before it, takes no request of this size."""

    code: ClassVar[str] = "HW-SPQ-06"
    advice: ClassVar[str] = "Let it take larger requests (nginx before the endpoint: client_max_body_size)."


class UnusableAnswer(StoreFault):
    """What the SPARQL endpoint answers is no answer to what was asked."""

    code: ClassVar[str] = "HW-SPQ-04"
    advice: ClassVar[str] = "Check that the address, or that of --sparql-query, is a SPARQL 1.1 endpoint."


class UpdateNotApplied(StoreFault):
    """The SPARQL endpoint said that an update was done, and does not have what it wrote."""

    code: ClassVar[str] = "HW-SPQ-05"
    advice: ClassVar[str] = (
        "Check that the addresses for updates and for queries are of the same dataset, and that it may be written to;"
        " then run the same command again."
    )
