"""The RocketMQ 5 gRPC front: what clients of the 5.x line connect to, in a broker's process or before a cluster.
Before a cluster, also one address for clients of the remoting protocol.

    messages/   the protocol's values: our `.proto` files and the classes made of them
    http2/      bytes of a connection to streams and back, with the limits that keep one peer from harming others
    grpc/       calls on those streams: methods, metadata, deadlines, statuses; health and reflection
    service/    RocketMQ's MessagingService: what each call means
    remoting/   clients of the remoting protocol, each with connections of its own to the brokers
    backs/      where the messages are: the broker of this process, or the brokers that a NameServer knows

In: connections of gRPC clients. Out: requests to brokers, as values (`backs.back.Back`). A proxy keeps nothing that
another one could not make again: receipt handles and transaction ids carry all that is needed to use them elsewhere.
"""
