/* HMAC-SHA1 of up to sixteen contents at once, each in a lane of the AVX-512 registers.
 *
 * One hash waits for itself: a round needs the one before it. Sixteen that have nothing to do with each other take a
 * quarter of the time of the SHA instructions. What comes before a content's body, a request's fields, is gathered up to
 * the end of a block; the body's blocks are hashed where they lie; its rest and the padding are gathered again.
 *
 * Lanes have contents of their own lengths. All that have something left are hashed for as many blocks as the shortest
 * run of them has; the last few, and all of them on other processors, are finished by `sha1_blocks.h`.
 */
#ifndef ARROWMQ_SHA1_LANES_H
#define ARROWMQ_SHA1_LANES_H

#include "arrowmq/auth/sha1_blocks.h"

#define ARROWMQ_LANES 16
#define ARROWMQ_LANES_WORTH 5         /* fewer are hashed sooner one after the other */
#define ARROWMQ_LANE_HEAD_BYTES 1024  /* whole blocks; fields of ordinary requests take a quarter */

enum { ARROWMQ_LANE_HEAD, ARROWMQ_LANE_BODY, ARROWMQ_LANE_TAIL, ARROWMQ_LANE_OUTER, ARROWMQ_LANE_DONE };

typedef struct {
    const arrowmq_hmac_key *key;
    arrowmq_sha1_state state;
    int stage;
    const uint8_t *at; /* the blocks of this stage that are not hashed yet */
    size_t blocks;
    size_t gathered; /* bytes in `head` */
    const uint8_t *body;
    size_t body_blocks, tail_blocks;
    uint8_t digest[ARROWMQ_SHA1_DIGEST];
    uint8_t head[ARROWMQ_LANE_HEAD_BYTES];
    uint8_t tail[2 * ARROWMQ_SHA1_BLOCK];
} arrowmq_hmac_lane;

static int arrowmq_sha1_has_lanes = 0;

static void arrowmq_sha1_lanes_setup(void) {
    arrowmq_sha1_setup();
#ifdef ARROWMQ_SHA1_HAS_NI
    unsigned int a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return;
    /* The system has to save these registers too: those of SSE, AVX and the three parts of AVX-512. */
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 0xE6) != 0xE6) return;
    arrowmq_sha1_has_lanes =
        __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_AVX512F) != 0 && (b & bit_AVX512BW) != 0;
#endif
}

static inline void arrowmq_hmac_lane_begin(arrowmq_hmac_lane *lane, const arrowmq_hmac_key *key) {
    lane->key = key;
    lane->gathered = 0;
}

/* Fields are short, most of them a letter or two: a call of `memcpy` for each costs more than the copying. */
static inline void arrowmq_hmac_lane_copy(uint8_t *target, const uint8_t *data, size_t size) {
    if (size > 16) {
        memcpy(target, data, size);
    } else if (size >= 8) {
        memcpy(target + size - 8, data + size - 8, 8);
        memcpy(target, data, 8);
    } else if (size >= 4) {
        memcpy(target + size - 4, data + size - 4, 4);
        memcpy(target, data, 4);
    } else if (size) {
        target[size >> 1] = data[size >> 1];
        target[size - 1] = data[size - 1];
        target[0] = data[0];
    }
}

/* One more part before the body; 0 if all of them are too long for a lane. */
static inline int arrowmq_hmac_lane_add(arrowmq_hmac_lane *lane, const uint8_t *data, size_t size) {
    if (size > ARROWMQ_LANE_HEAD_BYTES - lane->gathered) return 0;
    arrowmq_hmac_lane_copy(lane->head + lane->gathered, data, size);
    lane->gathered += size;
    return 1;
}

/* Behind `size` bytes of a last block: a one bit, zeros, and the length in bits; how many blocks that makes. */
static inline size_t arrowmq_sha1_pad(uint8_t *block, size_t size, uint64_t length) {
    size_t blocks = size < ARROWMQ_SHA1_BLOCK - 8 ? 1 : 2, end = blocks * ARROWMQ_SHA1_BLOCK;
    memset(block + size, 0, end - 8 - size);
    block[size] = 0x80;
    arrowmq_sha1_put(block + end - 8, (uint32_t)(length >> 29));
    arrowmq_sha1_put(block + end - 4, (uint32_t)(length << 3));
    return blocks;
}

