/* A driver library that does nothing: every call is counted and succeeds at once. It answers what a program asks before
 * it has a context: one device, which has memory pools. The numbers of its functions are in calls.h. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
#define CALL(name) INDEX_##name,
#include "calls.h"
#undef CALL
    CALLS
};

static const char *const names[] = {
#define CALL(name) #name,
#include "calls.h"
#undef CALL
};

/* The calls of one thread, which alone adds to them: a locked addition would cost more than the rest of a call. */
struct counts {
    uint64_t of[CALLS];
    struct counts *next;
};
static struct counts *all;
static __thread struct counts *mine __attribute__((tls_model("initial-exec")));

static struct counts *first_of_thread(void) {
    struct counts *made = calloc(1, sizeof *made);
    if (!made) abort();
    made->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&all, &made->next, made, 1, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) continue;
    return mine = made;
}

static inline void count(unsigned at) {
    struct counts *to = mine ? mine : first_of_thread();
    __atomic_store_n(&to->of[at], to->of[at] + 1, __ATOMIC_RELAXED);
}

static uint64_t last = 0x100000;

uint64_t null_calls(unsigned at, const char **name) {
    if (at >= CALLS) return UINT64_MAX;
    *name = names[at];
    uint64_t sum = 0;
    for (struct counts *it = __atomic_load_n(&all, __ATOMIC_ACQUIRE); it; it = it->next)
        sum += __atomic_load_n(&it->of[at], __ATOMIC_RELAXED);
    return sum;
}

/* Whether the device is said to have work left. */
static int busy;
void null_busy(int is) { __atomic_store_n(&busy, is, __ATOMIC_RELAXED); }

#define COUNT(name) count(INDEX_##name)
#define HANDLE (void *)__atomic_add_fetch(&last, 256, __ATOMIC_RELAXED)
#define PLAIN(name) int name(void) { COUNT(name); return 0; }
#define GIVES(name) int name(void **out) { COUNT(name); *out = HANDLE; return 0; }

PLAIN(cuInit)
PLAIN(cuCtxSynchronize)
PLAIN(cuDevicePrimaryCtxRelease_v2)
PLAIN(cuStreamDestroy_v2)
PLAIN(cuStreamWaitEvent)
PLAIN(cuStreamSynchronize)
PLAIN(cuEventDestroy_v2)
PLAIN(cuEventRecord)
PLAIN(cuEventSynchronize)
PLAIN(cuLaunchKernel)
PLAIN(cuMemFreeAsync)
PLAIN(cuMemFree_v2)
PLAIN(cuMemsetD8Async)
PLAIN(cuMemcpyDtoDAsync_v2)
PLAIN(cuModuleUnload)
GIVES(cuStreamCreate)
GIVES(cuEventCreate)
GIVES(cuModuleLoadData)
GIVES(cuModuleGetFunction)
GIVES(cuMemAllocAsync)
GIVES(cuMemAlloc_v2)
GIVES(cuDevicePrimaryCtxRetain)

static __thread void *current;
int cuCtxSetCurrent(void *context) { COUNT(cuCtxSetCurrent); current = context; return 0; }
int cuCtxGetCurrent(void **out) { COUNT(cuCtxGetCurrent); *out = current; return 0; }
int cuDeviceGet(int *out) { COUNT(cuDeviceGet); *out = 0; return 0; }
int cuDeviceGetAttribute(int *out) { COUNT(cuDeviceGetAttribute); *out = 1; return 0; }
int cuDeviceGetCount(int *out) { COUNT(cuDeviceGetCount); *out = 1; return 0; }

#define READY(name) int name(void) { COUNT(name); return __atomic_load_n(&busy, __ATOMIC_RELAXED) ? 600 : 0; }
READY(cuStreamQuery)
READY(cuEventQuery)
int cuStreamIsCapturing(void *stream, int *out) { COUNT(cuStreamIsCapturing); *out = 0; return 0; }
int cuMemHostAlloc(void **out, size_t bytes) { COUNT(cuMemHostAlloc); *out = malloc(bytes); return 0; }
int cuMemHostGetDevicePointer_v2(void **out, void *host) { COUNT(cuMemHostGetDevicePointer_v2); *out = host; return 0; }
/* The work before it is done by then, whatever is said. */
int cuStreamWriteValue32_v2(void *stream, uint32_t *at, uint32_t value) {
    COUNT(cuStreamWriteValue32_v2);
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
    return 0;
}
