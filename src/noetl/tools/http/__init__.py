"""http: one request, on a warm connection where there is one.

`request` and `auth` turn the fields of a task into what is sent, `addresses` says where nobody may go, `client`
sends it, `answer` makes the result. Only `client` knows the library, and is imported with the first call.
"""

from noetl.tools.http.limits import Limits
from noetl.tools.http.tool import HttpTool

__all__ = ["HttpTool", "Limits"]
