/* SHA-1 (FIPS 180-4) and its HMAC (RFC 2104), for keys whose two first blocks are hashed once and kept.
 *
 * A signature costs the blocks of its content and one more. On x86-64 with the SHA extensions four rounds are one
 * instruction; elsewhere the rounds are written out. Contents come in parts, which are hashed where they lie: only what
 * crosses the end of a block is copied.
 */
#ifndef ARROWMQ_SHA1_BLOCKS_H
#define ARROWMQ_SHA1_BLOCKS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define ARROWMQ_SHA1_HAS_NI 1
#include <cpuid.h>
#include <immintrin.h>
#endif

#define ARROWMQ_SHA1_BLOCK 64
#define ARROWMQ_SHA1_DIGEST 20

typedef struct {
    uint32_t words[5];
} arrowmq_sha1_state;

typedef struct {
    arrowmq_sha1_state inner, outer; /* after the key's block */
} arrowmq_hmac_key;

typedef struct {
    arrowmq_sha1_state state;
    uint64_t length;  /* of all that was hashed, with what waits */
    uint32_t waiting; /* bytes in `block` */
    int wants_ni;
    uint8_t block[ARROWMQ_SHA1_BLOCK];
} arrowmq_sha1;

static int arrowmq_sha1_has_ni = 0;

static void arrowmq_sha1_setup(void) {
#ifdef ARROWMQ_SHA1_HAS_NI
    unsigned int a, b, c, d;
    int has_sse41 = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1) && (c & bit_SSSE3);
    arrowmq_sha1_has_ni = has_sse41 && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
#endif
}

static inline uint32_t arrowmq_sha1_word(const uint8_t *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
}

static inline void arrowmq_sha1_put(uint8_t *at, uint32_t word) {
    at[0] = (uint8_t)(word >> 24);
    at[1] = (uint8_t)(word >> 16);
    at[2] = (uint8_t)(word >> 8);
    at[3] = (uint8_t)word;
}

#define ARROWMQ_SHA1_TURN(word, bits) ((word) << (bits) | (word) >> (32 - (bits)))

static void arrowmq_sha1_blocks_written_out(arrowmq_sha1_state *state, const uint8_t *data, size_t blocks) {
    for (; blocks; blocks--, data += ARROWMQ_SHA1_BLOCK) {
        uint32_t schedule[80];
        uint32_t a = state->words[0], b = state->words[1], c = state->words[2], d = state->words[3], e = state->words[4];
        for (int round = 0; round < 16; round++) schedule[round] = arrowmq_sha1_word(data + 4 * round);
        for (int round = 16; round < 80; round++) {
            uint32_t mixed = schedule[round - 3] ^ schedule[round - 8] ^ schedule[round - 14] ^ schedule[round - 16];
            schedule[round] = ARROWMQ_SHA1_TURN(mixed, 1);
        }
        for (int round = 0; round < 80; round++) {
            uint32_t chosen;
            if (round < 20)
                chosen = (d ^ (b & (c ^ d))) + 0x5A827999u;
            else if (round < 40)
                chosen = (b ^ c ^ d) + 0x6ED9EBA1u;
            else if (round < 60)
                chosen = ((b & c) | (d & (b | c))) + 0x8F1BBCDCu;
            else
                chosen = (b ^ c ^ d) + 0xCA62C1D6u;
            chosen += ARROWMQ_SHA1_TURN(a, 5) + e + schedule[round];
            e = d;
            d = c;
            c = ARROWMQ_SHA1_TURN(b, 30);
            b = a;
            a = chosen;
        }
        state->words[0] += a;
        state->words[1] += b;
        state->words[2] += c;
        state->words[3] += d;
        state->words[4] += e;
    }
}

