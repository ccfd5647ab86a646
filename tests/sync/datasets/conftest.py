"""The fixtures of the folder above."""

from tests.sync.conftest import _no_waiting, dest, source

__all__ = ["_no_waiting", "dest", "source"]
