"""Where the messages are. `back.py` says what the service needs of a back; there are two.

    cluster.py   brokers that a NameServer knows, ArrowMQ's or Apache's, asked over the network
    local.py     the broker of this process, asked without a second trip; queues of others are forwarded to them

In: requests of RocketMQ's own protocol, as typed headers. Out: their answers; checks of transactions, for the clients.
"""
