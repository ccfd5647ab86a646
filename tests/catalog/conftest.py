"""The contract suite lies in modules that are no test files: let pytest explain its assertions, too."""

import pytest

pytest.register_assert_rewrite("tests.contract")