#ifdef ARROWMQ_SHA1_HAS_NI
/* Four words of the schedule from the sixteen before them, which stand in a ring. */
#define ARROWMQ_SHA1_NEXT(ring, group)                                                                     \
    ring[(group)&3] = _mm_sha1msg2_epu32(                                                                  \
        _mm_xor_si128(_mm_sha1msg1_epu32(ring[(group)&3], ring[((group) + 1) & 3]), ring[((group) + 2) & 3]), \
        ring[((group) + 3) & 3])
/* Rounds 4*group to 4*group+3. `before` is a, b, c, d of four rounds ago, of which the instruction makes e. */
#define ARROWMQ_SHA1_FOUR(group, kind)                                           \
    do {                                                                         \
        if ((group) >= 4) ARROWMQ_SHA1_NEXT(ring, group);                        \
        __m128i with_e = _mm_sha1nexte_epu32(before, ring[(group)&3]);           \
        before = abcd;                                                           \
        abcd = _mm_sha1rnds4_epu32(abcd, with_e, kind);                          \
    } while (0)
#define ARROWMQ_SHA1_TWENTY(first, kind)  \
    ARROWMQ_SHA1_FOUR(first, kind);       \
    ARROWMQ_SHA1_FOUR((first) + 1, kind); \
    ARROWMQ_SHA1_FOUR((first) + 2, kind); \
    ARROWMQ_SHA1_FOUR((first) + 3, kind); \
    ARROWMQ_SHA1_FOUR((first) + 4, kind)

__attribute__((target("sha,sse4.1,ssse3"))) static void arrowmq_sha1_blocks_ni(
    arrowmq_sha1_state *state, const uint8_t *data, size_t blocks) {
    const __m128i big_endian = _mm_set_epi64x(0x0001020304050607LL, 0x08090a0b0c0d0e0fLL);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state->words), 0x1B);
    __m128i e = _mm_set_epi32((int)state->words[4], 0, 0, 0);
    for (; blocks; blocks--, data += ARROWMQ_SHA1_BLOCK) {
        const __m128i abcd_at_first = abcd, e_at_first = e;
        __m128i ring[4], before, with_e;
        for (int part = 0; part < 4; part++)
            ring[part] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(data + 16 * part)), big_endian);
        with_e = _mm_add_epi32(e, ring[0]); /* the first four have e as it is */
        before = abcd;
        abcd = _mm_sha1rnds4_epu32(abcd, with_e, 0);
        ARROWMQ_SHA1_FOUR(1, 0);
        ARROWMQ_SHA1_FOUR(2, 0);
        ARROWMQ_SHA1_FOUR(3, 0);
        ARROWMQ_SHA1_FOUR(4, 0);
        ARROWMQ_SHA1_TWENTY(5, 1);
        ARROWMQ_SHA1_TWENTY(10, 2);
        ARROWMQ_SHA1_TWENTY(15, 3);
        e = _mm_sha1nexte_epu32(before, e_at_first);
        abcd = _mm_add_epi32(abcd, abcd_at_first);
    }
    _mm_storeu_si128((__m128i *)state->words, _mm_shuffle_epi32(abcd, 0x1B));
    state->words[4] = (uint32_t)_mm_extract_epi32(e, 3);
}
#endif

static inline void arrowmq_sha1_blocks(arrowmq_sha1_state *state, const uint8_t *data, size_t blocks, int wants_ni) {
#ifdef ARROWMQ_SHA1_HAS_NI
    if (wants_ni && arrowmq_sha1_has_ni) {
        arrowmq_sha1_blocks_ni(state, data, blocks);
        return;
    }
#endif
    (void)wants_ni;
    arrowmq_sha1_blocks_written_out(state, data, blocks);
}

static inline void arrowmq_sha1_begin(arrowmq_sha1 *hash, int wants_ni) {
    static const arrowmq_sha1_state first = {{0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u}};
    hash->state = first;
    hash->length = 0;
    hash->waiting = 0;
    hash->wants_ni = wants_ni;
}

