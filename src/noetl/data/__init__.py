"""The data plane: what moves rows, on Spark.

The one room that knows PySpark. It is imported inside functions only, because a run without a data stage must not
pay for it. The engine never enters here: rows do not pass through it, and this room decides nothing.
"""

__all__: list[str] = []
