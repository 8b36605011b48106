"""Stages: what they run over, pinned so that every attempt of a frame has the same rows."""
