"""The contract suite lies outside of the tests: let pytest explain its assertions, too."""

import pytest

pytest.register_assert_rewrite("headwater.testing.catalog")
