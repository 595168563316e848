"""Sockets <-> commands: the remoting server, the remoting client, and the connections both are made of.

In: bytes from peers, and commands to send to them. Out: requests, each handed to the handler of its code, and the
answers to our own requests. Knows the frames of `wire` and nothing of topics, stores or groups.
"""
