"""Stages at run time: who keeps a data stage, what it writes down, and how slots of any process talk to it.

The keeper is whoever holds the command of a stage. Frames are decided by `data.frame.table`, which does no I/O; here
are the parts that write, wait, listen and report. Nothing in here knows what a frame's body does.
"""
