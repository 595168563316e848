/* A raw load generator of the remoting protocol: many connections, many requests in flight on each, one thread.
 *
 *   loadgen send    HOST PORT TOPIC QUEUES CONNECTIONS INFLIGHT SIZE SECONDS COUNT json|binary BATCH
 *   loadgen pull    HOST PORT TOPIC QUEUES MOST COUNT json|binary
 *   loadgen latency HOST PORT TOPIC RATE SIZE SECONDS
 *
 * `send` ends after SECONDS or COUNT messages, whichever comes first (0: no limit). `pull` reads COUNT messages from the
 * start of each queue, one connection a queue with four pulls under way. `latency` sends at a steady rate and consumes by long polling; a message
 * carries the time it was due, so a late sender counts against the broker as a user would. One line of JSON is printed.
 * With LOADGEN_TOPICS=N in the environment `send` goes to TOPIC-0 … TOPIC-(N-1) in turn, then to the next queue of each.
 * With LOADGEN_RATE=N it sends no more than N messages a second: every half millisecond those that are due, over as many
 * connections as have one to spare. Then two brokers, or one in two states, can be asked for the same. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { INPUT = 8 << 20, OUTPUT = 8 << 20, HEADER = 2048, SAMPLES = 4 << 20 };
enum { SEND = 310, SEND_BATCH = 320, PULL = 11 };

struct connection {
    int fd, queue, writing, spare;
    uint8_t *input, *output;
    size_t held, filled, written;
    int64_t offset;
};

static const char *topic;
static int binary, batch_size = 1, body_size, queues, topics = 1;
static uint32_t opaque = 1000000000u;
static uint64_t sent, answered, failed, unique;
static int64_t samples[SAMPLES];
static size_t sampled;
static uint8_t *body;
static char remark[256];

static void die(const char *what) { perror(what); exit(1); }
static uint32_t big32(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }
static void put32(uint8_t *at, uint32_t value) { for (int i = 0; i < 4; i++) at[i] = value >> (24 - 8 * i); }
static void put16(uint8_t *at, uint32_t value) { at[0] = value >> 8; at[1] = value; }

static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static int64_t epoch_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000ll + time.tv_nsec / 1000000;
}

static struct connection *connect_to(const char *host, int port) {
    struct connection *connection = calloc(1, sizeof *connection);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int yes = 1;
    inet_pton(AF_INET, host, &address.sin_addr);
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    connection->input = malloc(INPUT);
    connection->output = malloc(OUTPUT);
    return connection;
}

/* A header is a list of name/value pairs in either serialization. */
struct header { uint8_t bytes[HEADER]; size_t length; };

static void begin_header(struct header *header, int code) {
    if (binary) {
        put16(header->bytes, code);
        header->bytes[2] = 0;
        put16(header->bytes + 3, 479);
        put32(header->bytes + 5, opaque++);
        put32(header->bytes + 9, 0);
        put32(header->bytes + 13, 0);
        header->length = 21;
    } else {
        header->length = sprintf((char *)header->bytes,
            "{\"code\":%d,\"flag\":0,\"language\":\"JAVA\",\"opaque\":%u,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479,\"extFields\":{", code, opaque++);
    }
}

static void field(struct header *header, const char *name, const char *value) {
    uint8_t *at = header->bytes + header->length;
    size_t names = strlen(name), values = strlen(value);
    if (binary) {
        put16(at, names);
        memcpy(at + 2, name, names);
        put32(at + 2 + names, values);
        memcpy(at + 6 + names, value, values);
        header->length += 6 + names + values;
        return;
    }
    at += sprintf((char *)at, "%s\"%s\":\"", header->bytes[header->length - 1] == '{' ? "" : ",", name);
    for (const char *c = value; *c; c++)
        at += (unsigned char)*c < 32 ? sprintf((char *)at, "\\u%04x", *c) : (*at = *c, 1);
    *at++ = '"';
    header->length = at - header->bytes;
}

static void number(struct header *header, const char *name, long long value) {
    char text[24];
    sprintf(text, "%lld", value);
    field(header, name, text);
}

