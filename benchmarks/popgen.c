/* A raw generator of pops and acks: threads with a connection each, that ask and wait for the answer.

     popgen HOST PORT TOPIC GROUP drain AT_ONCE WORKERS MESSAGES        pop and acknowledge until so many are done
     popgen HOST PORT TOPIC GROUP latency RATE WORKERS SECONDS          send at a rate to consumers that long-poll
     popgen HOST PORT TOPIC GROUP hold AT_ONCE WORKERS MESSAGES         pop and leave, while another connection asks
     popgen HOST PORT TOPIC GROUP fill BODY_BYTES WORKERS MESSAGES      send

   Each prints one line of numbers: messages, seconds, and of latencies and of the questions asked in between the median,
   the 99th percentile and the longest in microseconds. Headers are JSON, as the Java client's are. */

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SEND = 310, POP = 200050, ACK = 200051, BATCH_ACK = 200151, MAX_OFFSET = 30, QUEUES = 4, MOST_QUEUES = 64 };
enum { ANSWER_BYTES = 8 << 20, TIMES = 1 << 20 };

static const char *host, *topic, *group;
static int port, at_once, workers;
static long wanted;
static atomic_long taken;
static atomic_int is_over;
static pthread_mutex_t times_lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t *times;
static long times_count;

typedef struct {
  int socket, opaque;
  uint8_t *answer; /* the last one: header and body */
  uint32_t header_size, size;
} Client;

static void fail(const char *what) {
  perror(what);
  exit(1);
}

