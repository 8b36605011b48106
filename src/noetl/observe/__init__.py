"""What a running server shows of itself: metrics and log lines.

    metrics      the instruments and three verbs; costs next to nothing until somebody installs a recorder
    prometheus   the recorder behind `GET /metrics`
    logs         log records as JSON lines

Every room may call the verbs, so nothing heavy is imported before it is needed, and no label ever holds an id: the
number of series is bounded by what is in the code, not by what users do.
"""
