"""Deploy: how an installation is put up, on this machine or elsewhere.

`local` runs the whole stack as processes of one machine. What is generated for containers is made from the same
settings and the same command lines, so that they cannot drift apart. Nothing here takes part in an execution.
"""
