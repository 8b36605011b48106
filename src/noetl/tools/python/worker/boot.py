"""Started by path: `python boot.py CHANNEL SIDE LIFELINE MEMORY [PATH...]`.

The packages above this room are not run, because they import what this interpreter may not have. They are stood in
for while the room is imported, and removed before user code can see them.
"""

from __future__ import annotations

import os
import sys
import types


def _stand_in_for_parents() -> list[str]:
    names = ["noetl.tools.python.worker", "noetl.tools.python", "noetl.tools", "noetl"]
    directory = __file__
    for name in names:
        directory = os.path.dirname(directory)  # noqa: PTH120 - a fifth of the time to start is importing pathlib
        module = types.ModuleType(name)
        module.__path__ = [directory]
        sys.modules[name] = module
    return names


def _main() -> None:
    # The interpreter puts the directory of its program first; there, our modules would hide those of users.
    del sys.path[0]
    parents = _stand_in_for_parents()
    from noetl.tools.python.worker.serve import serve

    for name in parents:
        del sys.modules[name]
    channel, side, lifeline, memory, *path = sys.argv[1:]
    sys.argv[1:] = []
    serve(int(channel), int(side), int(lifeline), int(memory), path)


if __name__ == "__main__":
    _main()
