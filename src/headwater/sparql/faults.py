"""What may be wrong with a SPARQL endpoint."""

from __future__ import annotations

from headwater.errors import StoreFault


class EndpointUnreachable(StoreFault):
    """The SPARQL endpoint does not answer, or breaks off."""

    code = "HW-SPQ-02"


class EndpointRefused(StoreFault):
    """The SPARQL endpoint refuses: it is read-only, wants other credentials, or does not take what it is asked."""

    code = "HW-SPQ-03"


class UpdateTooLarge(EndpointRefused):
    """The SPARQL endpoint, or a proxy before it, takes no request of this size."""

    code = "HW-SPQ-06"
