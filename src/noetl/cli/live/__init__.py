"""What a run looks like while it runs: a board that events are put on, and lines drawn from it.

The board is kept up with in constant time for each event; drawing happens a few times a second and its cost is
bounded by the height of the terminal. Nothing here decides anything, and nothing here is needed for a run.
"""
