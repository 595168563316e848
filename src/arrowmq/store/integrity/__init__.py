"""Whether the files hold what was written: after a crash, on an operator's word, and while the broker runs.

In: a store directory, of ArrowMQ or Apache; for a repair, records of a replica.
Out: a store whose torn end is cut and whose queues and index agree with its log; findings; records that are back.
"""
