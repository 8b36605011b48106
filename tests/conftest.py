"""What holds for every suite."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadline: speed is measured in benchmarks, and a busy machine must not fail a test. In CI the same
# examples every time; elsewhere new ones, because that is how the next bug is found.
settings.register_profile("noetl", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("noetl")
