"""The engine: what happens next.

Pure, like the kernel: it reads no clock, draws no number, waits for nothing. It is told what has
happened and what the shell has looked up, and answers with drafts. Templates are evaluated here, once;
what they gave is in the drafts, so that nobody ever has to evaluate them again.
"""
