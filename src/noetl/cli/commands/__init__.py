"""One command a file; each has a `command` that the front door loads when it is called."""
