/* Load for a name server: sends requests, checks every answer, counts. One thread, epoll; built by lookups.py.
 *
 *   lookups HOST PORT CONNECTIONS IN_FLIGHT WARM_UP_MS MEASURE_MS BODY_BYTES PAIRED PROCESS < REQUESTS
 *
 * REQUESTS are whole frames, one after the other, sent in turns. Each has "opaque": with six digits in its header,
 * which are overwritten before each use; so a request has the same length whichever it is, and no two in flight on one
 * connection have the same number. A new one is sent as soon as an answer has come, IN_FLIGHT to begin with; those that
 * become due in one read go out in one write, as those of several threads of a client would.
 *
 * An answer is right when its code is 0, its body has BODY_BYTES, and (PAIRED = 1) its opaque is one that its
 * connection waits for. PAIRED = 0 is for a server that answers with bytes prepared beforehand: answers are then taken
 * in the order of the requests.
 *
 * Nothing counts during WARM_UP_MS; then MEASURE_MS are counted, and the CPU time of PROCESS (all its threads; 0: none)
 * is read at the same two instants. Prints one line of JSON. Ends with 1 and a message when something cannot be done.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define OPAQUE_DIGITS 6
#define FIRST_OPAQUE 100000u
#define OPAQUES 900000u
#define PREFIX_BYTES 8
#define MAX_HEADER_BYTES 4096
#define MAX_IN_FLIGHT 64
#define EVENTS 256

/* Latencies in buckets: each power of two in 128 steps, so a percentile is exact to less than 1 %. */
#define STEP_BITS 7
#define STEPS (1u << STEP_BITS)
#define BUCKETS (STEPS * 40)

struct request {
    size_t begin, length, opaque_at;
};

struct connection {
    int fd;
    unsigned char *input;
    size_t input_bytes;
    char *output; /* What the kernel has not taken yet. */
    size_t output_begin, output_bytes;
    uint32_t opaque[MAX_IN_FLIGHT]; /* 0: nothing is awaited in this place. */
    uint64_t sent_ns[MAX_IN_FLIGHT];
    unsigned oldest; /* Place of the request that went out first; used when answers are not paired. */
    uint32_t turn;
};

static char *requests_text;
static struct request *requests;
static size_t request_count, longest_request;
static unsigned in_flight;
static size_t body_bytes, input_limit;
static int paired;
static uint64_t buckets[BUCKETS], answers, errors;
static char first_error[200];
static size_t next_request;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "lookups: ");
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(1);
}

