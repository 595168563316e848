"""The console: a web page to see a cluster, find a message, and repair what is dead. For ArrowMQ and Apache alike.

In: a NameServer's address, and requests of browsers and scripts. Out: pages (`pages`), JSON (`api`), live events
(`live`), and changes to the cluster, each checked at the door (`doors`) and written to the audit log.
It stands on `client.Admin` and `inspect` alone, runs in a process of its own, and keeps nothing but the last hours in
memory and its record of what it sent again (`jobs`).
"""
