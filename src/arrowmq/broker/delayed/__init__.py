"""Messages that wait before they come to their topic: delay levels, timer messages, and their recall.

In: records with a delay or a delivery time. Out: their copies to the real topic when they are due, each once.
"""
