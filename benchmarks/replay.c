/* Sends frames that were made beforehand, over and over, plain or by TLS: many connections, one thread.
 *
 *   replay HOST PORT SECONDS plain|tls FILE
 *
 * FILE, big endian:  connections (4), and for each of them
 *                    parts (4), frames in a part (4), messages of a part (4), least bytes of an answer (4),
 *                    and for each part its length (4) and its bytes
 *
 * A connection sends a part when all frames of the one before are answered. Every answer must be a success, or "busy",
 * which counts for nothing: Apache's broker has its moments while it warms up. Of an answer its head is looked at, and
 * what is behind is only received, so that the client costs the same whatever it asks. One line of JSON is printed. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { INPUT = 1 << 18, HEAD = 64 };

struct part { uint32_t length; const uint8_t *bytes; };

struct connection {
    int fd, has_ended;
    SSL *ssl;
    struct part *parts;
    uint32_t part_count, frames, messages, least;
    uint32_t part, waiting, busy, written;
    uint8_t head[HEAD];
    uint32_t head_filled;
    uint64_t rest;
};

static uint64_t answered, busy_total, received;
static int open_connections;
static int64_t end_ns;

static void die(const char *what) {
    if (errno) perror(what); else fprintf(stderr, "%s\n", what);
    ERR_print_errors_fp(stderr);
    exit(1);
}
static uint32_t big32(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }
static int64_t now_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void dial(struct connection *connection, const char *host, int port, SSL_CTX *context) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int yes = 1;
    inet_pton(AF_INET, host, &address.sin_addr);
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connection->fd, (struct sockaddr *)&address, sizeof address)) die("connect");
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (context) {
        connection->ssl = SSL_new(context);
        SSL_set_fd(connection->ssl, connection->fd);
        errno = 0;
        if (SSL_connect(connection->ssl) != 1) die("the TLS hand-shake failed");
    }
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
}

/* Bytes, 0 at the end, -1 if it would block. */
static ssize_t receive(struct connection *connection, uint8_t *into, size_t most) {
    ssize_t count;
    if (!connection->ssl) {
        count = read(connection->fd, into, most);
        if (count < 0 && errno == EAGAIN) return -1;
        if (count < 0) die("read");
        return count;
    }
    count = SSL_read(connection->ssl, into, most);
    if (count > 0) return count;
    int why = SSL_get_error(connection->ssl, count);
    if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return -1;
    return 0;
}

static void send_on(struct connection *connection) {
    struct part *part = &connection->parts[connection->part % connection->part_count];
    while (connection->written < part->length) {
        const uint8_t *from = part->bytes + connection->written;
        ssize_t count;
        if (connection->ssl) {
            count = SSL_write(connection->ssl, from, part->length - connection->written);
            if (count <= 0) {
                int why = SSL_get_error(connection->ssl, count);
                if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE) return;
                die("SSL_write");
            }
        } else {
            count = write(connection->fd, from, part->length - connection->written);
            if (count < 0 && errno == EAGAIN) return;
            if (count < 0) die("write");
        }
        connection->written += count;
    }
}

static void next_part(struct connection *connection) {
    connection->part++;
    connection->written = 0;
    connection->waiting = connection->frames;
    send_on(connection);
}

static void frame_answered(struct connection *connection) {
    if (--connection->waiting) return;
    answered += (uint64_t)connection->messages * (connection->frames - connection->busy) / connection->frames;
    busy_total += connection->busy;
    connection->busy = 0;
    if (now_ns() < end_ns) {
        next_part(connection);
    } else {
        connection->has_ended = 1;
        open_connections--;
        close(connection->fd);
    }
}

static void look(struct connection *connection) {
    const uint8_t *head = connection->head;
    uint32_t length = 4 + big32(head);
    if (memmem(head, HEAD, "\"code\":2,", 9) && memmem(head, HEAD, "JAVA", 4)) {
        connection->busy++;
    } else if (!memmem(head, HEAD, "\"code\":0,", 9) || length < connection->least) {
        fprintf(stderr, "refused: %u bytes, %.*s\n", length, HEAD - 8, head + 8);
        exit(1);
    }
    connection->rest = length - HEAD;
    connection->head_filled = 0;
}

static void take(struct connection *connection) {
    static uint8_t input[INPUT];
    while (!connection->has_ended) {
        ssize_t count = receive(connection, input, sizeof input);
        if (count < 0) return;
        if (count == 0) { errno = 0; die("the broker hung up"); }
        received += count;
        uint8_t *at = input, *end = input + count;
        while (at < end && !connection->has_ended) {
            if (connection->rest) {
                uint64_t some = (uint64_t)(end - at) < connection->rest ? (uint64_t)(end - at) : connection->rest;
                connection->rest -= some;
                at += some;
            } else {
                uint32_t wanted = HEAD - connection->head_filled;
                uint32_t some = end - at < wanted ? end - at : wanted;
                memcpy(connection->head + connection->head_filled, at, some);
                connection->head_filled += some;
                at += some;
                if (connection->head_filled < HEAD) break;
                look(connection);
            }
            if (!connection->rest) frame_answered(connection);
        }
    }
}

static uint8_t *whole(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    uint8_t *data = malloc(size);
    if (fread(data, 1, size, file) != (size_t)size) die(path);
    fclose(file);
    return data;
}

int main(int count, char **words) {
    if (count != 6) { fprintf(stderr, "replay HOST PORT SECONDS plain|tls FILE\n"); return 2; }
    SSL_CTX *context = NULL;
    if (!strcmp(words[4], "tls")) {
        context = SSL_CTX_new(TLS_client_method());
        SSL_CTX_set_verify(context, SSL_VERIFY_NONE, NULL);
        SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        SSL_CTX_set_read_ahead(context, 1);
    }
    const uint8_t *at = whole(words[5]);
    uint32_t connections = big32(at);
    at += 4;
    struct connection *all = calloc(connections, sizeof *all);
    for (uint32_t i = 0; i < connections; i++) {
        struct connection *one = &all[i];
        one->part_count = big32(at), one->frames = big32(at + 4), one->messages = big32(at + 8), one->least = big32(at + 12);
        at += 16;
        one->parts = calloc(one->part_count, sizeof *one->parts);
        for (uint32_t p = 0; p < one->part_count; p++) {
            one->parts[p].length = big32(at);
            one->parts[p].bytes = at + 4;
            at += 4 + one->parts[p].length;
        }
        dial(one, words[1], atoi(words[2]), context);
    }
    int poll = epoll_create1(0);
    int64_t begun = now_ns();
    end_ns = begun + (int64_t)(atof(words[3]) * 1e9);
    open_connections = connections;
    for (uint32_t i = 0; i < connections; i++) {
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &all[i]};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &event);
        all[i].part = UINT32_MAX;  /* the next one is the first */
        next_part(&all[i]);
    }
    while (open_connections) {
        struct epoll_event events[64];
        int ready = epoll_wait(poll, events, 64, 60000);
        if (ready == 0) { errno = 0; die("no answer for a minute"); }
        for (int i = 0; i < ready; i++) {
            struct connection *one = events[i].data.ptr;
            if (one->has_ended) continue;
            send_on(one);
            take(one);
        }
    }
    printf("{\"messages\": %lu, \"busy\": %lu, \"bytes\": %lu, \"seconds\": %.6f}\n", (unsigned long)answered,
           (unsigned long)busy_total, (unsigned long)received, (now_ns() - begun) / 1e9);
    return 0;
}
