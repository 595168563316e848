"""Users and rights at a broker: the hook that sees every request, and the requests that administer users and policies.

In: the broker's settings, its file of accounts, the calls of its clients.
Out: refusals (`Refused` with NO_PERMISSION) before a handler runs; signatures on the broker's own requests.
What is allowed is decided in `arrowmq.auth`; here it is put before the handlers of a broker.
"""
