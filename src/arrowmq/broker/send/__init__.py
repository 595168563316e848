"""The way of a message in: checks in Apache's order, rules of other capabilities, flow control, the answer.

In: send requests of clients and messages of the broker's own making. Out: records for the store, receipts or refusals.
`service.py` is where a send is refused; `message_path.py` lists what other capabilities do to a message on its way.
"""