static size_t end_header(struct header *header) {
    if (binary) put32(header->bytes + 17, header->length - 21);
    else header->length += sprintf((char *)header->bytes + header->length, "}}");
    return header->length;
}

static void frame(struct connection *connection, struct header *header, const uint8_t *data, size_t size) {
    size_t length = end_header(header);
    uint8_t *at = connection->output + connection->filled;
    if (connection->filled + length + size + 8 > OUTPUT) { fprintf(stderr, "the output buffer is too small\n"); exit(1); }
    put32(at, 4 + length + size);
    put32(at + 4, (uint32_t)binary << 24 | length);
    memcpy(at + 8, header->bytes, length);
    memcpy(at + 8 + length, data, size);
    connection->filled += 8 + length + size;
}

static int properties(char *text, int kind) {
    return sprintf(text, "UNIQ_KEY\001C0A80001%08X%016lX\002WAIT\001true%s", getpid(), (unsigned long)unique++, kind ? "" : "\002");
}

static void flush(struct connection *connection) {
    while (connection->written < connection->filled) {
        ssize_t done = write(connection->fd, connection->output + connection->written, connection->filled - connection->written);
        if (done < 0 && errno == EAGAIN) return;
        if (done < 0) die("write");
        connection->written += done;
    }
    connection->written = connection->filled = 0;
}

static void add_send(struct connection *connection, int queue) {
    static uint8_t *packed;
    struct header header;
    char text[160];
    uint8_t *data = body;
    size_t size = body_size;
    begin_header(&header, batch_size > 1 ? SEND_BATCH : SEND);
    field(&header, "a", "loadgen");
    char name[128];
    if (topics > 1) snprintf(name, sizeof name, "%s-%d", topic, (int)(sent / batch_size % topics));
    field(&header, "b", topics > 1 ? name : topic);
    field(&header, "c", "TBW102");
    field(&header, "d", "8");
    number(&header, "e", queue);
    field(&header, "f", "0");
    number(&header, "g", epoch_ms());
    field(&header, "h", "0");
    if (batch_size > 1) {
        if (!packed) packed = malloc((size_t)batch_size * (body_size + 256));
        uint8_t *at = packed;
        for (int i = 0; i < batch_size; i++) {
            int length = properties(text, 1);
            put32(at, 22 + body_size + length);
            put32(at + 4, 0);
            put32(at + 8, 0);
            put32(at + 12, 0);
            put32(at + 16, body_size);
            memcpy(at + 20, body, body_size);
            put16(at + 20 + body_size, length);
            memcpy(at + 22 + body_size, text, length);
            at += 22 + body_size + length;
        }
        data = packed;
        size = at - packed;
        field(&header, "i", "WAIT\001true\002");
    } else {
        properties(text, 0);
        field(&header, "i", text);
    }
    field(&header, "j", "0");
    field(&header, "k", "false");
    field(&header, "m", batch_size > 1 ? "true" : "false");
    frame(connection, &header, data, size);
    sent += batch_size;
}

static void add_pull(struct connection *connection, int most, int wait_ms) {
    struct header header;
    begin_header(&header, PULL);
    field(&header, "consumerGroup", "loadgen_group");
    field(&header, "topic", topic);
    number(&header, "queueId", connection->queue);
    number(&header, "queueOffset", connection->offset);
    number(&header, "maxMsgNums", most);
    number(&header, "sysFlag", wait_ms ? 6 : 4); /* subscription in the request, and wait where nothing is there */
    field(&header, "commitOffset", "0");
    number(&header, "suspendTimeoutMillis", wait_ms);
    field(&header, "subscription", "*");
    field(&header, "subVersion", "0");
    field(&header, "expressionType", "TAG");
    frame(connection, &header, NULL, 0);
}

/* One response: its code, and a number among its fields. */
static int code_of(const uint8_t *response, size_t header) {
    if (response[0] == 1) return (int16_t)(response[4] << 8 | response[5]);
    const uint8_t *found = memmem(response + 4, header, "\"code\":", 7);
    return found ? atoi((const char *)found + 7) : -1;
}

