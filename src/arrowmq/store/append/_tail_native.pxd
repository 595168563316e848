# The tails as C sees them: another native module can append without a Python object on the way.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t


cdef class LogTail:
    cdef readonly object view
    cdef uint8_t *place
    cdef public int64_t start
    cdef public int64_t position
    cdef public int64_t size
    cdef public int64_t prefaulted  # up to here the segment's pages are in memory; `prefault` brings the next
    cdef public object prefault
    cdef public int64_t last_store_timestamp
    cdef public list dirty_queues


cdef class QueueTail:
    cdef readonly str topic
    cdef readonly bytes topic_bytes
    cdef uint32_t topic_hash  # of the topic and the "#" behind it, where an index key begins
    cdef readonly int32_t queue_id
    cdef public int64_t next_offset
    cdef public int64_t max_physical
    cdef readonly object view
    cdef uint8_t *place
    cdef public int64_t file_start
    cdef public int64_t limit
    cdef public int64_t reserved
    cdef public int64_t last_code
    cdef public bint watched
    cdef public bint dirty
    cdef public object delays_ms
    cdef public object grow


cdef class IndexTail:
    cdef public bint enabled
    cdef public bint next_is_ready
    cdef public object roll
    cdef readonly object view
    cdef uint8_t *place
    cdef public int64_t slots
    cdef public int64_t max_entries
    cdef public int64_t limit
    cdef public int64_t count
    cdef public int64_t used_slots
    cdef public int64_t begin_timestamp
    cdef public int64_t end_timestamp
    cdef public int64_t begin_physical
    cdef public int64_t end_physical


# What a record is made of. Hosts are as they are stored: the address, then the port in four bytes.
cdef struct RecordFields:
    const uint8_t *topic
    int64_t topic_length
    const uint8_t *body
    int64_t body_length
    const uint8_t *properties
    int64_t properties_length
    const uint8_t *born_host
    int64_t born_host_length
    const uint8_t *store_host
    int64_t store_host_length
    # The flag is written last. Beside the queue id, as in the record, both would be read at once, which waits for the write.
    int32_t queue_id
    int32_t sys_flag
    int32_t flag
    int32_t reconsume_times
    int64_t born_timestamp
    int64_t prepared_transaction_offset
    int64_t queue_offset  # these three are filled in by the append
    int64_t physical_offset
    int64_t store_timestamp


# The properties that dispatch looks at; a length of 0 says there is none.
cdef struct Facts:
    const uint8_t *tags
    int64_t tags_length
    const uint8_t *keys
    int64_t keys_length
    const uint8_t *unique
    int64_t unique_length
    const uint8_t *delay
    int64_t delay_length
    int64_t unique_hash  # of the index key that the unique key makes, where it is known already; else -1


# The size of the record that the fields make; negative if they make none.
cdef int64_t record_bytes(const RecordFields *fields, bint with_crc) noexcept nogil
# The same, raising RecordError where they make none.
cdef int64_t checked_bytes(const RecordFields *fields, bint with_crc) except -100
cdef void find_facts(const uint8_t *properties, int64_t length, Facts *facts) noexcept nogil
cdef int64_t count_index_keys(const Facts *facts) noexcept nogil
# Says which index slot will be touched, while there is other work to do until it comes into the processor's cache.
cdef void prefetch_key(QueueTail queue, IndexTail index, Facts *facts) noexcept
cdef bint index_has_room(IndexTail index, int64_t index_keys) noexcept
cdef int64_t code_of(QueueTail queue, const Facts *facts, int64_t store_timestamp) except? -9223372036854775807
# Writes record, queue entry and index entries; the record's size, or which room is missing (then nothing was written).
cdef int64_t append_fields(LogTail log, QueueTail queue, IndexTail index, RecordFields *fields, bint with_crc) except -100
# The second half of it, for who has found out the size and the index keys, and that the room is there.
cdef int64_t append_known(
    LogTail log, QueueTail queue, IndexTail index, RecordFields *fields, const Facts *facts, int64_t size, int64_t index_keys,
    bint with_crc,
) except -100
cdef int write_entry(LogTail log, QueueTail queue, int64_t physical, int64_t size, int64_t code) except -1
cdef void write_header(IndexTail index) noexcept
cdef int write_keys(QueueTail queue, IndexTail index, const Facts *facts, int64_t physical, int64_t time) except -1
