"""A member of a consumer group: its subscription, the queues it gets and locks, where it begins, how far it is.

In: heartbeats' answers, notices and requests of brokers, offsets that consumers settle.
Out: the queues to pull, each with its beginning, and the offsets committed for them.
"""
