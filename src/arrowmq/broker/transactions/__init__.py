"""Transactions: half messages, their ends, and the checks of those that nobody ended.

In: half messages and END_TRANSACTION. Out: published messages, op records, questions to producers.
"""
