"""Secrets: how they are sealed, resolved on first use, and kept out of everything that is written.

Both sides of the wallet meet here: adapters seal and unseal records with it, workers resolve keychain entries
and redact with it. A value enters through a resolver, goes to the tool that asked, and leaves through nothing else.

    types       what a credential of a type consists of, and which of its fields are secret
    keys        key-encryption keys: from a file of the wallet, or from the environment
    envelope    AES-256-GCM with a data key per record
    records     a credential as it is stored
    keychain    the entries of a playbook, resolved on first use
    oauth       tokens from a token endpoint
    google      identity tokens, signed for with the key of a service account
    sources     variables and files that the deployment allows
    cache       what was resolved, by scope, until it expires
    auth        what a task's `auth` means
    tokens      bearer tokens for the template function token()
    logs        the filter of a log handler
    redaction   values out of data, text, errors and log lines
"""