static int64_t field_of(const uint8_t *response, size_t header, const char *name) {
    size_t length = strlen(name);
    const uint8_t *found = memmem(response + 4, header, name, length);
    if (!found) return -1;
    return strtoll((const char *)found + length + (response[0] == 1 ? 4 : 3), NULL, 10);
}

/* Reads what is there; calls `each` for every whole response. */
static void receive(struct connection *connection, void (*each)(struct connection *, const uint8_t *, size_t header, size_t length)) {
    ssize_t got = read(connection->fd, connection->input + connection->held, INPUT - connection->held);
    if (got == 0) { fprintf(stderr, "the server closed the connection\n"); exit(1); }
    if (got < 0 && errno == EAGAIN) return;
    if (got < 0) die("read");
    connection->held += got;
    size_t from = 0;
    while (connection->held - from >= 4) {
        size_t length = big32(connection->input + from);
        if (length + 4 > INPUT) { fprintf(stderr, "a response of %zu bytes\n", length); exit(1); }
        if (connection->held - from < 4 + length) break;
        const uint8_t *response = connection->input + from + 4;
        each(connection, response, big32(response) & 0xFFFFFF, length);
        from += 4 + length;
    }
    memmove(connection->input, connection->input + from, connection->held - from);
    connection->held -= from;
}

static int credit;
static void on_receipt(struct connection *connection, const uint8_t *response, size_t header, size_t length) {
    (void)connection, (void)length;
    if (code_of(response, header) == 0) answered += batch_size;
    else if (failed += batch_size, !remark[0]) snprintf(remark, sizeof remark, "%.*s", (int)(header < 200 ? header : 200), response + 4);
    credit++;
}

static void watch(int poll, struct connection *connection, int operation) {
    connection->writing = connection->written < connection->filled;
    struct epoll_event event = {.events = EPOLLIN | (connection->writing ? EPOLLOUT : 0), .data.ptr = connection};
    epoll_ctl(poll, operation, connection->fd, &event);
}

static void result(const char *name, double seconds) {
    for (char *c = remark; *c; c++) if (*c == '"' || *c == '\\' || (unsigned char)*c < 32) *c = '\'';
    printf("{\"%s\":%lu,\"failed\":%lu,\"seconds\":%.4f,\"rate\":%.1f,\"remark\":\"%s\"}\n", name, (unsigned long)answered, (unsigned long)failed,
        seconds, answered / seconds, remark);
}

/* Sends what is due by now over connections that have an answer to spare, from the one behind the last on. */
static int give_due(struct connection **all, int count, int64_t start, double rate, int *next, int *next_queue, int64_t end) {
    int64_t now = now_ns();
    if (now >= end) return 1;
    int64_t due = (int64_t)((now - start) * 1e-9 * rate) - (int64_t)sent;
    for (int tried = 0; due >= batch_size && tried < count; tried++) {
        struct connection *connection = all[*next];
        *next = (*next + 1) % count;
        if (!connection->spare) continue;
        connection->spare--;
        tried = -1;
        due -= batch_size;
        add_send(connection, (*next_queue)++ / topics % queues);
        flush(connection);
    }
    return 0;
}

/* `send` at a steady rate: an answer makes a connection free for another message, and time makes one due. */
static int run_paced(const char *host, int port, int count, int inflight, double seconds, double rate) {
    int poll = epoll_create1(0), next = 0, next_queue = 0;
    struct epoll_event events[256];
    struct connection **all = calloc(count, sizeof *all);
    for (int i = 0; i < count; i++) {
        all[i] = connect_to(host, port);
        all[i]->spare = inflight;
        watch(poll, all[i], EPOLL_CTL_ADD);
    }
    int64_t start = now_ns(), end = start + (int64_t)(seconds * 1e9), heard = start;
    for (;;) {
        int over = give_due(all, count, start, rate, &next, &next_queue, end);
        if (over && answered + failed >= sent) break;
        if (now_ns() - heard > 10000000000ll) { fprintf(stderr, "no answer for 10 s\n"); return 1; }
        struct timespec tick = {0, 500000};
        int ready = epoll_pwait2(poll, events, 256, &tick, NULL);
        if (ready > 0) heard = now_ns();
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            credit = 0;
            if (events[i].events & EPOLLIN) receive(connection, on_receipt);
            connection->spare += credit;
            flush(connection);
            if (connection->writing != (connection->written < connection->filled)) watch(poll, connection, EPOLL_CTL_MOD);
        }
        if (ready > 0) nanosleep(&tick, NULL); /* what is answered meanwhile is looked at together */
    }
    result("sent", (now_ns() - start) / 1e9);
    return failed > 0 && answered == 0;
}

