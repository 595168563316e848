"""`arrowmq message` and `arrowmq dead-letters`: find, show, send, resend and explain messages.

In: ids, keys, topics and times. Out: messages shown or sent, and what became of them.
"""
