"""Clients of the remoting protocol (4.x, 5.x) through the proxy: one address for a whole cluster.

Each connection of a client has connections of its own to the brokers that it uses. So brokers know every client as
they would know it without a proxy: its heartbeats, its subscriptions, its locks, the requests that they send it;
consumers of one group share queues whichever way, and through whichever proxy, they come; and a signature goes on as
it was made.

    server.py         listens, and keeps the link of each client
    requests.py       what clients ask: what is passed on, to which broker, and what is answered here
    broker_names.py   which broker a request names
    link.py           one client, and its connections to brokers
    heartbeats.py     to whom a client is introduced, and when again
    relay.py          what brokers ask clients: transaction checks, changes of a group, resets
    directory.py      which broker is where, which brokers have a topic
    told_address.py   what clients are told to connect to
    message_types.py  whether a topic takes a message of this kind
    users.py          signatures and rights, where the proxy itself checks them

In: frames of clients. Out: the same frames to brokers, and their answers. Nothing is kept that a client would miss.
"""
