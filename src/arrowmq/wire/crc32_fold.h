/* CRC-32 (the reflected polynomial 0xEDB88320, as in zlib) at memory speed.
 *
 * x86-64 with PCLMULQDQ: sixteen bytes are one polynomial over GF(2). Multiplying it by x^n mod P moves it n bits along
 * the message, so four of them are folded over 64 bytes at a time, then into one, which Barrett's reduction brings down to 32
 * bits. The constants are x^n mod P, bit-reflected, for the distances that are folded. Elsewhere, and for short or odd
 * ends, eight table look-ups take eight bytes.
 */
#ifndef ARROWMQ_CRC32_FOLD_H
#define ARROWMQ_CRC32_FOLD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define ARROWMQ_CRC32_CLMUL 1
#include <immintrin.h>
#endif

static uint32_t arrowmq_crc32_table[8][256];
static int arrowmq_crc32_has_clmul = 0;

static void arrowmq_crc32_setup(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0);
        arrowmq_crc32_table[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; slice++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t crc = arrowmq_crc32_table[slice - 1][byte];
            arrowmq_crc32_table[slice][byte] = (crc >> 8) ^ arrowmq_crc32_table[0][crc & 0xFF];
        }
#ifdef ARROWMQ_CRC32_CLMUL
    __builtin_cpu_init();
    arrowmq_crc32_has_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

/* Both take and give the CRC inverted, so that pieces can follow each other. */
static uint32_t arrowmq_crc32_slices(uint32_t crc, const unsigned char *data, size_t length) {
    uint32_t(*table)[256] = arrowmq_crc32_table;
    while (length >= 8) {
        uint32_t low = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        low ^= crc;
        crc = table[7][low & 0xFF] ^ table[6][(low >> 8) & 0xFF] ^ table[5][(low >> 16) & 0xFF] ^ table[4][low >> 24] ^
              table[3][data[4]] ^ table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
        data += 8;
        length -= 8;
    }
    while (length--) crc = (crc >> 8) ^ table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#ifdef ARROWMQ_CRC32_CLMUL
#define ARROWMQ_FOLD(lane, by, next)                                                        \
    _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(lane, by, 0x00),                       \
                                _mm_clmulepi64_si128(lane, by, 0x11)), next)
#define ARROWMQ_LOAD(from) _mm_loadu_si128((const __m128i *)(from))

/* `length` is at least 64 and a multiple of 16. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t arrowmq_crc32_folded(uint32_t crc, const unsigned char *data,
                                                                              size_t length) {
    const __m128i by_64_bytes = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16_bytes = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_4_bytes = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lane0 = _mm_xor_si128(ARROWMQ_LOAD(data), _mm_cvtsi32_si128((int)crc));
    __m128i lane1 = ARROWMQ_LOAD(data + 16), lane2 = ARROWMQ_LOAD(data + 32), lane3 = ARROWMQ_LOAD(data + 48);
    for (data += 64, length -= 64; length >= 64; data += 64, length -= 64) {
        lane0 = ARROWMQ_FOLD(lane0, by_64_bytes, ARROWMQ_LOAD(data));
        lane1 = ARROWMQ_FOLD(lane1, by_64_bytes, ARROWMQ_LOAD(data + 16));
        lane2 = ARROWMQ_FOLD(lane2, by_64_bytes, ARROWMQ_LOAD(data + 32));
        lane3 = ARROWMQ_FOLD(lane3, by_64_bytes, ARROWMQ_LOAD(data + 48));
    }
    lane0 = ARROWMQ_FOLD(lane0, by_16_bytes, lane1);
    lane0 = ARROWMQ_FOLD(lane0, by_16_bytes, lane2);
    lane0 = ARROWMQ_FOLD(lane0, by_16_bytes, lane3);
    for (; length >= 16; data += 16, length -= 16) lane0 = ARROWMQ_FOLD(lane0, by_16_bytes, ARROWMQ_LOAD(data));

    /* 128 bits to 64, 64 to 32 */
    lane0 = _mm_xor_si128(_mm_srli_si128(lane0, 8), _mm_clmulepi64_si128(lane0, by_16_bytes, 0x10));
    lane0 = _mm_xor_si128(_mm_srli_si128(lane0, 4),
                          _mm_clmulepi64_si128(_mm_and_si128(lane0, low_words), by_4_bytes, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(lane0, low_words), barrett, 0x10);
    __m128i product = _mm_clmulepi64_si128(_mm_and_si128(quotient, low_words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(lane0, product), 1);
}
#endif

static uint32_t arrowmq_crc32(const unsigned char *data, size_t length, int wants_clmul) {
    uint32_t crc = 0xFFFFFFFFu;
#ifdef ARROWMQ_CRC32_CLMUL
    if (length >= 64 && wants_clmul && arrowmq_crc32_has_clmul) {
        size_t folded = length & ~(size_t)15;
        crc = arrowmq_crc32_folded(crc, data, folded);
        data += folded;
        length -= folded;
    }
#else
    (void)wants_clmul;
#endif
    return ~arrowmq_crc32_slices(crc, data, length);
}

#endif
