/* librdkafka as a load: one topic partition, values of one size or of sizes in a range. Python's call per message would hide the server.
 * It measures the client; the server's CPU is read by whoever starts it. Nothing here belongs to a test.
 *
 *   librdkafka produce TOPIC SIZE[-SIZE] SECONDS name=value...   for SECONDS or VOLUME, whatever comes first; then flush
 *   librdkafka consume TOPIC SIZE[-SIZE] COUNT   name=value...   COUNT messages of partition 0, from its start
 *
 * Prints one line of JSON; a message that fails ends the run with 1 and a line on stderr. The wheel of confluent-kafka
 * brings the library without its header, so what is used of it is declared here (rdkafka.h is API-stable since 0.9). */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s rd_kafka_t;
typedef struct rd_kafka_topic_s rd_kafka_topic_t;
typedef struct rd_kafka_conf_s rd_kafka_conf_t;
typedef struct rd_kafka_topic_conf_s rd_kafka_topic_conf_t;
typedef struct rd_kafka_message_s {
    int err;
    rd_kafka_topic_t *rkt;
    int32_t partition;
    void *payload;
    size_t len;
    void *key;
    size_t key_len;
    int64_t offset;
    void *private_;
} rd_kafka_message_t;
enum { RD_KAFKA_PRODUCER, RD_KAFKA_CONSUMER };
enum { RD_KAFKA_MSG_F_COPY = 2, RD_KAFKA_MSG_F_BLOCK = 4, RD_KAFKA_OFFSET_BEGINNING = -2 };
rd_kafka_conf_t *rd_kafka_conf_new(void);
int rd_kafka_conf_set(rd_kafka_conf_t *, const char *name, const char *value, char *errstr, size_t errstr_size);
void rd_kafka_conf_set_dr_msg_cb(rd_kafka_conf_t *, void (*)(rd_kafka_t *, const rd_kafka_message_t *, void *));
rd_kafka_t *rd_kafka_new(int type, rd_kafka_conf_t *, char *errstr, size_t errstr_size);
rd_kafka_topic_t *rd_kafka_topic_new(rd_kafka_t *, const char *topic, rd_kafka_topic_conf_t *);
int rd_kafka_produce(rd_kafka_topic_t *, int32_t partition, int flags, void *payload, size_t len, const void *key,
                     size_t key_len, void *opaque);
int rd_kafka_poll(rd_kafka_t *, int timeout_ms);
int rd_kafka_flush(rd_kafka_t *, int timeout_ms);
int rd_kafka_consume_start(rd_kafka_topic_t *, int32_t partition, int64_t offset);
ssize_t rd_kafka_consume_batch(rd_kafka_topic_t *, int32_t partition, int timeout_ms, rd_kafka_message_t **, size_t);
void rd_kafka_message_destroy(rd_kafka_message_t *);
const char *rd_kafka_err2str(int err);
int rd_kafka_last_error(void);

/* VOLUME: memory that a virtual machine's host must find anew costs nine times the copy into it. */
enum { VOLUME = 200000000, POOL = 4 << 20, SIZE_MAX_BYTES = 1 << 20, BATCH = 4096, TIMEOUT_MS = 20000 };

static size_t smallest, largest; /* bytes of a value */
static uint64_t value_bytes;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "librdkafka: %s: %s\n", what, why);
    exit(1);
}

static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_now(void) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static void delivered(rd_kafka_t *rk, const rd_kafka_message_t *message, void *opaque) {
    (void)rk, (void)opaque;
    if (message->err) fail("delivery", rd_kafka_err2str(message->err));
}

static rd_kafka_t *connect_client(int type, int count, char **properties) {
    char why[512];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    if (type == RD_KAFKA_PRODUCER) {
        rd_kafka_conf_set(conf, "delivery.report.only.error", "true", why, sizeof why);
        rd_kafka_conf_set_dr_msg_cb(conf, delivered);
    }
    for (int i = 0; i < count; i++) {
        char *equals = strchr(properties[i], '=');
        if (!equals) fail("a property without =", properties[i]);
        *equals = 0;
        if (rd_kafka_conf_set(conf, properties[i], equals + 1, why, sizeof why)) fail(properties[i], why);
    }
    rd_kafka_t *rk = rd_kafka_new(type, conf, why, sizeof why);
    if (!rk) fail("rd_kafka_new", why);
    return rk;
}

