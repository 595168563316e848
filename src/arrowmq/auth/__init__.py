"""Who may do what: users, policies, signatures, and what each request needs.

In: users and policies as mqadmin and the settings give them; commands with the address they came from.
Out: the user who asked, or `Denied` with Apache's words; one audit line for each refusal and each change.

Decisions stand apart from sockets: `signature` tells who asks, `needs` what a request touches, `policies` whether that
is allowed, `access` puts the three together for a server. `accounts` is the state as values, `account_book` keeps it on
disk. Servers (broker, NameServer, controller, proxy, pages) ask `Access`; nothing here knows them.
"""
