// What tensor.cu needs of a compiler for GPUs, for a compiler of the host. A grid has three blocks, one after another, of
// eight threads each, which are threads of the host; one kernel runs at a time.

#include <cmath>
#include <cstddef>
#include <cstring>
#include <immintrin.h>
#include <pthread.h>
#include <thread>
#include <type_traits>
#include <utility>

#define CARVE_HOST
#define __device__ inline
#define __global__
#define __noinline__
#define __shared__ static

using std::atan2;
using std::copysign;
using std::cos;
using std::cosh;
using std::exp;
using std::fabs;
using std::hypot;
using std::isinf;
using std::log;
using std::sin;
using std::sinh;
using std::sqrt;
using std::tanh;

struct one_dimension { unsigned x; };
static const one_dimension gridDim = {3}, blockDim = {8};
static thread_local one_dimension blockIdx, threadIdx;
static pthread_barrier_t barrier;
static inline void __syncthreads() { pthread_barrier_wait(&barrier); }

static inline float __int_as_float(int x) { float y; std::memcpy(&y, &x, sizeof y); return y; }
static inline int __float_as_int(float x) { int y; std::memcpy(&y, &x, sizeof y); return y; }
static inline float __double2float_rz(double x) {
    float y = (float)x;
    return std::fabs((double)y) > std::fabs(x) ? std::nextafter(y, 0.0f) : y;
}
static inline int __double2int_rz(double x) { return x >= 2147483647.0 ? 2147483647 : x <= -2147483648.0 ? -2147483647 - 1 : (int)x; }
static inline unsigned __double2uint_rz(double x) { return x >= 4294967295.0 ? 4294967295u : x <= 0 ? 0 : (unsigned)x; }
static inline int __float2int_rz(float x) { return __double2int_rz(x); }
static inline unsigned __float2uint_rz(float x) { return __double2uint_rz(x); }
static inline float from_half(unsigned short bits) { return _cvtsh_ss(bits); }
static inline unsigned short to_half(float x) { return _cvtss_sh(x, 0); }
static inline unsigned short to_half(double x) {
    float cut = __double2float_rz(x);
    if (x == x && (double)cut != x) cut = __int_as_float(__float_as_int(cut) | 1);
    return to_half(cut);
}

// Calls a kernel with pointers to its arguments, as a launch has them.
template <class... A, std::size_t... I>
static void call(void (*kernel)(A...), void **arguments, std::index_sequence<I...>) {
    kernel(*(std::remove_const_t<A> *)arguments[I]...);
}
template <class... A> static void call(void (*kernel)(A...), void **arguments) {
    pthread_barrier_init(&barrier, nullptr, blockDim.x);
    for (unsigned block = 0; block < gridDim.x; block++) {
        std::thread threads[8];
        for (unsigned i = 0; i < blockDim.x; i++) {
            threads[i] = std::thread([=] {
                blockIdx.x = block;
                threadIdx.x = i;
                call(kernel, arguments, std::index_sequence_for<A...>());
            });
        }
        for (std::thread &thread : threads) thread.join();
    }
    pthread_barrier_destroy(&barrier);
}
#define CARVE_EXPORT(kernel) extern "C" void carve_host_##kernel(void **arguments) { call(kernel, arguments); }
