"""Ends with 0 where `serve` or `hub` in this container answers that all is well, else with 1."""

import os
import sys
from urllib.request import urlopen

try:
    with urlopen(os.environ.get("HEALTH_URL", "http://127.0.0.1:8000/health"), timeout=8) as answer:  # noqa: S310 - of its operator
        sys.exit(answer.status != 200)
except OSError as error:
    sys.exit(str(error))
