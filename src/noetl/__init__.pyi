from noetl.api.failures import ExecutionFailed as ExecutionFailed
from noetl.api.failures import ExecutionTimedOut as ExecutionTimedOut
from noetl.api.failures import PlaybookWarning as PlaybookWarning
from noetl.api.remote import Remote as Remote
from noetl.api.remote import connect as connect
from noetl.api.run import Run as Run
from noetl.api.run import StepResult as StepResult
from noetl.api.session import Session as Session
from noetl.api.session import arun as arun
from noetl.api.session import open_session as open  # noqa: A004 - users write noetl.open
from noetl.api.session import run as run
from noetl.api.state import Proof as Proof
from noetl.api.state import State as State
from noetl.errors import InvalidDocument as InvalidDocument
from noetl.errors import InvalidInput as InvalidInput
from noetl.errors import NoetlError as NoetlError
from noetl.errors import NotFound as NotFound
from noetl.errors import Unavailable as Unavailable
from noetl.playbook.document import Playbook as Playbook
from noetl.tools.registry import tool as tool

__all__ = [
    "ExecutionFailed",
    "ExecutionTimedOut",
    "InvalidDocument",
    "InvalidInput",
    "NoetlError",
    "NotFound",
    "Playbook",
    "PlaybookWarning",
    "Proof",
    "Remote",
    "Run",
    "Session",
    "State",
    "StepResult",
    "Unavailable",
    "__version__",
    "arun",
    "connect",
    "open",
    "run",
    "tool",
]

__version__: str
