"""The words a template may use. What is not in these lists does not exist."""

from __future__ import annotations

__all__ = ["FILTERS", "FUNCTIONS", "TESTS"]

FUNCTIONS = frozenset({"cycler", "dict", "joiner", "namespace", "now", "range", "token"})

# The filters of Jinja but for attr (Python attributes), random, pprint (Python syntax), and the HTML filters
# striptags, urlize and xmlattr, whose work grows faster than their input.
FILTERS = frozenset(
    """
    abs b64encode batch capitalize center count d default dictsort e encrypt_secret escape filesizeformat first float
    forceescape format groupby indent int items join last length list lower map max min reject rejectattr replace
    reverse round safe select selectattr slice sort string sum title tojson trim truncate unique upper urlencode
    wordcount wordwrap
    """.split()  # noqa: SIM905 - read as a list of words
)

# The tests of Jinja but for callable and escaped.
TESTS = frozenset(
    """
    boolean defined divisibleby eq equalto even false filter float ge greaterthan gt in integer iterable le lessthan
    lower lt mapping ne none number odd sameas sequence string test true undefined upper == != > >= < <=
    """.split()  # noqa: SIM905 - read as a list of words
)
