"""Adapters: the outside, one folder per technology.

An adapter implements ports and nothing else; adapters never import each other, so a technology is
removed by deleting its folder and one line of wiring.
"""
