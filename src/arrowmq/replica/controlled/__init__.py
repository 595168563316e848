"""Replication by the word of a controller: roles, epochs, the sync state set.

In: what a controller decides (who is master of which epoch, who is in sync) and what brokers of the same name say at
the HA port, in the bytes of Apache's AutoSwitchHAService. Out: the broker's role, what senders are promised, reports to
the controller.

    epochs         which part of the log was written in which epoch, and the file that keeps it
    identity       the id that the controller gave this broker, and its files
    protocol       the bytes between master and slave, without sockets
    truncation     a log is cut where it went another way than its master's; what is cut is put aside
    sync_state     who is in sync: what the controller said, and what it was asked for
    feeds          the master's side
    follower       the slave's side
    lease          how long a master may go on that does not hear from its controllers
    forwarding     sends to a broker that is master no longer go to the one that is
    controllers    asking the controllers, whichever leads
    heartbeats     telling all of them that this broker lives
    replication    puts these together for one broker
"""
