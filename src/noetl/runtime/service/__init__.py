"""Services: what can be asked about executions and done to them, for whoever speaks for somebody else.

A command of the command line acts for the one person who typed it. A server acts for many, of several tenants, at
the same time and for as long as it runs; what it needs for that is here, without a word of HTTP.

    services    one service for each organisation, over one ledger
    service     starting, ending and changing executions
    reading     what can be seen of them; views, pages and following are its parts
    results     what they have left behind
    analysis    what stands out in one
    holding     being the only process that works on one
    freshness   rows that are as new as the log
    shapes      everything that goes in and out
"""

from __future__ import annotations

from noetl.runtime.service.service import Service, Workplace, open_service
from noetl.runtime.service.services import Services, open_services

__all__ = ["Service", "Services", "Workplace", "open_service", "open_services"]
