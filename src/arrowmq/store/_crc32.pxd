# CRC-32 in C for the store's native modules: carry-less multiplication where the processor has it, tables elsewhere.
# The folding constants are those of the CRC-32 polynomial, as Intel's paper on the method gives them.

from libc.stdint cimport uint8_t, uint32_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #if defined(__x86_64__) && defined(__GNUC__)
    #include <immintrin.h>
    #define ARROWMQ_CLMUL 1
    #endif

    static uint32_t arrowmq_crc_tables[8][256];
    static int arrowmq_crc_ready = 0;

    static void arrowmq_crc_prepare(void) {
        for (uint32_t n = 0; n < 256; n++) {
            uint32_t c = n;
            for (int k = 0; k < 8; k++) c = (c & 1) ? 0xEDB88320u ^ (c >> 1) : c >> 1;
            arrowmq_crc_tables[0][n] = c;
        }
        for (uint32_t n = 0; n < 256; n++)
            for (int t = 1; t < 8; t++)
                arrowmq_crc_tables[t][n] = arrowmq_crc_tables[0][arrowmq_crc_tables[t - 1][n] & 255]
                                           ^ (arrowmq_crc_tables[t - 1][n] >> 8);
        arrowmq_crc_ready = 1;
    }

    static uint32_t arrowmq_crc_by_tables(uint32_t crc, const uint8_t *at, size_t length) {
    #if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        while (length >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            word ^= crc;
            crc = arrowmq_crc_tables[7][word & 255] ^ arrowmq_crc_tables[6][(word >> 8) & 255]
                ^ arrowmq_crc_tables[5][(word >> 16) & 255] ^ arrowmq_crc_tables[4][(word >> 24) & 255]
                ^ arrowmq_crc_tables[3][(word >> 32) & 255] ^ arrowmq_crc_tables[2][(word >> 40) & 255]
                ^ arrowmq_crc_tables[1][(word >> 48) & 255] ^ arrowmq_crc_tables[0][word >> 56];
            at += 8;
            length -= 8;
        }
    #endif
        while (length--) crc = arrowmq_crc_tables[0][(crc ^ *at++) & 255] ^ (crc >> 8);
        return crc;
    }

    #ifdef ARROWMQ_CLMUL
    #define ARROWMQ_FOLD(x, k, next) \\
        _mm_xor_si128(_mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11)), next)
    #define ARROWMQ_LOAD(p) _mm_loadu_si128((const __m128i *)(p))

    /* length is a multiple of 16 and at least 64 */
    __attribute__((target("pclmul,sse4.1")))
    static uint32_t arrowmq_crc_by_folding(uint32_t crc, const uint8_t *at, size_t length) {
        const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
        const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
        const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
        __m128i a = _mm_xor_si128(ARROWMQ_LOAD(at), _mm_cvtsi32_si128((int)crc));
        __m128i b = ARROWMQ_LOAD(at + 16), c = ARROWMQ_LOAD(at + 32), d = ARROWMQ_LOAD(at + 48), t;
        for (at += 64, length -= 64; length >= 64; at += 64, length -= 64) {
            a = ARROWMQ_FOLD(a, by_64, ARROWMQ_LOAD(at));
            b = ARROWMQ_FOLD(b, by_64, ARROWMQ_LOAD(at + 16));
            c = ARROWMQ_FOLD(c, by_64, ARROWMQ_LOAD(at + 32));
            d = ARROWMQ_FOLD(d, by_64, ARROWMQ_LOAD(at + 48));
        }
        a = ARROWMQ_FOLD(a, by_16, b);
        a = ARROWMQ_FOLD(a, by_16, c);
        a = ARROWMQ_FOLD(a, by_16, d);
        for (; length >= 16; at += 16, length -= 16) a = ARROWMQ_FOLD(a, by_16, ARROWMQ_LOAD(at));
        t = _mm_clmulepi64_si128(a, by_16, 0x10);  /* 128 bits to 96, to 64 */
        a = _mm_xor_si128(_mm_srli_si128(a, 8), t);
        t = _mm_srli_si128(a, 4);
        a = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), _mm_set_epi64x(0, 0x0163cd6124), 0x00);
        a = _mm_xor_si128(a, t);
        const __m128i reduce = _mm_set_epi64x(0x01f7011641, 0x01db710641);  /* Barrett's reduction to 32 */
        t = _mm_clmulepi64_si128(_mm_and_si128(a, low_words), reduce, 0x10);
        t = _mm_clmulepi64_si128(_mm_and_si128(t, low_words), reduce, 0x00);
        return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, t), 1);
    }
    #endif

    static uint32_t arrowmq_crc32(const uint8_t *at, size_t length) {
        uint32_t crc = 0xFFFFFFFFu;
        if (!arrowmq_crc_ready) arrowmq_crc_prepare();
    #ifdef ARROWMQ_CLMUL
        if (length >= 64 && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1")) {
            size_t whole = length & ~(size_t)15;
            crc = arrowmq_crc_by_folding(crc, at, whole);
            at += whole;
            length -= whole;
        }
    #endif
        return ~arrowmq_crc_by_tables(crc, at, length);
    }
    """
    uint32_t arrowmq_crc32(const uint8_t *at, size_t length) nogil
