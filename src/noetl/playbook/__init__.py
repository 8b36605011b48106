"""The language: documents, what is wrong with them, and what they look like.

Pure: text comes in, structs and text go out. Nothing here opens a file, asks the time or runs a template;
whoever has a file brings its text and its name.

`parse` gives every document of a text and all problems in one go; `load` gives one playbook or raises
`InvalidDocument`. `document` has the structs that the engine reads, `codes` every diagnostic,
`builder` a way to write a playbook in Python.
"""

from noetl.playbook.document import Playbook, Subscription
from noetl.playbook.parse import Parsed, load, parse
from noetl.playbook.problems import Problem

__all__ = ["Parsed", "Playbook", "Problem", "Subscription", "load", "parse"]