/* The last part. It has to stay where it is until the digest is made. */
static inline void arrowmq_hmac_lane_end(arrowmq_hmac_lane *lane, const uint8_t *body, size_t size) {
    const uint64_t length = ARROWMQ_SHA1_BLOCK + (uint64_t)lane->gathered + size; /* with the key's block */
    size_t fill = -lane->gathered % ARROWMQ_SHA1_BLOCK, rest;
    if (fill > size) fill = size;
    if (fill) memcpy(lane->head + lane->gathered, body, fill); /* fits: the head has whole blocks */
    lane->gathered += fill;
    body += fill;
    size -= fill;
    rest = lane->gathered % ARROWMQ_SHA1_BLOCK; /* only where nothing is left of the body */
    if (rest) memcpy(lane->tail, lane->head + lane->gathered - rest, rest);
    lane->body = body;
    lane->body_blocks = size / ARROWMQ_SHA1_BLOCK;
    if (!rest) {
        rest = size % ARROWMQ_SHA1_BLOCK;
        if (rest) memcpy(lane->tail, body + size - rest, rest);
    }
    lane->tail_blocks = arrowmq_sha1_pad(lane->tail, rest, length);
    lane->state = lane->key->inner;
    lane->stage = ARROWMQ_LANE_HEAD;
    lane->at = lane->head;
    lane->blocks = lane->gathered / ARROWMQ_SHA1_BLOCK;
}

static inline void arrowmq_sha1_put_state(uint8_t *at, const arrowmq_sha1_state *state) {
    for (int word = 0; word < 5; word++) arrowmq_sha1_put(at + 4 * word, state->words[word]);
}

/* Whether there are blocks to be hashed: of this stage, or else of the next that has some. */
static int arrowmq_hmac_lane_goes_on(arrowmq_hmac_lane *lane) {
    while (!lane->blocks) {
        switch (++lane->stage) {
        case ARROWMQ_LANE_BODY:
            lane->at = lane->body;
            lane->blocks = lane->body_blocks;
            break;
        case ARROWMQ_LANE_TAIL:
            lane->at = lane->tail;
            lane->blocks = lane->tail_blocks;
            break;
        case ARROWMQ_LANE_OUTER:
            arrowmq_sha1_put_state(lane->tail, &lane->state);
            lane->state = lane->key->outer;
            lane->at = lane->tail;
            lane->blocks =
                arrowmq_sha1_pad(lane->tail, ARROWMQ_SHA1_DIGEST, ARROWMQ_SHA1_BLOCK + ARROWMQ_SHA1_DIGEST);
            break;
        default:
            arrowmq_sha1_put_state(lane->digest, &lane->state);
            return 0;
        }
    }
    return 1;
}

#ifdef ARROWMQ_SHA1_HAS_NI
#define ARROWMQ_LANES_TARGET __attribute__((target("avx512f,avx512bw")))
#define ARROWMQ_LANES_CHOOSE 0xCA   /* the truth tables of a round's three functions of b, c, d */
#define ARROWMQ_LANES_PARITY 0x96
#define ARROWMQ_LANES_MAJORITY 0xE8

/* The schedule stands in a ring of sixteen. */
#define ARROWMQ_LANES_NEXT(round)                                                                                     \
    ring[(round)&15] = _mm512_rol_epi32(                                                                              \
        _mm512_xor_si512(_mm512_ternarylogic_epi32(ring[((round) + 13) & 15], ring[((round) + 8) & 15],               \
                                                   ring[((round) + 2) & 15], ARROWMQ_LANES_PARITY),                   \
                         ring[(round)&15]),                                                                           \
        1)
