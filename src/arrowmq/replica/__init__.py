"""Copies of a broker's log on other machines: masters and slaves, ours and Apache's, in any mix.

In: a broker with its role (`broker/role.py`), its store and its positions; connections of slaves at the HA port.
Out: on a master, bytes of the log to each slave, and the position that so many of them have; on a slave, the same log,
byte for byte, with queues and index made from it, and the master's tables.

  protocol      Apache's bytes between master and slave, without sockets
  feed          one slave at the master: its pace, its socket
  feeds         all of them: the HA port, who counts as a member, what senders are promised
  follower      the slave: its connection to the master, received into the mapped log
  master_check  before a slave follows: is its log a part of the master's?
  encrypted     the HA port by TLS, where both sides are brokers of ours
  hello         how a slave proves to an ArrowMQ master who it is
  members       the brokers of the same name, as NameServers know them
  replication   puts these together for one broker, by its role, and answers requests about them
"""
