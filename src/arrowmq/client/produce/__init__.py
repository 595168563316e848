"""Sending: producers, batches, transactions, requests with a reply, and what is in flight to the brokers.

In: a program's messages. Out: receipts, each for a message that a broker has stored, or the error of the last attempt.
"""
