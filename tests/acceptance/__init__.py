"""The session API as its documentation says it, over every transport."""

import pytest

pytest.register_assert_rewrite(*(f"tests.acceptance.{name}" for name in ("model", "normal", "story", "talks")))
