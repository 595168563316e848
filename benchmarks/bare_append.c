/* The bare limit of appending: each record is copied into the mapped log and its CRC is taken. Nothing else. */
#include "crc32.h"

/* Appends `count` records of `size` bytes, taken in turn from the `many` at `source`, one behind the other; gives the
 * sum of their CRCs, so that none is skipped. */
uint64_t bare_append(uint8_t *target, const uint8_t *source, size_t size, size_t many, size_t count) {
    uint64_t sum = 0;
    crc32_prepare();
    for (size_t number = 0; number < count; number++) {
        const uint8_t *record = source + number % many * size;
        memcpy(target, record, size);
        sum += crc32_of(record, size);
        target += size;
    }
    return sum;
}

uint64_t bare_crc(const uint8_t *data, size_t length) {
    crc32_prepare();
    return crc32_of(data, length);
}
