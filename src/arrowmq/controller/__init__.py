"""Who is master: Apache's controller protocol, and decisions that last.

In: what brokers ask (an id, to be registered, an election, a changed sync state set) and their heartbeats; what mqadmin
asks. Out: answers, and notices to brokers whose role changed.

    broker_sets    what is decided of a set of brokers with one name; the values that storages keep
    decisions      a request and what is known → an answer and what is to be kept; no I/O, no clock
    election       which of the candidates becomes master
    liveness       who is alive, by heartbeats and connections
    storage        the contract of a place that keeps decisions
    sqlite_storage one controller, its decisions in a file, forced to disk before they are known to anybody
    etcd/          several controllers on one etcd: leadership by lease, each decision one guarded transaction
    decider        takes decisions one after another, keeps them, then answers
    failover       notices masters that are gone, and has others elected
    absences       since when brokers are out of their sync state set
    notices        tells brokers of their roles
    service        the requests, as handlers
    config         Apache's controller settings
    controller     all of it, as a component of a node

Knows nothing of logs and messages: offsets are numbers that brokers report.
"""
