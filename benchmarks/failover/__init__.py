"""How long a lost master is missed: a trio of ArrowMQ's brokers, and one of Apache's.

watch      asks NameServer and controller every few milliseconds; reads what servers say in their logs
sends      our Python producer at work
rounds     the master is lost and comes back, so many times
goals      what the figures should be
"""
