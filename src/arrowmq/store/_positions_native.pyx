# cython: language_level=3
"""How far the log has come, in numbers: the native form of `_positions_plain`."""


cdef class Marks:
    def __init__(self, LogTail tail not None):
        self.tail = tail

    cdef int64_t confirmed(self) noexcept:
        cdef int64_t end = self.tail.start + self.tail.position
        if self.needs_flush:
            end = min(end, self.flushed_end)
        if self.needs_replicas:
            end = min(end, self.replicated_end)
        return end

    @property
    def appended_end(self):
        return self.tail.start + self.tail.position

    @property
    def confirmed_end(self):
        """Never behind the end of the log: after a cut the others may not have heard of it yet."""
        return self.confirmed()
