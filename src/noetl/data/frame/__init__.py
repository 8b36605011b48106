"""Frames: windows of rows that are leased, run, made durable and committed as one."""