static int run_send(char **a) {
    const char *host = a[2];
    int port = atoi(a[3]), count = atoi(a[6]), inflight = atoi(a[7]);
    topic = a[4], queues = atoi(a[5]), body_size = atoi(a[8]);
    if (getenv("LOADGEN_TOPICS")) topics = atoi(getenv("LOADGEN_TOPICS"));
    double seconds = atof(a[9]);
    uint64_t limit = strtoull(a[10], NULL, 10);
    binary = !strcmp(a[11], "binary"), batch_size = atoi(a[12]);
    body = malloc(body_size);
    for (int i = 0; i < body_size; i++) body[i] = 'a' + i * 7 % 26;
    if (getenv("LOADGEN_RATE")) return run_paced(host, port, count, inflight, seconds, atof(getenv("LOADGEN_RATE")));
    int poll = epoll_create1(0), next_queue = 0;
    struct epoll_event events[256];
    int64_t start = now_ns(), end = seconds > 0 ? start + (int64_t)(seconds * 1e9) : INT64_MAX;
    for (int i = 0; i < count; i++) {
        struct connection *connection = connect_to(host, port);
        for (int k = 0; k < inflight; k++) add_send(connection, next_queue++ / topics % queues);
        flush(connection);
        watch(poll, connection, EPOLL_CTL_ADD);
    }
    while (answered + failed < sent) {
        int ready = epoll_wait(poll, events, 256, 10000);
        if (ready <= 0) { fprintf(stderr, "no answer for 10 s\n"); return 1; }
        int over = now_ns() >= end;
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            credit = 0;
            if (events[i].events & EPOLLIN) receive(connection, on_receipt);
            while (credit-- > 0 && !over && (!limit || sent < limit)) add_send(connection, next_queue++ / topics % queues);
            flush(connection);
            if (connection->writing != (connection->written < connection->filled)) watch(poll, connection, EPOLL_CTL_MOD);
        }
    }
    result("sent", (now_ns() - start) / 1e9);
    return failed > 0 && answered == 0;
}

static int pull_most, pull_inflight = 4;
static int64_t pull_end;
static int pulling;
/* The next pull of a queue; several are under way on a connection, each for the messages behind the one before. */
static void pull_on(struct connection *connection) {
    if (connection->offset >= pull_end) return;
    add_pull(connection, pull_most, 0);
    connection->offset += pull_most;
    pulling++;
}
static void on_pulled(struct connection *connection, const uint8_t *response, size_t header, size_t length) {
    int code = code_of(response, header);
    const uint8_t *at = response + 4 + header, *end = response + length;
    if (code != 0) { fprintf(stderr, "pull: code %d %.*s\n", code, (int)header, response + 4); exit(1); }
    int count = 0;
    for (; at + 4 <= end; at += big32(at), count++)
        if (big32(at) < 4) { fprintf(stderr, "pull: a record of %u bytes\n", big32(at)); exit(1); }
    if (count != pull_most && field_of(response, header, "nextBeginOffset") < pull_end) {
        fprintf(stderr, "pull: %d messages instead of %d\n", count, pull_most);
        exit(1);
    }
    answered += count, pulling--;
    pull_on(connection);
}

static int run_pull(char **a) {
    topic = a[4], queues = atoi(a[5]), pull_most = atoi(a[6]);
    pull_end = strtoll(a[7], NULL, 10) / queues;
    binary = !strcmp(a[8], "binary");
    int poll = epoll_create1(0);
    struct epoll_event events[256];
    int64_t start = now_ns();
    for (int i = 0; i < queues; i++) {
        struct connection *connection = connect_to(a[2], atoi(a[3]));
        connection->queue = i;
        for (int k = 0; k < pull_inflight; k++) pull_on(connection);
        flush(connection);
        watch(poll, connection, EPOLL_CTL_ADD);
    }
    while (pulling > 0) {
        int ready = epoll_wait(poll, events, 256, 10000);
        if (ready <= 0) { fprintf(stderr, "no answer for 10 s\n"); return 1; }
        for (int i = 0; i < ready; i++) receive(events[i].data.ptr, on_pulled), flush(events[i].data.ptr);
    }
    result("pulled", (now_ns() - start) / 1e9);
    return 0;
}