#define ARROWMQ_LANES_ROUND(a, b, c, d, e, round, table)                                                              \
    do {                                                                                                              \
        if ((round) >= 16) ARROWMQ_LANES_NEXT(round);                                                                 \
        e = _mm512_add_epi32(_mm512_add_epi32(e, _mm512_add_epi32(ring[(round)&15], constant)),                       \
                             _mm512_ternarylogic_epi32(b, c, d, table));                                              \
        e = _mm512_add_epi32(e, _mm512_rol_epi32(a, 5));                                                              \
        b = _mm512_rol_epi32(b, 30);                                                                                  \
    } while (0)
#define ARROWMQ_LANES_FIVE(first, table)                        \
    ARROWMQ_LANES_ROUND(a, b, c, d, e, (first), table);         \
    ARROWMQ_LANES_ROUND(e, a, b, c, d, (first) + 1, table);     \
    ARROWMQ_LANES_ROUND(d, e, a, b, c, (first) + 2, table);     \
    ARROWMQ_LANES_ROUND(c, d, e, a, b, (first) + 3, table);     \
    ARROWMQ_LANES_ROUND(b, c, d, e, a, (first) + 4, table)
#define ARROWMQ_LANES_TWENTY(first, table, word)      \
    do {                                              \
        const __m512i constant = _mm512_set1_epi32((int)(word)); \
        ARROWMQ_LANES_FIVE(first, table);             \
        ARROWMQ_LANES_FIVE((first) + 5, table);       \
        ARROWMQ_LANES_FIVE((first) + 10, table);      \
        ARROWMQ_LANES_FIVE((first) + 15, table);      \
    } while (0)

/* From a block of each lane to each word of all lanes. */
ARROWMQ_LANES_TARGET static inline void arrowmq_sha1_lanes_transpose(__m512i *rows) {
    __m512i pairs[16], fours[16];
    for (int row = 0; row < 16; row += 2) {
        pairs[row] = _mm512_unpacklo_epi32(rows[row], rows[row + 1]);
        pairs[row + 1] = _mm512_unpackhi_epi32(rows[row], rows[row + 1]);
    }
    for (int row = 0; row < 16; row += 4) { /* word `place` of each quarter, of four lanes */
        fours[row] = _mm512_unpacklo_epi64(pairs[row], pairs[row + 2]);
        fours[row + 1] = _mm512_unpackhi_epi64(pairs[row], pairs[row + 2]);
        fours[row + 2] = _mm512_unpacklo_epi64(pairs[row + 1], pairs[row + 3]);
        fours[row + 3] = _mm512_unpackhi_epi64(pairs[row + 1], pairs[row + 3]);
    }
    for (int place = 0; place < 4; place++) { /* 0x88: the even quarters of both, 0xDD: the odd ones */
        const __m512i low_even = _mm512_shuffle_i32x4(fours[place], fours[place + 4], 0x88);
        const __m512i low_odd = _mm512_shuffle_i32x4(fours[place], fours[place + 4], 0xDD);
        const __m512i high_even = _mm512_shuffle_i32x4(fours[place + 8], fours[place + 12], 0x88);
        const __m512i high_odd = _mm512_shuffle_i32x4(fours[place + 8], fours[place + 12], 0xDD);
        rows[place] = _mm512_shuffle_i32x4(low_even, high_even, 0x88);
        rows[place + 4] = _mm512_shuffle_i32x4(low_odd, high_odd, 0x88);
        rows[place + 8] = _mm512_shuffle_i32x4(low_even, high_even, 0xDD);
        rows[place + 12] = _mm512_shuffle_i32x4(low_odd, high_odd, 0xDD);
    }
}

