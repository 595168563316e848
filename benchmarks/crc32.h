/* CRC-32 (IEEE), as RocketMQ takes it of a body: by carry-less multiplication where the processor has it (folding, after
 * Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"), else by eight tables. */
#ifndef ARROWMQ_CRC32_H
#define ARROWMQ_CRC32_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

static uint32_t crc_tables[8][256];

static void crc32_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value & 1 ? value >> 1 ^ 0xEDB88320u : value >> 1;
        crc_tables[0][i] = value;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            crc_tables[t][i] = crc_tables[t - 1][i] >> 8 ^ crc_tables[0][crc_tables[t - 1][i] & 255];
}

/* Takes and gives the running (inverted) value. */
static uint32_t crc32_tables(uint32_t crc, const uint8_t *data, size_t length) {
    while (length >= 8) {
        uint32_t low, high;
        memcpy(&low, data, 4);
        memcpy(&high, data + 4, 4);
        low ^= crc;
        crc = crc_tables[7][low & 255] ^ crc_tables[6][low >> 8 & 255] ^ crc_tables[5][low >> 16 & 255] ^ crc_tables[4][low >> 24]
            ^ crc_tables[3][high & 255] ^ crc_tables[2][high >> 8 & 255] ^ crc_tables[1][high >> 16 & 255] ^ crc_tables[0][high >> 24];
        data += 8;
        length -= 8;
    }
    while (length--) crc = crc >> 8 ^ crc_tables[0][(crc ^ *data++) & 255];
    return crc;
}

#if defined(__x86_64__)
__attribute__((target("pclmul,sse4.1"))) static __m128i crc_fold(__m128i value, __m128i by, __m128i next) {
    __m128i low = _mm_clmulepi64_si128(value, by, 0x00), high = _mm_clmulepi64_si128(value, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* `length` is at least 64 and a multiple of 16. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc32_folding(uint32_t crc, const uint8_t *data, size_t length) {
    const __m128i by4 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by1 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i to64 = _mm_set_epi64x(0, 0x0163cd6124), poly = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low32 = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lane[4];
    for (int i = 0; i < 4; i++) lane[i] = _mm_loadu_si128((const __m128i *)(data + 16 * i));
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    for (data += 64, length -= 64; length >= 64; data += 64, length -= 64)
        for (int i = 0; i < 4; i++) lane[i] = crc_fold(lane[i], by4, _mm_loadu_si128((const __m128i *)(data + 16 * i)));
    __m128i value = lane[0];
    for (int i = 1; i < 4; i++) value = crc_fold(value, by1, lane[i]);
    for (; length >= 16; data += 16, length -= 16) value = crc_fold(value, by1, _mm_loadu_si128((const __m128i *)data));
    value = _mm_xor_si128(_mm_srli_si128(value, 8), _mm_clmulepi64_si128(value, by1, 0x10));
    value = _mm_xor_si128(_mm_srli_si128(value, 4), _mm_clmulepi64_si128(_mm_and_si128(value, low32), to64, 0x00));
    __m128i quotient = _mm_clmulepi64_si128(_mm_and_si128(value, low32), poly, 0x10);
    quotient = _mm_clmulepi64_si128(_mm_and_si128(quotient, low32), poly, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(value, quotient), 1);
}
#endif

static uint32_t crc32_of(const uint8_t *data, size_t length) {
    uint32_t crc = ~0u;
#if defined(__x86_64__)
    if (length >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
        size_t whole = length & ~(size_t)15;
        crc = crc32_folding(crc, data, whole);
        data += whole;
        length -= whole;
    }
#endif
    return ~crc32_tables(crc, data, length);
}
#endif
