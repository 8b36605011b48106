"""`python -m noetl` is the `noetl` command."""

from __future__ import annotations

from noetl.cli import main

if __name__ == "__main__":
    main()
