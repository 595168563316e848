"""Several controllers on one etcd: one leads by a lease, and each decision is one guarded transaction.

In: decisions to keep, with the revision they are based on. Out: whether this controller leads, what the others decided.

    http       requests to one etcd member, by HTTP
    client     the calls that are needed, to whichever member answers; users and passwords
    storage    leadership, peers and decisions as keys of etcd

etcd is spoken to by its JSON gateway, which every member serves at its client port. A client on grpcio would need
grpcio and protobuf at run time and etcd's generated classes in the tree, for half a dozen calls a second at most. What
a decision costs is etcd forcing it to the disks of a majority.
"""