static inline void arrowmq_sha1_add(arrowmq_sha1 *hash, const uint8_t *data, size_t size) {
    hash->length += size;
    if (hash->waiting) {
        size_t room = ARROWMQ_SHA1_BLOCK - hash->waiting, some = size < room ? size : room;
        memcpy(hash->block + hash->waiting, data, some);
        hash->waiting += (uint32_t)some;
        data += some;
        size -= some;
        if (hash->waiting < ARROWMQ_SHA1_BLOCK) return;
        arrowmq_sha1_blocks(&hash->state, hash->block, 1, hash->wants_ni);
        hash->waiting = 0;
    }
    if (size >= ARROWMQ_SHA1_BLOCK) {
        size_t blocks = size / ARROWMQ_SHA1_BLOCK;
        arrowmq_sha1_blocks(&hash->state, data, blocks, hash->wants_ni);
        data += blocks * ARROWMQ_SHA1_BLOCK;
        size -= blocks * ARROWMQ_SHA1_BLOCK;
    }
    if (size) memcpy(hash->block, data, size);
    hash->waiting = (uint32_t)size;
}

/* Ends with a one bit, zeros, and the length in bits in the last eight bytes of a block. */
static void arrowmq_sha1_end(arrowmq_sha1 *hash, uint8_t *digest) {
    uint64_t bits = hash->length * 8;
    hash->block[hash->waiting++] = 0x80;
    if (hash->waiting > ARROWMQ_SHA1_BLOCK - 8) {
        memset(hash->block + hash->waiting, 0, ARROWMQ_SHA1_BLOCK - hash->waiting);
        arrowmq_sha1_blocks(&hash->state, hash->block, 1, hash->wants_ni);
        hash->waiting = 0;
    }
    memset(hash->block + hash->waiting, 0, ARROWMQ_SHA1_BLOCK - 8 - hash->waiting);
    arrowmq_sha1_put(hash->block + 56, (uint32_t)(bits >> 32));
    arrowmq_sha1_put(hash->block + 60, (uint32_t)bits);
    arrowmq_sha1_blocks(&hash->state, hash->block, 1, hash->wants_ni);
    for (int word = 0; word < 5; word++) arrowmq_sha1_put(digest + 4 * word, hash->state.words[word]);
}

static void arrowmq_hmac_key_of(arrowmq_hmac_key *key, const uint8_t *secret, size_t size) {
    uint8_t padded[ARROWMQ_SHA1_BLOCK] = {0}, block[ARROWMQ_SHA1_BLOCK];
    arrowmq_sha1 hash;
    if (size > ARROWMQ_SHA1_BLOCK) {
        arrowmq_sha1_begin(&hash, 1);
        arrowmq_sha1_add(&hash, secret, size);
        arrowmq_sha1_end(&hash, padded);
    } else if (size) {
        memcpy(padded, secret, size);
    }
    for (int pass = 0; pass < 2; pass++) {
        for (int place = 0; place < ARROWMQ_SHA1_BLOCK; place++) block[place] = padded[place] ^ (pass ? 0x5C : 0x36);
        arrowmq_sha1_begin(&hash, 1);
        arrowmq_sha1_add(&hash, block, ARROWMQ_SHA1_BLOCK);
        *(pass ? &key->outer : &key->inner) = hash.state;
    }
}

static inline void arrowmq_hmac_begin(arrowmq_sha1 *hash, const arrowmq_hmac_key *key, int wants_ni) {
    hash->state = key->inner;
    hash->length = ARROWMQ_SHA1_BLOCK;
    hash->waiting = 0;
    hash->wants_ni = wants_ni;
}

static void arrowmq_hmac_end(arrowmq_sha1 *hash, const arrowmq_hmac_key *key, uint8_t *digest) {
    uint8_t inner[ARROWMQ_SHA1_DIGEST];
    arrowmq_sha1_end(hash, inner);
    hash->state = key->outer;
    hash->length = ARROWMQ_SHA1_BLOCK;
    hash->waiting = 0;
    arrowmq_sha1_add(hash, inner, ARROWMQ_SHA1_DIGEST);
    arrowmq_sha1_end(hash, digest);
}

#endif
