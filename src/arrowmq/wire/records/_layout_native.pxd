# What native modules use of a record's bytes: `from arrowmq.wire.records._layout_native cimport find_layout, write_record`.
#
# Nothing here touches Python objects or needs the GIL, and nothing reads or writes past the lengths it is given.

from libc.stdint cimport int32_t, int64_t


cdef struct Layout:
    # One record: where its parts begin, counted from its first byte, all checked to lie inside it.
    Py_ssize_t size
    int32_t magic
    int32_t sys_flag
    Py_ssize_t store_host  # born host is at 48, store timestamp 8 bytes before this
    Py_ssize_t body
    Py_ssize_t body_length
    Py_ssize_t topic
    Py_ssize_t topic_length
    Py_ssize_t properties
    Py_ssize_t properties_length


cdef struct NewRecord:
    # The content of a record to be written. Size, magic, CRC and the IPv6 bits follow from it.
    int32_t queue_id
    int32_t flag
    int64_t queue_offset
    int64_t physical_offset
    int32_t sys_flag
    int64_t born_timestamp
    const unsigned char* born_ip
    Py_ssize_t born_ip_length  # 4 or 16
    int32_t born_port
    int64_t store_timestamp
    const unsigned char* store_ip
    Py_ssize_t store_ip_length
    int32_t store_port
    int32_t reconsume_times
    int64_t prepared_transaction_offset
    const unsigned char* body
    Py_ssize_t body_length
    const unsigned char* topic
    Py_ssize_t topic_length
    const unsigned char* properties
    Py_ssize_t properties_length
    bint with_record_crc  # appends the property `__CRC32#`


# What `write_record` and `record_size` return instead of a size.
cdef enum:
    NO_ROOM = -1
    PROPERTIES_TOO_LONG = -2
    TOPIC_TOO_LONG = -3
    BAD_ADDRESS = -4
    RECORD_TOO_LONG = -5

# The bytes that the properties take when they are written.
cdef Py_ssize_t stored_properties_length(const NewRecord* record) noexcept nogil

# The bytes that `write_record` will take, or one of the negative reasons.
cdef Py_ssize_t record_size(const NewRecord* record) noexcept nogil

# Writes the record into `target`, which has `room` bytes; returns its size, or one of the negative reasons.
cdef Py_ssize_t write_record(unsigned char* target, Py_ssize_t room, const NewRecord* record) noexcept nogil

# Finds the parts of the record at `data`, of which `room` bytes may be read. False if it is no whole record.
cdef bint find_layout(const unsigned char* data, Py_ssize_t room, Layout* at) noexcept nogil

# Whether the CRC of the body, and that of the record if it has one, is right.
cdef bint crc_is_right(const unsigned char* data, const Layout* at) noexcept nogil

# Whether the last of the properties is a checksum of the record.
cdef bint has_crc_property(const unsigned char* properties, Py_ssize_t length) noexcept nogil

# The value of a property (of the last item with that name). False if there is none.
cdef bint find_value(
    const unsigned char* properties, Py_ssize_t length, const unsigned char* name, Py_ssize_t name_length,
    const unsigned char** value, Py_ssize_t* value_length
) noexcept nogil
