"""Fixtures that any test may ask for, and what every test may rely on."""

import os
import signal

from hypothesis import HealthCheck, settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts us in the background ignores Ctrl-C for us and for all that we start; tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.sharing", "tests.engines", "tests.lateness", "tests.spreading"]

settings.register_profile("on any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("the same each time", settings.get_profile("on any machine"), derandomize=True)
settings.load_profile("the same each time" if os.environ.get("HEADWATER_SAME_EXAMPLES") == "1" else "on any machine")