static void wrong(const char *format, ...) {
    va_list arguments;
    if (!errors++) {
        va_start(arguments, format);
        vsnprintf(first_error, sizeof first_error, format, arguments);
        va_end(arguments);
    }
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) fail("a clock cannot be read: %s", strerror(errno));
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t big_endian(const unsigned char *at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static unsigned bucket_of(uint64_t ns) {
    if (ns < STEPS) return (unsigned)ns;
    unsigned power = 63 - (unsigned)__builtin_clzll(ns) - STEP_BITS;
    unsigned bucket = (power + 1) * STEPS + (unsigned)(ns >> power) - STEPS;
    return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

static double bucket_us(unsigned bucket) {
    if (bucket < STEPS) return bucket / 1e3;
    unsigned power = bucket / STEPS - 1;
    return (double)((uint64_t)(bucket % STEPS + STEPS) << power) / 1e3;
}

static double percentile_us(double share) {
    uint64_t wanted = (uint64_t)(share * (double)answers), seen = 0;
    for (unsigned bucket = 0; bucket < BUCKETS; bucket++)
        if ((seen += buckets[bucket]) > wanted) return bucket_us(bucket);
    return 0;
}

static void read_requests(void) {
    size_t room = 1 << 16, length = 0, got;
    requests_text = malloc(room);
    while ((got = fread(requests_text + length, 1, room - length, stdin)) > 0)
        if ((length += got) == room) requests_text = realloc(requests_text, room *= 2);
    for (size_t at = 0; at + PREFIX_BYTES <= length;) {
        struct request one = {.begin = at, .length = 4 + big_endian((unsigned char *)requests_text + at)};
        if (at + one.length > length) fail("the last request is not whole");
        const char *key = memmem(requests_text + at, one.length, "\"opaque\":", 9);
        if (!key) fail("a request has no opaque in its header");
        one.opaque_at = (size_t)(key + 9 - requests_text) - at;
        requests = realloc(requests, (request_count + 1) * sizeof one);
        requests[request_count++] = one;
        if (one.length > longest_request) longest_request = one.length;
        at += one.length;
    }
    if (!request_count) fail("no request on the standard input");
}

/* Places the next request behind what waits to be written. */
static void prepare(struct connection *c, unsigned place, uint64_t now) {
    struct request *one = &requests[next_request++ % request_count];
    char *to = c->output + c->output_begin + c->output_bytes;
    uint32_t opaque = FIRST_OPAQUE + c->turn++ * in_flight % (OPAQUES / in_flight * in_flight) + place;
    c->opaque[place] = opaque;
    c->sent_ns[place] = now;
    memcpy(to, requests_text + one->begin, one->length);
    for (int digit = OPAQUE_DIGITS; digit--; opaque /= 10) to[one->opaque_at + (size_t)digit] = (char)('0' + opaque % 10);
    c->output_bytes += one->length;
}

static void watch(int epoll, struct connection *c, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (c->output_bytes ? EPOLLOUT : 0), .data.ptr = c};
    if (epoll_ctl(epoll, operation, c->fd, &event) != 0) fail("epoll_ctl: %s", strerror(errno));
}

static void flush(int epoll, struct connection *c, int was_waiting) {
    ssize_t taken = send(c->fd, c->output + c->output_begin, c->output_bytes, MSG_NOSIGNAL);
    if (taken < 0 && errno != EAGAIN) fail("a request cannot be sent: %s", strerror(errno));
    if (taken > 0) {
        c->output_begin += (size_t)taken;
        c->output_bytes -= (size_t)taken;
    }
    if (c->output_bytes) memmove(c->output, c->output + c->output_begin, c->output_bytes);
    c->output_begin = 0;
    if ((c->output_bytes > 0) != was_waiting) watch(epoll, c, EPOLL_CTL_MOD);
}

static struct connection *open_connection(int epoll, const struct sockaddr_in *address) {
    struct connection *c = calloc(1, sizeof *c);
    int one = 1;
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->fd < 0 || connect(c->fd, (const struct sockaddr *)address, sizeof *address) != 0)
        fail("cannot connect: %s", strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->input = malloc(input_limit);
    c->output = malloc(2 * in_flight * longest_request);
    watch(epoll, c, EPOLL_CTL_ADD);
    return c;
}

/* The number after a key of a JSON header; -1 without one. */
static long number_after(const unsigned char *header, size_t length, const char *key) {
    const unsigned char *at = memmem(header, length, key, strlen(key));
    return at ? strtol((const char *)at + strlen(key), NULL, 10) : -1;
}

/* The place of the request that this answers, or -1 when it is not an answer that was waited for. */
static int check(struct connection *c, const unsigned char *frame, size_t length) {
    size_t header_bytes = big_endian(frame + 4) & 0xffffff;
    if (frame[4] != 0 || header_bytes > length - PREFIX_BYTES || header_bytes > MAX_HEADER_BYTES) {
        wrong("an answer without a JSON header");
        return -1;
    }
    long code = number_after(frame + PREFIX_BYTES, header_bytes, "\"code\":");
    long opaque = number_after(frame + PREFIX_BYTES, header_bytes, "\"opaque\":");
    if (code != 0) wrong("code %ld: %.*s", code, (int)(header_bytes > 120 ? 120 : header_bytes), frame + PREFIX_BYTES);
    else if (length - PREFIX_BYTES - header_bytes != body_bytes)
        wrong("a body of %zu bytes, not %zu", length - PREFIX_BYTES - header_bytes, body_bytes);
    int place = -1;
    if (!paired) {
        place = (int)c->oldest;
        c->oldest = (c->oldest + 1) % in_flight;
    } else if (opaque >= FIRST_OPAQUE) place = (int)((uint32_t)(opaque - FIRST_OPAQUE) % in_flight);
    if (place < 0 || !c->opaque[place] || (paired && c->opaque[place] != (uint32_t)opaque)) {
        wrong("opaque %ld, which nobody waits for", opaque);
        return -1;
    }
    return place;
}

static void receive(int epoll, struct connection *c, int counts) {
    int was_waiting = c->output_bytes > 0;
    ssize_t got = recv(c->fd, c->input + c->input_bytes, input_limit - c->input_bytes, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) fail("the server closed a connection: %s", got ? strerror(errno) : "end of stream");
    c->input_bytes += (size_t)got;
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    size_t at = 0;
    while (c->input_bytes - at >= PREFIX_BYTES) {
        size_t length = 4 + (size_t)big_endian(c->input + at);
        if (length < PREFIX_BYTES || length > input_limit) fail("an answer of %zu bytes", length);
        if (c->input_bytes - at < length) break;
        int place = check(c, c->input + at, length);
        at += length;
        if (place < 0) continue;
        if (counts) {
            answers++;
            buckets[bucket_of(now - c->sent_ns[place])]++;
        }
        c->opaque[place] = 0;
        prepare(c, (unsigned)place, now);
    }
    memmove(c->input, c->input + at, c->input_bytes -= at);
    if (c->output_bytes && !was_waiting) flush(epoll, c, 0);
}

static void run(int epoll, uint64_t end, int counts) {
    struct epoll_event events[EVENTS];
    while (clock_ns(CLOCK_MONOTONIC) < end) {
        int found = epoll_wait(epoll, events, EVENTS, 100);
        for (int n = 0; n < found; n++) {
            struct connection *c = events[n].data.ptr;
            if (events[n].events & EPOLLOUT) flush(epoll, c, 1);
            if (events[n].events & ~(uint32_t)EPOLLOUT) receive(epoll, c, counts);
        }
    }
}

int main(int count, char **arguments) {
    if (count != 10) fail("see the head of lookups.c for the arguments");
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[2]))};
    if (inet_pton(AF_INET, arguments[1], &address.sin_addr) != 1) fail("%s is not an IPv4 address", arguments[1]);
    int connections = atoi(arguments[3]);
    in_flight = (unsigned)atoi(arguments[4]);
    if (in_flight < 1 || in_flight > MAX_IN_FLIGHT) fail("1 to %d may be in flight", MAX_IN_FLIGHT);
    uint64_t settle_ns = (uint64_t)atoi(arguments[5]) * 1000000u, measure_ns = (uint64_t)atoi(arguments[6]) * 1000000u;
    body_bytes = (size_t)atol(arguments[7]);
    paired = atoi(arguments[8]);
    pid_t process = (pid_t)atoi(arguments[9]);
    clockid_t server_clock = CLOCK_MONOTONIC;
    if (process && clock_getcpuclockid(process, &server_clock) != 0) fail("process %d has no CPU clock", process);
    read_requests();
    input_limit = 2 * (body_bytes + MAX_HEADER_BYTES);

    int epoll = epoll_create1(EPOLL_CLOEXEC);
    for (int n = 0; n < connections; n++) {
        struct connection *c = open_connection(epoll, &address);
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        for (unsigned place = 0; place < in_flight; place++) prepare(c, place, now);
        flush(epoll, c, 0);
    }
    run(epoll, clock_ns(CLOCK_MONOTONIC) + settle_ns, 0);
    uint64_t begin = clock_ns(CLOCK_MONOTONIC), own = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
    uint64_t server = process ? clock_ns(server_clock) : 0;
    run(epoll, begin + measure_ns, 1);
    uint64_t end = clock_ns(CLOCK_MONOTONIC);
    server = process ? clock_ns(server_clock) - server : 0;
    own = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - own;
    for (char *at = first_error; *at; at++)
        if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') *at = '\'';
    printf("{\"answers\":%llu,\"errors\":%llu,\"first_error\":\"%s\",\"seconds\":%.6f,\"own_cpu_seconds\":%.6f,"
           "\"server_cpu_seconds\":%.6f,\"p50_us\":%.1f,\"p90_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f}\n",
           (unsigned long long)answers, (unsigned long long)errors, first_error, (double)(end - begin) / 1e9,
           (double)own / 1e9, (double)server / 1e9, percentile_us(0.5), percentile_us(0.9), percentile_us(0.99),
           percentile_us(0.999));
    return 0;
}
