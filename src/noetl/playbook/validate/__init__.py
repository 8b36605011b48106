"""From a tree of nodes to a document, with everything that is wrong with it.

One module a topic. A reader reports what it finds and goes on with something harmless, so that all problems
of a file come out in one go; a document with an error is then thrown away as a whole.
"""
