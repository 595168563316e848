/* The bare limit: a server that reads frames, takes a CRC of each body, copies the frame into a mapped file and answers;
 * asked for messages, it copies as many of them, as far apart as those of one of eight queues are. No checks, no queues,
 * no index: what remains is loopback, copying and CRC. Usage: bare PORT FILE */
#define _GNU_SOURCE
#include "crc32.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SEGMENT = 1 << 30, INPUT = 1 << 20, FULL = 1 << 18, OUTPUT = FULL + (1 << 20), CONNECTIONS = 4096, ANSWER = 512, QUEUES = 8, PULL = 11 };

struct connection { uint8_t *input; size_t held; };

static struct connection connections[CONNECTIONS];
static uint8_t output[OUTPUT], *segment;
static size_t place, record;   /* how far the segment is filled, and how long the last record in it is */
static uint64_t messages;

static uint32_t big32(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }
static void put32(uint8_t *at, uint32_t value) { for (int i = 0; i < 4; i++) at[i] = value >> (24 - 8 * i); }

static long opaque_of(const uint8_t *header, size_t length, int type) {
    if (type == 1) return (int32_t)big32(header + 5);
    const uint8_t *found = memmem(header, length, "\"opaque\":", 9);
    return found ? strtol((const char *)found + 9, NULL, 10) : 0;
}

static long field_of(const uint8_t *header, size_t length, const char *name) {
    const uint8_t *found = memmem(header, length, name, strlen(name));
    return found ? strtol((const char *)found + strlen(name) + 4, NULL, 10) : 0;
}

/* Messages of a queue with a binary header. All records are as long as the last, and queues take turns. */
static size_t serve_pull(const uint8_t *frame, size_t header, uint8_t *answer) {
    size_t first = field_of(frame + 4, header, "queueOffset"), count = field_of(frame + 4, header, "maxMsgNums");
    size_t queue = field_of(frame + 4, header, "queueId"), held = messages < SEGMENT / record ? messages : SEGMENT / record;
    uint8_t *at = answer + 29;
    for (size_t i = 0; i < count; i++, at += record) memcpy(at, segment + ((first + i) * QUEUES + queue) % held * record, record);
    memset(answer + 8, 0, 21);
    memcpy(answer + 13, frame + 9, 4); /* the opaque */
    put32(answer + 17, 1);
    put32(answer, at - answer - 4);
    put32(answer + 4, 1 << 24 | 21);
    return at - answer;
}

/* Takes one whole frame (without its length word); gives the length of the answer. */
static size_t serve(const uint8_t *frame, size_t length, uint8_t *answer) {
    uint32_t word = big32(frame);
    size_t header = word & 0xFFFFFF;
    if (word >> 24 == 1 && frame[5] == PULL && !frame[4] && record) return serve_pull(frame, header, answer);
    uint32_t crc = crc32_of(frame + 4 + header, length - 4 - header);
    record = 4 + length;
    if (place + record > SEGMENT) place = 0;
    put32(segment + place, record);
    memcpy(segment + place + 4, frame, length);
    put32(segment + place + 4, crc);
    place += record;
    messages++;
    int size = snprintf((char *)answer + 8, ANSWER - 8,
        "{\"code\":0,\"extFields\":{\"queueId\":\"0\",\"TRACE_ON\":\"true\",\"MSG_REGION\":\"DefaultRegion\",\"msgId\":\"7F00000100002A9F%016lX\","
        "\"queueOffset\":\"%lu\"},\"flag\":1,\"language\":\"JAVA\",\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
        (unsigned long)place, (unsigned long)messages, opaque_of(frame + 4, header, word >> 24));
    put32(answer, size + 4);
    put32(answer + 4, size);
    return size + 8;
}

static int readable(int fd) {
    struct connection *connection = &connections[fd];
    ssize_t got = read(fd, connection->input + connection->held, INPUT - connection->held);
    if (got <= 0) return -1;
    connection->held += got;
    size_t from = 0, filled = 0;
    while (connection->held - from >= 4) {
        size_t length = big32(connection->input + from);
        if (length > INPUT - 4) return -1;
        if (connection->held - from < 4 + length) break;
        if (filled + ANSWER > FULL) {
            if (write(fd, output, filled) < 0) return -1;
            filled = 0;
        }
        filled += serve(connection->input + from + 4, length, output + filled);
        from += 4 + length;
    }
    memmove(connection->input, connection->input + from, connection->held - from);
    connection->held -= from;
    return filled && write(fd, output, filled) < 0 ? -1 : 0;
}

int main(int count, char **arguments) {
    if (count != 3) return fprintf(stderr, "usage: bare PORT FILE\n"), 2;
    crc32_prepare();
    if (crc32_of((const uint8_t *)"123456789", 9) != 0xCBF43926u) return fprintf(stderr, "the CRC is wrong\n"), 1;
    int file = open(arguments[2], O_RDWR | O_CREAT, 0644);
    if (file < 0 || posix_fallocate(file, 0, SEGMENT)) return perror(arguments[2]), 1;
    segment = mmap(NULL, SEGMENT, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int server = socket(AF_INET, SOCK_STREAM, 0), yes = 1, poll = epoll_create1(0);
    setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(arguments[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (bind(server, (struct sockaddr *)&address, sizeof address) || listen(server, 1024)) return perror("listen"), 1;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = server}, events[256];
    epoll_ctl(poll, EPOLL_CTL_ADD, server, &event);
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(poll, events, 256, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == server) {
                int client = accept(server, NULL, NULL);
                if (client < 0 || client >= CONNECTIONS) continue;
                setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
                if (!connections[client].input) connections[client].input = malloc(INPUT);
                connections[client].held = 0;
                event.data.fd = client;
                epoll_ctl(poll, EPOLL_CTL_ADD, client, &event);
            } else if (readable(fd) < 0) {
                close(fd);
            }
        }
    }
}
