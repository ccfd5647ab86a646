"""Fixtures that any test may ask for, and what every test may rely on."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts us in the background ignores Ctrl-C for us and for all that we start; tests send it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.engines"]
