"""Who is in sync: what the controller said last, and what it was asked for since.

    members     the sync state set as the controller keeps it, with its epoch
    asked       what it was asked to make of it, and may have by now
    needed      everybody in either: only what they all have counts as acknowledged

So a slave that is about to join is waited for from the moment the controller may elect it, and one that is about to
leave until the controller no longer can. One change is under way at a time.
"""

from __future__ import annotations

from collections.abc import Iterable


class SyncStateSet:
    def __init__(self, own_id: int) -> None:
        self.own_id = own_id
        self.members: frozenset[int] = frozenset({own_id})
        self.epoch = 0
        self.asked: frozenset[int] | None = None

    @property
    def needed(self) -> frozenset[int]:
        return self.members if self.asked is None else self.members | self.asked

    @property
    def others(self) -> frozenset[int]:
        return self.needed - {self.own_id}

    def begin(self, members: Iterable[int], epoch: int) -> None:
        """This broker has become master."""
        self.members, self.epoch, self.asked = frozenset(members) | {self.own_id}, epoch, None

    def ask(self, members: Iterable[int]) -> frozenset[int]:
        assert self.asked is None, "one change at a time"
        self.asked = frozenset(members) | {self.own_id}
        return self.asked

    def told(self, members: Iterable[int], epoch: int, *, is_answer: bool) -> bool:
        """What the controller keeps; whether that is news. Unless it is the answer to what was asked, or later than it,
        it may be from before that."""
        if epoch < self.epoch:
            return False
        is_news = epoch > self.epoch
        if is_news:
            self.members, self.epoch = frozenset(members) | {self.own_id}, epoch
        if is_news or is_answer:
            self.asked = None
        return is_news

    def refused(self) -> None:
        """The controller surely did not do what it was asked."""
        self.asked = None
