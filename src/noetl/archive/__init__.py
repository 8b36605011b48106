"""Archive: logs outside of a ledger, in files that other tools can read and that prove themselves."""