static int64_t now_ns(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static Client *connected(void) {
  Client *client = calloc(1, sizeof *client);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  int one = 1;
  client->answer = malloc(ANSWER_BYTES + 1);
  client->socket = socket(AF_INET, SOCK_STREAM, 0);
  inet_pton(AF_INET, host, &address.sin_addr);
  if (connect(client->socket, (struct sockaddr *)&address, sizeof address)) fail("connect");
  setsockopt(client->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return client;
}

static void exactly(Client *client, uint8_t *target, size_t size) {
  while (size) {
    ssize_t got = recv(client->socket, target, size, 0);
    if (got <= 0) fail("recv");
    target += got;
    size -= got;
  }
}

static uint32_t u32(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }

static int64_t number_of(Client *client, const char *name) {
  char quoted[40];
  snprintf(quoted, sizeof quoted, "\"%s\":", name);
  char *found = strstr((char *)client->answer, quoted);
  if (!found) return -1;
  found += strlen(quoted);
  return strtoll(found + (*found == '"'), NULL, 10);
}

/* Asks, and waits for the answer; its code. */
static int ask(Client *client, int code, const char *fields, const void *body, size_t body_size) {
  static __thread char frame[65536];
  int header = snprintf(frame + 8, sizeof frame - 8,
                        "{\"code\":%d,\"extFields\":{%s},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
                        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":493}",
                        code, fields, ++client->opaque);
  uint32_t length = htonl(4 + header + body_size), size = htonl(header);
  memcpy(frame, &length, 4);
  memcpy(frame + 4, &size, 4);
  memcpy(frame + 8 + header, body, body_size);
  if (send(client->socket, frame, 8 + header + body_size, 0) < 0) fail("send");
  uint8_t head[8];
  exactly(client, head, 8);
  client->header_size = u32(head + 4) & 0xFFFFFF;
  client->size = u32(head) - 4;
  if (client->size > ANSWER_BYTES) fail("an answer is too large");
  exactly(client, client->answer, client->size);
  uint8_t kept = client->answer[client->header_size];
  client->answer[client->header_size] = 0;
  int answered = (int)number_of(client, "code");
  client->answer[client->header_size] = kept;
  return answered;
}

static int pop(Client *client, int count, int poll_ms, int invisible_ms) {
  char fields[600];
  snprintf(fields, sizeof fields,
           "\"bornTime\":\"%" PRId64 "\",\"consumerGroup\":\"%s\",\"exp\":\"*\",\"expType\":\"TAG\",\"initMode\":\"0\","
           "\"invisibleTime\":\"%d\",\"maxMsgNums\":\"%d\",\"order\":\"false\",\"pollTime\":\"%d\",\"queueId\":\"-1\","
           "\"topic\":\"%s\"",
           now_ns(CLOCK_REALTIME) / 1000000, group, invisible_ms, count, poll_ms, topic);
  return ask(client, POP, fields, "", 0);
}

typedef struct {
  int flag, queue, count;
  int64_t start, offsets[32];
} Popped;

static const char *text_of(const char *header, const char *name) {
  char quoted[40];
  snprintf(quoted, sizeof quoted, "\"%s\":\"", name);
  const char *found = strstr(header, quoted);
  return found ? found + strlen(quoted) : NULL;
}

/* What an answer gave, by queue; how many queues. */
static int read_popped(Client *client, Popped *popped) {
  static __thread char header[65536];
  int queues = 0;
  if (client->header_size >= sizeof header) fail("a header is too large");
  memcpy(header, client->answer, client->header_size);
  header[client->header_size] = 0;
  const char *at = text_of(header, "msgOffsetInfo"), *starts = text_of(header, "startOffsetInfo");
  while (at && *at != '"' && queues < MOST_QUEUES) {
    char *end;
    Popped *one = &popped[queues++];
    one->flag = strtol(at, &end, 10);
    one->queue = strtol(end, &end, 10);
    for (one->count = 0; one->count < 32 && (*end == ' ' || *end == ','); one->count++)
      one->offsets[one->count] = strtoll(end + 1, &end, 10);
    strtol(starts, (char **)&starts, 10);
    strtol(starts, (char **)&starts, 10);
    one->start = strtoll(starts, (char **)&starts, 10);
    starts += *starts == ';';
    at = end + (*end == ';');
  }
  return queues;
}

static int base64_of(uint32_t bits, char *target) {
  static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  uint8_t octets[6] = {bits & 255, bits >> 8 & 255, bits >> 16 & 255, bits >> 24};
  int count = bits >> 24 ? 4 : bits >> 16 ? 3 : bits >> 8 ? 2 : 1, at = 0;
  for (int index = 0; index < count; index += 3) {
    uint32_t three = octets[index] << 16 | octets[index + 1] << 8 | octets[index + 2];
    for (int letter = 0; letter < 4; letter++) target[at++] = letters[three >> (18 - 6 * letter) & 63];
  }
  for (int index = count % 3; index && index < 3; index++) target[at - 3 + index] = '=';
  target[at] = 0;
  return at;
}

/* Acknowledges what the last answer gave; how many messages. */
static int acknowledge(Client *client, int together) {
  static __thread Popped popped[MOST_QUEUES];
  static __thread char text[32768];
  int queues = read_popped(client, popped), done = 0, size = 0;
  client->answer[client->header_size] = 0;
  int64_t at = number_of(client, "popTime"), invisible = number_of(client, "invisibleTime");
  int64_t revive = number_of(client, "reviveQid");
  if (together) size = sprintf(text, "{\"acks\":[");
  for (int number = 0; number < queues; number++) {
    Popped *one = &popped[number];
    done += one->count;
    if (together) {
      char letters[16];
      uint32_t bits = 0;
      for (int index = 0; index < one->count; index++) bits |= 1u << (one->offsets[index] - one->start);
      base64_of(bits, letters);
      size += sprintf(text + size,
                      "%s{\"b\":\"%s\",\"c\":\"%s\",\"it\":%" PRId64 ",\"pt\":%" PRId64
                      ",\"q\":%d,\"r\":\"%d\",\"rq\":%" PRId64 ",\"so\":%" PRId64 ",\"t\":\"%s\"}",
                      number ? "," : "", letters, group, invisible, at, one->queue, one->flag, revive, one->start, topic);
      continue;
    }
    for (int index = 0; index < one->count; index++) {
      char fields[700];
      snprintf(fields, sizeof fields,
               "\"consumerGroup\":\"%s\",\"extraInfo\":\"%" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
               " %d broker-a %d %" PRId64 "\",\"offset\":\"%" PRId64 "\",\"queueId\":\"%d\",\"topic\":\"%s\"",
               group, one->start, at, invisible, revive, one->flag, one->queue, one->offsets[index], one->offsets[index],
               one->queue, topic);
      if (ask(client, ACK, fields, "", 0)) fail("an ack was refused");
    }
  }
  if (together && queues) {
    size += sprintf(text + size, "],\"brokerName\":\"broker-a\"}");
    if (ask(client, BATCH_ACK, "", text, size)) fail("acks were refused");
  }
  return done;
}

static void note(int64_t ns) {
  pthread_mutex_lock(&times_lock);
  if (times_count < TIMES) times[times_count++] = ns;
  pthread_mutex_unlock(&times_lock);
}

static void *drain(void *unused) {
  Client *client = connected();
  while (atomic_load(&taken) < wanted && pop(client, at_once, 0, 600000) == 0)
    atomic_fetch_add(&taken, acknowledge(client, at_once > 1));
  return unused;
}

static void *hold(void *unused) {
  Client *client = connected();
  static __thread Popped popped[MOST_QUEUES];
  while (atomic_load(&taken) < wanted && pop(client, at_once, 0, 3600000) == 0) {
    int queues = read_popped(client, popped), count = 0;
    for (int number = 0; number < queues; number++) count += popped[number].count;
    atomic_fetch_add(&taken, count);
  }
  return unused;
}

static void *probe(void *unused) {
  Client *client = connected();
  char fields[300];
  snprintf(fields, sizeof fields, "\"queueId\":\"0\",\"topic\":\"%s\"", topic);
  while (!atomic_load(&is_over)) {
    int64_t began = now_ns(CLOCK_MONOTONIC);
    ask(client, MAX_OFFSET, fields, "", 0);
    note(now_ns(CLOCK_MONOTONIC) - began);
    usleep(1000);
  }
  return unused;
}

static void *consume(void *unused) {
  Client *client = connected();
  while (!atomic_load(&is_over)) {
    int code = pop(client, 32, 1000, 60000);
    int64_t now = now_ns(CLOCK_MONOTONIC);
    if (code) continue;
    uint8_t *record = client->answer + client->header_size, *end = client->answer + client->size;
    while (record < end) {
      int64_t sent;
      memcpy(&sent, record + 88, 8);
      note(now - sent);
      record += u32(record);
    }
    atomic_fetch_add(&taken, acknowledge(client, 1));
  }
  return unused;
}

/* With a unique key, as every client sends one. */
static void send_one(Client *client, const void *body, size_t size, int queue) {
  static atomic_long sent;
  char fields[600];
  snprintf(fields, sizeof fields,
           "\"a\":\"P\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"%d\",\"f\":\"0\",\"g\":\"1\",\"h\":\"0\","
           "\"i\":\"UNIQ_KEY\\u0001%08X%024lX\\u0002\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"",
           topic, queue, (unsigned)getpid(), atomic_fetch_add(&sent, 1));
  if (ask(client, SEND, fields, body, size)) fail("a message was refused");
}

static void *fill(void *unused) {
  Client *client = connected();
  char body[65536 - 4096] = {0};
  long number;
  memset(body, 'x', at_once);
  while ((number = atomic_fetch_add(&taken, 1)) < wanted) send_one(client, body, at_once, number % QUEUES);
  return unused;
}

static void *produce(void *unused) {
  Client *client = connected();
  int64_t began = now_ns(CLOCK_MONOTONIC);
  long count = (long)at_once * wanted;
  for (long number = 0; number < count; number++) {
    int64_t due = began + number * 1000000000 / at_once, now;
    while ((now = now_ns(CLOCK_MONOTONIC)) < due) {
      struct timespec wait = {0, due - now};
      nanosleep(&wait, NULL);
    }
    now = now_ns(CLOCK_MONOTONIC);
    send_one(client, &now, 8, number % QUEUES);
  }
  return unused;
}

static int compare(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return a < b ? -1 : a > b;
}

int main(int count, char **arguments) {
  if (count != 9) {
    fprintf(stderr, "popgen HOST PORT TOPIC GROUP drain|latency|hold|fill NUMBER WORKERS AMOUNT\n");
    return 2;
  }
  host = arguments[1], port = atoi(arguments[2]), topic = arguments[3], group = arguments[4];
  const char *mode = arguments[5];
  at_once = atoi(arguments[6]), workers = atoi(arguments[7]), wanted = atol(arguments[8]);
  if (!strcmp(mode, "fill") && at_once > 60000) fail("the body is too large");
  times = malloc(TIMES * sizeof *times);
  pthread_t threads[257], other;
  int is_latency = !strcmp(mode, "latency"), is_hold = !strcmp(mode, "hold");
  void *(*work)(void *) = is_latency ? consume : is_hold ? hold : !strcmp(mode, "fill") ? fill : drain;
  if (workers < 1 || workers > 256) fail("1 to 256 workers");
  int64_t began = now_ns(CLOCK_MONOTONIC);
  if (is_hold) pthread_create(&other, NULL, probe, NULL);
  for (int number = 0; number < workers; number++) pthread_create(&threads[number], NULL, work, NULL);
  if (is_latency) {
    usleep(200000);
    pthread_create(&other, NULL, produce, NULL);
    pthread_join(other, NULL);
    usleep(300000);
    atomic_store(&is_over, 1);
  }
  for (int number = 0; number < workers; number++) pthread_join(threads[number], NULL);
  double seconds = (now_ns(CLOCK_MONOTONIC) - began) / 1e9;
  atomic_store(&is_over, 1);
  if (is_hold) pthread_join(other, NULL);
  qsort(times, times_count, sizeof *times, compare);
  long last = times_count ? times_count - 1 : 0;
  if (!times_count) times[0] = 0;
  printf("%ld %.6f %.1f %.1f %.1f\n", atomic_load(&taken), seconds, times[times_count / 2] / 1e3,
         times[last * 99 / 100] / 1e3, times[last] / 1e3);
  return 0;
}
