"""Consume queues: for every message of a queue where its record lies; the table of all; how many are mapped."""
