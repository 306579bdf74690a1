/* One request, sent again and again over epoll: the client of the ping-pong, receive and fetch rows.
 * It knows Kafka's frame (int32 size, then the body) and where an answer carries its error code, and nothing else.
 *
 *   exchange HOST PORT CONNECTIONS DEPTH SECONDS LIMIT ERROR_AT < request frame
 *
 * Each connection keeps DEPTH requests in flight until SECONDS have passed or LIMIT requests were sent (0: no limit).
 * ERROR_AT is the offset of an int16 error code in every answer, counted from the first byte of its size. Prints one
 * line of JSON. Exits with 1 and a line on stderr at the first answer that is an error. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD_MAX = 512, SCRATCH = 1 << 18, REQUEST_MAX = 64 << 20, DEPTH_MAX = 1024 };

struct connection {
    int fd;
    uint32_t waiting_for_writable;
    size_t unsent;            /* bytes still to go to the kernel, of the last `unsent` bytes of the repeated frames */
    uint64_t sent_at[DEPTH_MAX];  /* ns, a ring of the requests in flight, oldest first */
    unsigned oldest, in_flight;
    unsigned char head[HEAD_MAX]; /* the first bytes of the answer being read */
    size_t got, answer_size;  /* bytes of it that came; its whole size once 4 bytes are there */
};

static unsigned char *frames; /* DEPTH copies of the request, so that any run of them goes out in one send */
static size_t frame_size;
static unsigned depth;
static long limit, started, finished;
static size_t error_at;
static uint64_t deadline, received;
static uint32_t *latencies;   /* ns; a request that takes over 4 s counts as 4 s */
static size_t latency_room;
static int poller;

static void fail(const char *what) {
    fprintf(stderr, "exchange: %s%s%s\n", what, errno ? ": " : "", errno ? strerror(errno) : "");
    exit(1);
}

static uint64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void wait_for_writable(struct connection *c, uint32_t wanted) {
    if (c->waiting_for_writable == wanted) return;
    c->waiting_for_writable = wanted;
    struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &event)) fail("epoll_ctl");
}

static void push(struct connection *c) {
    while (c->unsent) {
        ssize_t n = send(c->fd, frames + frame_size * depth - c->unsent, c->unsent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) fail("send");
        c->unsent -= (size_t)n;
    }
    wait_for_writable(c, c->unsent != 0);
}

/* Fill the connection up to its depth. While an earlier run is still on its way, leave it: its tail is in `unsent`. */
static void refill(struct connection *c) {
    if (c->unsent) return;
    uint64_t t = now();
    while (c->in_flight < depth && t < deadline && (!limit || started < limit)) {
        c->sent_at[(c->oldest + c->in_flight++) % depth] = t;
        c->unsent += frame_size;
        started++;
    }
    push(c);
}

static void answered(struct connection *c) {
    int16_t code = (int16_t)(c->head[error_at] << 8 | c->head[error_at + 1]);
    errno = 0;
    if (code) {
        fprintf(stderr, "exchange: the server answered with error %d\n", code);
        exit(1);
    }
    if ((size_t)finished == latency_room) {
        latency_room = latency_room ? latency_room * 2 : 1 << 16;
        if (!(latencies = realloc(latencies, latency_room * sizeof *latencies))) fail("realloc");
    }
    uint64_t taken = now() - c->sent_at[c->oldest];
    latencies[finished++] = taken > UINT32_MAX ? UINT32_MAX : (uint32_t)taken;
    c->oldest = (c->oldest + 1) % depth;
    c->in_flight--;
    c->got = c->answer_size = 0;
}

static void consume(struct connection *c, const unsigned char *data, size_t n) {
    while (n) {
        size_t want = c->answer_size ? c->answer_size - c->got : 4 - c->got;
        size_t take = want < n ? want : n;
        if (c->got < HEAD_MAX) memcpy(c->head + c->got, data, take < HEAD_MAX - c->got ? take : HEAD_MAX - c->got);
        c->got += take, data += take, n -= take;
        if (!c->answer_size && c->got == 4) {
            uint32_t size;
            memcpy(&size, c->head, 4);
            c->answer_size = 4 + (size_t)ntohl(size);
            if (c->answer_size < error_at + 2) errno = 0, fail("the answer is too short");
        }
        if (c->answer_size && c->got == c->answer_size) answered(c);
    }
}

static void readable(struct connection *c) {
    static unsigned char scratch[SCRATCH];
    ssize_t n = recv(c->fd, scratch, sizeof scratch, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) return;
    if (n < 0) fail("recv");
    if (n == 0) errno = 0, fail("the server closed the connection");
    received += (uint64_t)n;
    consume(c, scratch, (size_t)n);
    refill(c);
}

static void read_frames(void) {
    unsigned char *one = malloc(REQUEST_MAX);
    if (!one) fail("malloc");
    frame_size = fread(one, 1, REQUEST_MAX, stdin);
    if (frame_size < 8 || !(frames = malloc(frame_size * depth))) fail("no request on stdin");
    for (unsigned i = 0; i < depth; i++) memcpy(frames + i * frame_size, one, frame_size);
    free(one);
}

static void open_connection(struct connection *c, const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) fail("the host must be an IPv4 address");
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    int one = 1;
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    if (epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &event)) fail("epoll_ctl");
}

static int ascending(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void report(double seconds) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    qsort(latencies, (size_t)finished, sizeof *latencies, ascending);
    printf("{\"requests\": %ld, \"seconds\": %.6f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"received_bytes\": %llu, "
           "\"sent_bytes\": %llu, \"cpu_seconds\": %.6f}\n",
           finished, seconds, latencies[finished / 2] / 1e3, latencies[finished * 99 / 100] / 1e3,
           (unsigned long long)received, (unsigned long long)finished * frame_size, cpu);
}

int main(int argc, char **argv) {
    if (argc != 8) fail("usage: exchange HOST PORT CONNECTIONS DEPTH SECONDS LIMIT ERROR_AT < request");
    int count = atoi(argv[3]);
    depth = (unsigned)atoi(argv[4]);
    limit = atol(argv[6]);
    error_at = (size_t)atol(argv[7]);
    if (count < 1 || depth < 1 || depth > DEPTH_MAX || error_at + 2 > HEAD_MAX) fail("a number is out of range");
    read_frames();
    poller = epoll_create1(0);
    struct connection *connections = calloc((size_t)count, sizeof *connections);
    if (!connections) fail("calloc");
    for (int i = 0; i < count; i++) open_connection(&connections[i], argv[1], atoi(argv[2]));
    uint64_t begun = now();
    deadline = begun + (uint64_t)(atof(argv[5]) * 1e9);
    for (int i = 0; i < count; i++) refill(&connections[i]);
    while (finished < started) {
        struct epoll_event events[64];
        int ready = epoll_wait(poller, events, 64, 30000);
        if (ready == 0) errno = 0, fail("no answer for 30 s");
        for (int i = 0; i < ready; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) readable(c);
            if (c->unsent) push(c);
        }
    }
    report((double)(now() - begun) / 1e9);
    return 0;
}
