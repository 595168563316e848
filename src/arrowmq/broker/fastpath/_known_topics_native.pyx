# cython: language_level=3
"""The topics that a handler may write to: asked for once, kept until a topic changes, with counts by queue. C only."""
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

from arrowmq.wire.in_place._request_native cimport Text


cdef class Topic:
    def __dealloc__(self):
        free(self.written)

    cdef bint is_taken(self) except -1:
        cdef int queue_id
        for queue_id in range(self.queue_count):
            if self.written[queue_id].messages:
                return False
        return True


cdef class KnownTopics:
    def __init__(self, find_topic, kind):
        self.find_topic = find_topic
        self.kind = kind
        self.topics = {}
        self.touched = []

    cdef Topic find(self, Text name):
        cdef Topic topic = self.last
        cdef bytes key
        if topic is not None and len(topic.name) == name.size and memcmp(<const char*>topic.name, name.data, name.size) == 0:
            return topic
        key = PyBytes_FromStringAndSize(<const char*>name.data, name.size)
        topic = self.topics.get(key)
        if topic is None:
            count = self.find_topic(key)
            if not count:
                return None
            topic = self.kind()
            topic.name = key
            topic.text = key.decode()
            topic.written = <Written*>calloc(count, sizeof(Written))
            if topic.written == NULL:
                raise MemoryError()
            topic.queue_count = count
            topic.queues = [None] * count
            self.topics[key] = topic
            self.touched.append(topic)
        self.last = topic
        return topic

    cdef int forget(self) except -1:
        self.topics.clear()
        self.last = None
        return 0

    cdef list take_written(self):
        cdef Topic topic
        cdef int queue_id
        cdef list taken = []
        for topic in self.touched:
            for queue_id in range(topic.queue_count):
                if topic.written[queue_id].messages:
                    taken.append((topic.text, queue_id, topic.written[queue_id].messages, topic.written[queue_id].size))
                    topic.written[queue_id].messages = topic.written[queue_id].size = 0
        return taken

    cdef int drop_forgotten(self) except -1:
        cdef Topic topic
        cdef list kept = []
        for topic in self.touched:
            if not topic.is_taken() or self.topics.get(topic.name) is topic:
                kept.append(topic)
        self.touched = kept
        return 0
