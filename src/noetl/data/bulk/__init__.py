"""Bulk replay: the state of every execution as of one moment, folded in parallel.

The fold is the kernel's, the one that the driver, the projectors and `noetl replay` call; what is here brings it the
events of many roots, in order, without holding more than one root's state. No event is shuffled where a lake is read:
its files are bucketed by root and sorted. What tasks do is plain Python: only `job` and `running` know a session.
"""

from noetl.data.bulk.bounds import Bounds
from noetl.data.bulk.fold import fold_root
from noetl.data.bulk.merging import Chunk, Source, merge

__all__ = ["Bounds", "Chunk", "Source", "fold_root", "merge"]
