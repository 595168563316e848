"""Pops and acks on the fast path: from the bytes of a request to the check point in the log and the answer.

In: POP_MESSAGE, ACK_MESSAGE and BATCH_ACK_MESSAGE of ordinary groups (by tag hash or without a filter, not in order,
no priorities). Out: the answer, with the same records in the revive topic and the same table of check points as the
general path (`broker/pop`) leaves. What is not ordinary goes there: retries, waiting, a first offset, other settings.

  pops.py            what is ordinary for a group, and what the handlers are given
  _lanes_native      one queue as one group pops it; writing check points and acks to the revive topic
  _pop_native        pops
  _ack_native        acks, one or a batch of them
"""
