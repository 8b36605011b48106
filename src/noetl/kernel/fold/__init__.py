"""What events mean: the fold from a log to a state, and the checksums that two folds compare.

`apply` is the only code that gives an event meaning. The live driver, the projectors, replay and bulk
replay in Spark all call it, which is why their results can be compared at all. It never evaluates a
template, reads a clock or looks anything up: what it needs was recorded when the decision was made.
"""

from noetl.kernel.fold.apply import FOLD_VERSION, apply, keys_of, new_state
from noetl.kernel.fold.parity import Difference, compare
from noetl.kernel.fold.state import ROOT_ID, State
from noetl.kernel.fold.surface import EXECUTION_SURFACES, RowSum, Surface, bundle_of, state_checksum

__all__ = [
    "EXECUTION_SURFACES",
    "FOLD_VERSION",
    "ROOT_ID",
    "Difference",
    "RowSum",
    "State",
    "Surface",
    "apply",
    "bundle_of",
    "compare",
    "keys_of",
    "new_state",
    "state_checksum",
]