/* The same numbers in every run (xorshift64 of a fixed seed). */
static uint64_t random_number(void) {
    static uint64_t state = 88172645463325252u;
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state;
}

/* gzip and zstd halve it, lz4 and snappy find little. */
static char *hexadecimal_text(void) {
    char *pool = malloc(POOL);
    for (size_t i = 0; i < POOL; i++) pool[i] = "0123456789abcdef"[random_number() & 15];
    return pool;
}

static void produce_one(rd_kafka_topic_t *topic, char *pool) {
    static size_t at;
    size_t size = smallest == largest ? smallest : smallest + random_number() % (largest - smallest + 1);
    if (at + size > POOL) at = 0;
    if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK, pool + at, size, NULL, 0, NULL))
        fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
    at += size, value_bytes += size;
}

/* The first message finds the leader and connects; the clock starts after it was acknowledged. */
static long produce(rd_kafka_t *rk, rd_kafka_topic_t *topic, double seconds, double *begun) {
    char *pool = hexadecimal_text();
    long messages = 0;
    produce_one(topic, pool);
    if (rd_kafka_flush(rk, TIMEOUT_MS)) fail("the first message", "not acknowledged within 20 s");
    *begun = seconds_now();
    for (double now = *begun; now < *begun + seconds && value_bytes < VOLUME; now = seconds_now()) {
        for (int i = 0; i < 256; i++) produce_one(topic, pool);
        messages += 256;
        rd_kafka_poll(rk, 0);
    }
    if (rd_kafka_flush(rk, TIMEOUT_MS)) fail("flush", "not acknowledged within 20 s");
    return messages + 1;
}

/* The clock starts at the first message: finding the leader takes librdkafka longer than reading 100,000 messages. */
static long consume(rd_kafka_topic_t *topic, long count, double *begun) {
    static rd_kafka_message_t *batch[BATCH];
    long messages = 0;
    if (rd_kafka_consume_start(topic, 0, RD_KAFKA_OFFSET_BEGINNING)) fail("consume", "start was refused");
    while (messages < count) {
        long wanted = messages == 0 ? 1 : count - messages < BATCH ? count - messages : BATCH;
        ssize_t n = rd_kafka_consume_batch(topic, 0, TIMEOUT_MS, batch, (size_t)wanted);
        if (n <= 0) fail("consume", "nothing for 20 s");
        if (messages == 0) *begun = seconds_now();
        for (ssize_t i = 0; i < n; i++) {
            if (batch[i]->err) fail("consume", rd_kafka_err2str(batch[i]->err));
            if (batch[i]->len < smallest || batch[i]->len > largest) fail("consume", "a value of another size");
            if (batch[i]->offset != messages++) fail("consume", "an offset is missing");
            value_bytes += batch[i]->len;
            rd_kafka_message_destroy(batch[i]);
        }
    }
    return messages;
}

int main(int argc, char **argv) {
    if (argc < 5) fail("usage", "librdkafka produce|consume TOPIC SIZE SECONDS|COUNT name=value...");
    int producing = !strcmp(argv[1], "produce");
    int bounds = sscanf(argv[3], "%zu-%zu", &smallest, &largest);
    if (bounds == 1) largest = smallest;
    if (bounds < 1 || smallest > largest || largest > SIZE_MAX_BYTES) fail("SIZE", "0 to 1048576 bytes");
    rd_kafka_t *rk = connect_client(producing ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, argc - 5, argv + 5);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, argv[2], NULL);
    if (!topic) fail("rd_kafka_topic_new", rd_kafka_err2str(rd_kafka_last_error()));
    double begun = 0, cpu = cpu_now();
    long messages =
        producing ? produce(rk, topic, atof(argv[4]), &begun) : consume(topic, atol(argv[4]), &begun);
    printf("{\"messages\": %ld, \"value_bytes\": %llu, \"seconds\": %.6f, \"cpu_seconds\": %.6f}\n", messages,
           (unsigned long long)value_bytes, seconds_now() - begun, cpu_now() - cpu);
    fflush(stdout);
    _Exit(0); /* closing down takes up to a second and measures nothing */
}
