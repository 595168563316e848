"""The NameServer: which brokers live, and which topics they serve.

In: registrations and heartbeats of brokers, route queries of clients, requests of tools. Out: routes, lists, and
notices to brokers. All is kept in memory and registered anew by the brokers; only the key-value configuration is in a
file.
NameServers know nothing of each other: a broker registers with each of them.
"""