static int64_t measure_from;
static void on_delivered(struct connection *connection, const uint8_t *response, size_t header, size_t length) {
    const uint8_t *at = response + 4 + header, *end = response + length;
    int64_t now = now_ns(), next = field_of(response, header, "nextBeginOffset");
    if (code_of(response, header) == 0) {
        for (; at + 4 <= end; at += big32(at)) {
            int64_t due;
            memcpy(&due, at + 88, 8); /* the body begins behind 84 fixed bytes (IPv4 hosts) and its length */
            if (due >= measure_from && sampled < SAMPLES) samples[sampled++] = now - due;
            answered++;
        }
    }
    if (next >= 0) connection->offset = next;
    add_pull(connection, 32, 15000);
    flush(connection);
}

static int ascending(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static void on_sent(struct connection *connection, const uint8_t *response, size_t header, size_t length) {
    (void)connection, (void)length;
    if (code_of(response, header) != 0) failed++;
}

static int run_latency(char **a) {
    topic = a[4], queues = 1, body_size = atoi(a[6]);
    double rate = atof(a[5]), seconds = atof(a[7]);
    binary = 1;
    body = calloc(1, body_size);
    struct connection *sender = connect_to(a[2], atoi(a[3])), *receiver = connect_to(a[2], atoi(a[3]));
    int poll = epoll_create1(0);
    struct epoll_event events[8];
    watch(poll, sender, EPOLL_CTL_ADD);
    add_send(sender, 0); /* makes the topic */
    flush(sender);
    if (epoll_wait(poll, events, 8, 10000) <= 0) return fprintf(stderr, "no answer for 10 s\n"), 1;
    receive(sender, on_sent);
    watch(poll, receiver, EPOLL_CTL_ADD);
    add_pull(receiver, 32, 15000);
    flush(receiver);
    int64_t start = now_ns(), step = 1e9 / rate, due = start, stop = start + (int64_t)(seconds * 1e9);
    measure_from = start + (stop - start) / 3; /* the first third warms up */
    while (answered < sent || due < stop) {
        int64_t now = now_ns();
        while (due <= now && due < stop) {
            memcpy(body, &due, 8);
            add_send(sender, 0);
            due += step;
        }
        flush(sender);
        if (now > stop + 30000000000ll) return fprintf(stderr, "%lu of %lu came\n", (unsigned long)answered, (unsigned long)sent), 1;
        struct timespec pause = {0, 0};
        int64_t left = due - now_ns();
        if (due >= stop) left = 10000000;
        if (left > 0) pause.tv_nsec = left < 999999999 ? left : 999999999;
        int ready = epoll_pwait2(poll, events, 8, &pause, NULL);
        for (int i = 0; i < ready; i++) {
            struct connection *connection = events[i].data.ptr;
            receive(connection, connection == sender ? on_sent : on_delivered);
        }
    }
    qsort(samples, sampled, sizeof *samples, ascending);
    double ms = 1e-6;
    printf("{\"messages\":%zu,\"failed\":%lu,\"p50_ms\":%.4f,\"p99_ms\":%.4f,\"p999_ms\":%.4f,\"max_ms\":%.4f}\n", sampled, (unsigned long)failed,
        samples[sampled / 2] * ms, samples[sampled * 99 / 100] * ms, samples[sampled * 999 / 1000] * ms, samples[sampled - 1] * ms);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 13 && !strcmp(arguments[1], "send")) return run_send(arguments);
    if (count == 9 && !strcmp(arguments[1], "pull")) return run_pull(arguments);
    if (count == 8 && !strcmp(arguments[1], "latency")) return run_latency(arguments);
    fprintf(stderr, "see the head of loadgen.c for its arguments\n");
    return 2;
}
