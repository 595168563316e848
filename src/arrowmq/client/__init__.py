"""What a Python program imports to send and consume: producers, consumers, admin.

In: addresses of NameServers, topics, messages; answers and requests of NameServers and brokers (`remoting`).
Out: receipts, messages, and the requests that make them come.
Every decision that needs no socket (routes, queue choice, division of queues, process queues) is a module of its own.
"""