/* So many blocks of each of these lanes. Those that are not there do again what the first one does: nobody looks. */
ARROWMQ_LANES_TARGET static void arrowmq_sha1_blocks_lanes(arrowmq_hmac_lane **lanes, int count, size_t blocks) {
    const __m512i big_endian = _mm512_broadcast_i32x4(_mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL));
    const uint8_t *data[ARROWMQ_LANES];
    uint32_t words[5][ARROWMQ_LANES];
    __m512i ring[16], a, b, c, d, e;
    for (int lane = 0; lane < ARROWMQ_LANES; lane++) {
        const arrowmq_hmac_lane *from = lanes[lane < count ? lane : 0];
        data[lane] = from->at;
        for (int word = 0; word < 5; word++) words[word][lane] = from->state.words[word];
    }
    a = _mm512_loadu_si512(words[0]);
    b = _mm512_loadu_si512(words[1]);
    c = _mm512_loadu_si512(words[2]);
    d = _mm512_loadu_si512(words[3]);
    e = _mm512_loadu_si512(words[4]);
    for (size_t offset = 0; offset < blocks * ARROWMQ_SHA1_BLOCK; offset += ARROWMQ_SHA1_BLOCK) {
        const __m512i first_a = a, first_b = b, first_c = c, first_d = d, first_e = e;
        for (int lane = 0; lane < ARROWMQ_LANES; lane++)
            ring[lane] = _mm512_shuffle_epi8(_mm512_loadu_si512(data[lane] + offset), big_endian);
        arrowmq_sha1_lanes_transpose(ring);
        ARROWMQ_LANES_TWENTY(0, ARROWMQ_LANES_CHOOSE, 0x5A827999u);
        ARROWMQ_LANES_TWENTY(20, ARROWMQ_LANES_PARITY, 0x6ED9EBA1u);
        ARROWMQ_LANES_TWENTY(40, ARROWMQ_LANES_MAJORITY, 0x8F1BBCDCu);
        ARROWMQ_LANES_TWENTY(60, ARROWMQ_LANES_PARITY, 0xCA62C1D6u);
        a = _mm512_add_epi32(a, first_a);
        b = _mm512_add_epi32(b, first_b);
        c = _mm512_add_epi32(c, first_c);
        d = _mm512_add_epi32(d, first_d);
        e = _mm512_add_epi32(e, first_e);
    }
    _mm512_storeu_si512(words[0], a);
    _mm512_storeu_si512(words[1], b);
    _mm512_storeu_si512(words[2], c);
    _mm512_storeu_si512(words[3], d);
    _mm512_storeu_si512(words[4], e);
    for (int lane = 0; lane < count; lane++)
        for (int word = 0; word < 5; word++) lanes[lane]->state.words[word] = words[word][lane];
}

/* Hashes on while there are enough lanes for it; those that have something left come first in `lanes`, and are counted. */
static int arrowmq_hmac_lanes_together(arrowmq_hmac_lane **lanes, int count) {
    while (count >= ARROWMQ_LANES_WORTH) {
        size_t blocks = lanes[0]->blocks;
        int left = 0;
        for (int lane = 1; lane < count; lane++)
            if (lanes[lane]->blocks < blocks) blocks = lanes[lane]->blocks;
        arrowmq_sha1_blocks_lanes(lanes, count, blocks);
        for (int lane = 0; lane < count; lane++) {
            lanes[lane]->at += blocks * ARROWMQ_SHA1_BLOCK;
            lanes[lane]->blocks -= blocks;
            if (arrowmq_hmac_lane_goes_on(lanes[lane])) lanes[left++] = lanes[lane];
        }
        count = left;
    }
    return count;
}
#endif

/* Makes the digests of up to sixteen lanes that are ended; the list of them is used up. */
static void arrowmq_hmac_lanes(arrowmq_hmac_lane **lanes, int count, int wants_lanes) {
    /* A head may be empty, so that another stage is the first; there is always a tail. */
    for (int lane = 0; lane < count; lane++) arrowmq_hmac_lane_goes_on(lanes[lane]);
#ifdef ARROWMQ_SHA1_HAS_NI
    if (wants_lanes && arrowmq_sha1_has_lanes) count = arrowmq_hmac_lanes_together(lanes, count);
#endif
    (void)wants_lanes;
    for (int lane = 0; lane < count; lane++) {
        while (arrowmq_hmac_lane_goes_on(lanes[lane])) {
            arrowmq_sha1_blocks(&lanes[lane]->state, lanes[lane]->at, lanes[lane]->blocks, 1);
            lanes[lane]->blocks = 0;
        }
    }
}

#endif
