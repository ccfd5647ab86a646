"""Request headers: those of the request, `Range`, and credentials for their origin alone."""

from __future__ import annotations

from headwater.sync.network.authentication import FIELD_NAME, Presented, SignInCredentials
from headwater.sync.network.curl_handles import PLAIN_HEADERS
from headwater.sync.network.scheduler import ScheduledFetch, site_of

SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})


class RequestHeaders:
    """Makes the lines of requests for who has these credentials, or none."""

    def __init__(self, credentials: SignInCredentials | None) -> None:
        self._credentials = credentials
        self._trusted = site_of(credentials.origin) if credentials else None

    def are_plain(self, job: ScheduledFetch) -> bool:
        """Whether a request needs no other lines than all do."""
        plain = not job.fetch.headers and job.fetch.body is None
        return plain and job.site != self._trusted and job.part is None

    def lines(self, job: ScheduledFetch) -> list[bytes]:
        """The lines. A header of the fetch that is a secret does not follow a redirect to another origin either.

        Raises ValueError for a header that cannot be sent.
        """
        secret = () if site_of(job.fetch.uri) == job.site else SECRET_HEADERS
        fields = [(name, value) for name, value in job.fetch.headers if name.lower() not in secret]
        fields += job.part.headers() if job.part is not None else ()
        names = {name.lower() for name, _ in fields}
        if not all(map(FIELD_NAME.match, names)) or any(c in value for _, value in fields for c in "\r\n\0"):
            raise ValueError("a header that cannot be sent")
        lines = [f"{name}: {value}".encode("latin-1") for name, value in fields]
        if "accept-encoding" not in names:
            lines.extend(PLAIN_HEADERS)
        if job.fetch.body is not None:
            lines.append(b"Expect:")  # none: libcurl would wait for a "100 Continue" before a long body
        own = self.credentials_for(job)
        return lines if own is None else lines + own.lines(names)

    def credentials_for(self, job: ScheduledFetch) -> SignInCredentials | None:
        """What may be shown to the origin that is asked now."""
        return self._credentials if job.site == self._trusted else None

    def presented(self, job: ScheduledFetch) -> Presented:
        """What the last request said of who asks."""
        if self._credentials is None:
            return Presented.NOTHING
        return self._credentials.presented if job.site == self._trusted else Presented.WITHHELD
