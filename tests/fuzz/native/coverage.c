/* Tells libFuzzer what an input reached in the native modules; preloaded by tools/native-fuzz.
 *
 * gcc calls __sanitizer_cov_trace_pc at every edge of what it instruments, clang's libFuzzer wants an array of counters
 * instead. Here each caller gets a counter of its own when it first calls: a table leads from its address to the counter.
 * The array is as long as libFuzzer may look through after each input without being held up.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdint.h>

#define COUNTERS (1u << 16)
#define SLOTS (4 * COUNTERS) /* a quarter full at most: a caller is found at the first or the second look */
#define EXPORTED __attribute__((visibility("default")))

struct place {
    uintptr_t address;
    uintptr_t flags; /* 1: the entry of a function, which libFuzzer would name by a symbolizer; ours are none */
};

typedef void (*registration)(const void *start, const void *stop);

static uint8_t counters[COUNTERS] __attribute__((aligned(4096)));
static struct place places[COUNTERS]; /* cov: counts them; what their addresses are matters to no one */
static _Atomic(uintptr_t) callers[SLOTS];
static uint32_t counter_of[SLOTS];
static _Atomic(uint32_t) known;

EXPORTED void __sanitizer_cov_trace_pc(void) {
    uintptr_t caller = (uintptr_t)__builtin_return_address(0);
    uint32_t slot = (uint32_t)((caller * 0x9E3779B97F4A7C15u) >> 32) % SLOTS; /* Fibonacci hashing */
    for (;;) {
        uintptr_t found = atomic_load_explicit(&callers[slot], memory_order_acquire);
        if (found == caller) break;
        if (found == 0) {
            /* More callers than counters share the last one: the table never fills. */
            if (atomic_load_explicit(&known, memory_order_relaxed) >= COUNTERS - 1) {
                counters[COUNTERS - 1] = 1;
                return;
            }
            if (atomic_compare_exchange_strong(&callers[slot], &found, caller)) {
                counter_of[slot] = atomic_fetch_add(&known, 1) % COUNTERS;
                break;
            }
            if (found == caller) break;
        }
        slot = (slot + 1) % SLOTS;
    }
    /* A second thread may read a counter of 0 here before the first has written it, or lose a count: no harm. */
    uint8_t *counter = &counters[counter_of[slot]];
    if (*counter != UINT8_MAX) ++*counter;
}

/* libFuzzer has none of these two, and no use for them. */
EXPORTED void __sanitizer_cov_trace_cmpf(float left, float right) { (void)left, (void)right; }
EXPORTED void __sanitizer_cov_trace_cmpd(double left, double right) { (void)left, (void)right; }

/* How many counters libFuzzer knows of; 0 where there is no libFuzzer. Once, before the fuzzing. */
EXPORTED int arrowmq_count_coverage(void) {
    registration of_counters = (registration)dlsym(RTLD_DEFAULT, "__sanitizer_cov_8bit_counters_init");
    registration of_places = (registration)dlsym(RTLD_DEFAULT, "__sanitizer_cov_pcs_init");
    if (!of_counters || !of_places) return 0;
    for (uint32_t number = 0; number < COUNTERS; number++) places[number].address = (uintptr_t)&counters[number];
    of_counters(counters, counters + COUNTERS);
    of_places(places, places + COUNTERS);
    return COUNTERS;
}
