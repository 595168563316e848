"""Pop: messages are handed out one by one for a time, and come back unless they are acknowledged.

In: POP_MESSAGE and what follows it (ACK, BATCH_ACK, CHANGE_MESSAGE_INVISIBLETIME, NOTIFICATION, PEEK, POLLING_INFO).
Out: messages with the receipts by which they are acknowledged; copies in the group's retry topic of what was not.

  service          POP_MESSAGE: which queues are read, and what of them is handed out
  acks             ACK, BATCH_ACK and CHANGE_MESSAGE_INVISIBLETIME
  notification     NOTIFICATION, PEEK_MESSAGE and POLLING_INFO
  checks           who may pop what
  polling          requests that wait for a message
  retry_topics     where a message goes that was not acknowledged in time
  check_points     what is in flight: one check point for each queue that a pop took messages of
  revive_messages  a check point, an ack and a batch of acks as messages of the revive topic
  revive_log       writing them, and reading what another broker, or this one in an earlier life, wrote
  revive           taking back what was not acknowledged in time
  merging          check points that are not written while they may yet be acknowledged as a whole
  order            pop in order: what of a queue is out, and which queues are blocked by that
  offset_replay    offsets of groups that a crash took away, found again in the revive log
  due              what is to happen at a time, in buckets

The truth is in the log: a check point is stored before its messages are handed out, an ack before it is answered. The
table in memory is what the log says, kept ready. It is read again from the log at a start.
"""
