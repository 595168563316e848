"""Consume queues: for every message of a queue where its record lies; the table of all; how many are mapped.

In: a topic, a queue and an offset. Out: where the record lies, its size and the hash of its tag.
"""
