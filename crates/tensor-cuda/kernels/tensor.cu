// The kernels of tensor-cuda. Each does what its model in src/kernels does, with the same arguments; a file here and a
// file there have the same name. `cargo xtask ptx` compiles this to tensor.ptx. No header is needed. `cargo xtask
// test-kernels` compiles it for the host instead, behind host.h, and compares it with the models.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// ---- element types: as they lie in memory, and as they are computed with ----

struct f16 { u16 bits; };
struct bf16 { u16 bits; };
template <class R> struct cplx { R re, im; };
typedef cplx<float> c32;
typedef cplx<double> c64;

template <class T> struct wide { typedef T type; };
template <> struct wide<f16> { typedef float type; };
template <> struct wide<bf16> { typedef float type; };
// What an absolute value is stored as.
template <class T> struct magnitude { typedef T type; };
template <class R> struct magnitude<cplx<R> > { typedef R type; };

__device__ float widen(float x) { return x; }
__device__ double widen(double x) { return x; }
template <class R> __device__ cplx<R> widen(cplx<R> x) { return x; }
#ifndef CARVE_HOST
__device__ float from_half(u16 bits) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
}
__device__ u16 to_half(float x) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ u16 to_half(double x) {
    u16 bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
    return bits;
}
#endif
__device__ float widen(f16 x) { return from_half(x.bits); }
__device__ float widen(bf16 x) { return __int_as_float((int)((u32)x.bits << 16)); }

__device__ void narrow(float x, float &to) { to = x; }
__device__ void narrow(double x, double &to) { to = x; }
template <class R> __device__ void narrow(cplx<R> x, cplx<R> &to) { to = x; }
__device__ void narrow(float x, f16 &to) { to.bits = to_half(x); }
__device__ void narrow(float x, bf16 &to) {
    u32 bits = (u32)__float_as_int(x);
    // A NaN stays one; all else is rounded to the nearest, half to even.
    to.bits = x != x ? (u16)(bits >> 16 | 0x40) : (u16)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// ---- arithmetic of complex numbers ----

template <class R> __device__ cplx<R> make(R re, R im) { cplx<R> x = {re, im}; return x; }
template <class R> __device__ cplx<R> operator+(cplx<R> x, cplx<R> y) { return make<R>(x.re + y.re, x.im + y.im); }
template <class R> __device__ cplx<R> operator-(cplx<R> x) { return make<R>(-x.re, -x.im); }
template <class R> __device__ cplx<R> operator*(cplx<R> x, cplx<R> y) {
    return make<R>(x.re * y.re - x.im * y.im, x.re * y.im + x.im * y.re);
}
template <class R> __device__ bool operator==(cplx<R> x, cplx<R> y) { return x.re == y.re && x.im == y.im; }

template <class W> struct constant {
    static __device__ W zero() { return 0; }
    static __device__ W one() { return 1; }
};
template <class R> struct constant<cplx<R> > {
    static __device__ cplx<R> zero() { return make<R>(0, 0); }
    static __device__ cplx<R> one() { return make<R>(1, 0); }
};

template <class W> __device__ bool is_zero(W x) { return x == constant<W>::zero(); }
template <class W> __device__ bool is_one(W x) { return x == constant<W>::one(); }

__device__ float conjugate(float x) { return x; }
__device__ double conjugate(double x) { return x; }
template <class R> __device__ cplx<R> conjugate(cplx<R> x) { return make<R>(x.re, -x.im); }

__device__ bool is_nan(float x) { return x != x; }
__device__ bool is_nan(double x) { return x != x; }
template <class R> __device__ bool is_nan(cplx<R> x) { return x.re != x.re || x.im != x.im; }

__device__ double absolute(float x) { return fabs((double)x); }
__device__ double absolute(double x) { return fabs(x); }
template <class R> __device__ double absolute(cplx<R> x) { return hypot((double)x.re, (double)x.im); }

// ---- functions of one element, by the codes in src/map.rs ----

enum { NOTHING, NEGATE, ABSOLUTE, CONJUGATE, SQUARE, SQUARE_ROOT, RECIPROCAL, EXPONENTIAL, LOGARITHM, SINE, COSINE, TANH, SIGMOID, RELU };

template <class R> __device__ R apply_real(R x, u32 code) {
    switch (code) {
    case NEGATE: return -x;
    case ABSOLUTE: return x < 0 || (x == 0 && 1 / x < 0) ? -x : x;
    case SQUARE: return x * x;
    case SQUARE_ROOT: return sqrt(x);
    case RECIPROCAL: return 1 / x;
    case EXPONENTIAL: return exp(x);
    case LOGARITHM: return log(x);
    case SINE: return sin(x);
    case COSINE: return cos(x);
    case TANH: return tanh(x);
    case SIGMOID: return 1 / (1 + exp(-x));
    case RELU: return x < 0 ? (R)0 : x;
    default: return x;
    }
}

template <class R> __device__ cplx<R> apply_complex(cplx<R> x, u32 code) {
    switch (code) {
    case NEGATE: return -x;
    case ABSOLUTE: return make<R>((R)absolute(x), 0);
    case CONJUGATE: return conjugate(x);
    case SQUARE: return x * x;
    case SQUARE_ROOT: {
        if (x.re == 0 && x.im == 0) return make<R>(0, x.im);
        // The half that does not cancel, and the other one from it.
        R half = sqrt((hypot(x.re, x.im) + fabs(x.re)) / 2);
        R other = x.im / (2 * half);
        return x.re >= 0 ? make<R>(half, other) : make<R>(fabs(other), copysign(half, x.im));
    }
    case RECIPROCAL: {
        R norm = x.re * x.re + x.im * x.im;
        return make<R>(x.re / norm, -x.im / norm);
    }
    case EXPONENTIAL: {
        R size = exp(x.re);
        return x.im == 0 ? make<R>(size, x.im) : make<R>(size * cos(x.im), size * sin(x.im));
    }
    case LOGARITHM: return make<R>(log(hypot(x.re, x.im)), atan2(x.im, x.re));
    case SINE: return make<R>(sin(x.re) * cosh(x.im), cos(x.re) * sinh(x.im));
    case COSINE: return make<R>(cos(x.re) * cosh(x.im), -sin(x.re) * sinh(x.im));
    case TANH: {
        R denominator = cosh(2 * x.re) + cos(2 * x.im);
        return make<R>(sinh(2 * x.re) / denominator, sin(2 * x.im) / denominator);
    }
    default: return x;
    }
}

// One of each in the module, which all kernels call.
__device__ __noinline__ float apply(float x, u32 code) { return apply_real(x, code); }
__device__ __noinline__ double apply(double x, u32 code) { return apply_real(x, code); }
__device__ __noinline__ c32 apply(c32 x, u32 code) { return apply_complex(x, code); }
__device__ __noinline__ c64 apply(c64 x, u32 code) { return apply_complex(x, code); }

// ---- walks: how kernels read the dimensions of a plan (src/kernels/walk.rs) ----

struct pair { i64 of[2]; };
struct codes { u32 of[4]; };

#define PLAN pair p0, pair p1, pair p2, pair p3, pair p4, pair p5, pair p6, pair p7
#define NUMBERS                                                                                                         \
    i64 numbers[16] = {p0.of[0], p0.of[1], p1.of[0], p1.of[1], p2.of[0], p2.of[1], p3.of[0], p3.of[1],                  \
                       p4.of[0], p4.of[1], p5.of[0], p5.of[1], p6.of[0], p6.of[1], p7.of[0], p7.of[1]};

// Adds to the positions of `K` operands those of one step along a dimension; where a stride is negative, from the other end.
template <int K> __device__ void step_along(const i64 *dim, u64 here, i64 *position) {
    for (int k = 0; k < K; k++) {
        i64 step = dim[1 + k];
        position[k] += step < 0 ? -step * (i64)((u64)dim[0] - 1 - here) : step * (i64)here;
    }
}

// Adds the positions of the `index`-th element of several dimensions. One of each in the module.
template <int K, class I>
__device__ __noinline__ void find(const i64 *numbers, u32 first, u32 end, I index, i64 *position) {
#pragma unroll 1
    for (u32 dim = end; dim-- > first;) {
        I length = (I)numbers[dim * (K + 1)], here = index % length;
        index /= length;
        step_along<K>(numbers + dim * (K + 1), here, position);
    }
}

// The dimensions from `first` to `end` of `K` operands.
template <int K> struct walk {
    const i64 *numbers;
    u32 first, end;

    __device__ walk(const i64 *numbers, u32 first, u32 end) : numbers(numbers), first(first), end(end) {}

    __device__ u64 count() const {
        u64 count = 1;
#pragma unroll 1
        for (u32 dim = first; dim < end; dim++) count *= (u64)numbers[dim * (K + 1)];
        return count;
    }

    // Adds the positions of the `index`-th element.
    __device__ void at(u64 index, bool is_wide, i64 *position) const {
        if (end - first == 1) step_along<K>(numbers + first * (K + 1), index, position);
        else if (is_wide) find<K, u64>(numbers, first, end, index, position);
        else if (end > first) find<K, u32>(numbers, first, end, (u32)index, position);
    }
};

// Calls `body` with the positions of each element of a walk, over all threads of the grid.
template <int K, class F> __device__ void each(const walk<K> &dims, bool is_wide, F body) {
    u64 count = dims.count(), step = (u64)gridDim.x * blockDim.x;
#pragma unroll 1
    for (u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x; i < count; i += step) {
        i64 position[K] = {};
        dims.at(i, is_wide, position);
        body(position);
    }
}

// ---- fill, copy: elements of so many bytes, in parts of their alignment ----

struct b1 { u8 of[1]; };
struct b2 { u16 of[1]; };
struct b4 { u32 of[1]; };
struct b8 { u32 of[2]; };
struct b16 { u64 of[2]; };

#define FILL(T)                                                                                                         \
    extern "C" __global__ void fill_##T(T *out, PLAN, codes code, T value) {                                            \
        NUMBERS                                                                                                         \
        each(walk<1>(numbers, 0, code.of[0]), code.of[1], [&](const i64 *at) { out[at[0]] = value; });                   \
    }
#define COPY(T)                                                                                                         \
    extern "C" __global__ void copy_##T(T *out, const T *a, PLAN, codes code) {                                         \
        NUMBERS                                                                                                         \
        each(walk<2>(numbers, 0, code.of[0]), code.of[1], [&](const i64 *at) { out[at[0]] = a[at[1]]; });                \
    }
FILL(b1) FILL(b2) FILL(b4) FILL(b8) FILL(b16)
COPY(b1) COPY(b2) COPY(b4) COPY(b8) COPY(b16)

// ---- combine ----

enum { SUM_FORM, PRODUCT_FORM, IN_PLACE };

template <class W> struct terms {
    W sum;
    bool any;
    // A coefficient of 0 leaves its term out, one of 1 changes nothing.
    __device__ void add(bool read, W factor, W value) {
        if (!read) return;
        W term = is_one(factor) ? value : factor * value;
        sum = any ? sum + term : term;
        any = true;
    }
};

template <class T>
__device__ void combine(T *out, const T *a, const T *b, const i64 *numbers, codes code, T alpha_, T beta_, T gamma_) {
    typedef typename wide<T>::type W;
    W alpha = widen(alpha_), beta = widen(beta_), gamma = widen(gamma_);
    u32 form = code.of[2] & 0xff;
    bool conjugate_a = code.of[2] >> 8 & 1, conjugate_b = code.of[2] >> 9 & 1;
    bool reads_a = !is_zero(alpha);
    bool reads_b = form == SUM_FORM ? !is_zero(beta) : form == PRODUCT_FORM && reads_a;
    bool reads_out = form == IN_PLACE ? reads_a : !is_zero(gamma);
    each(walk<3>(numbers, 0, code.of[0]), code.of[1], [&](const i64 *at) {
        W zero = constant<W>::zero();
        W x = reads_a ? widen(a[at[1]]) : zero, y = reads_b ? widen(b[at[2]]) : zero;
        W before = reads_out ? widen(out[at[0]]) : zero;
        if (conjugate_a) x = conjugate(x);
        if (conjugate_b) y = conjugate(y);
        terms<W> all = {zero, false};
        switch (form) {
        case SUM_FORM: all.add(reads_a, alpha, x); all.add(reads_b, beta, y); break;
        case PRODUCT_FORM: all.add(reads_a, alpha, x * y); break;
        default: all.add(reads_out, alpha, x * before);
        }
        if (form != IN_PLACE) all.add(reads_out, gamma, before);
        W value = code.of[3] == NOTHING ? all.sum : apply(all.sum, code.of[3]);
        narrow(value, out[at[0]]);
    });
}

// ---- map ----

template <class T> __device__ void map(T *out, const T *a, const i64 *numbers, codes code) {
    each(walk<2>(numbers, 0, code.of[0]), code.of[1], [&](const i64 *at) {
        typename wide<T>::type x = widen(a[at[1]]);
        if (code.of[2]) x = conjugate(x);
        narrow(code.of[3] == NOTHING ? x : apply(x, code.of[3]), out[at[0]]);
    });
}

// ---- reductions: a block for each result, always in the same order ----

const u32 THREADS = 256;
const u32 CONJUGATED = 1 << 8;

// Calls `start` for each result, `element` with the elements of each thread, and `merge` until thread 0 has all, which
// `finish` stores.
template <class S, class E, class M, class F>
__device__ void reduce_blocks(const i64 *numbers, codes code, S start, E element, M merge, F finish) {
    typedef decltype(start()) State;
    __shared__ u64 memory[THREADS * sizeof(State) / sizeof(u64)];
    State *states = (State *)memory;
    walk<2> kept(numbers, 0, code.of[0]), reduced(numbers, code.of[0], code.of[1]);
    u64 results = kept.count(), count = reduced.count();
    bool is_wide = code.of[2] & 1;
    u32 threads = blockDim.x < THREADS ? blockDim.x : THREADS;
    for (u64 result = blockIdx.x; result < results; result += gridDim.x) {
        i64 place[2] = {};
        kept.at(result, is_wide, place);
        State state = start();
#pragma unroll 1
        for (u64 j = threadIdx.x; threadIdx.x < threads && j < count; j += threads) {
            i64 position[2] = {0, place[1]};
            reduced.at(j, is_wide, position);
            element(state, position[1], j);
        }
        if (threadIdx.x < threads) states[threadIdx.x] = state;
        __syncthreads();
#pragma unroll 1
        for (u32 width = THREADS / 2; width > 0; width /= 2) {
            if (threadIdx.x < width && threadIdx.x + width < threads) merge(states[threadIdx.x], states[threadIdx.x + width]);
            __syncthreads();
        }
        if (threadIdx.x == 0) finish(states[0], place[0]);
        __syncthreads();
    }
}

enum { SUM, MAX, MIN };

template <class W> struct reduced { W value; u64 any; };

__device__ bool below(float x, float y) { return x < y; }
__device__ bool below(double x, double y) { return x < y; }
// Complex numbers have no order; only sums of them are launched.
template <class R> __device__ bool below(cplx<R>, cplx<R>) { return false; }

template <class W> __device__ W combine_two(u32 what, W before, W x) {
    if (what == SUM) return before + x;
    if (is_nan(before)) return before;
    if (is_nan(x)) return x;
    bool less = below(before, x);
    return (what == MAX) == less ? x : before;
}

template <class T> __device__ void reduce(T *out, const T *a, const i64 *numbers, codes code) {
    typedef typename wide<T>::type W;
    typedef reduced<W> State;
    u32 what = code.of[3];
    bool conjugated = code.of[2] & CONJUGATED;
    reduce_blocks(
        numbers, code,
        [] { State state = {constant<W>::zero(), 0}; return state; },
        [&](State &state, i64 at, u64) {
            W x = widen(a[at]);
            if (conjugated) x = conjugate(x);
            state.value = state.any ? combine_two(what, state.value, x) : x;
            state.any = 1;
        },
        [&](State &state, const State &other) {
            if (!other.any) return;
            state.value = state.any ? combine_two(what, state.value, other.value) : other.value;
            state.any = 1;
        },
        [&](const State &state, i64 at) { narrow(state.value, out[at]); });
}

enum { ONE, TWO, INFINITY_NORM };

// Squares are summed relative to the largest value, so that they neither overflow nor vanish.
struct norm_state { double sum, scale; };

__device__ void add_squares(norm_state &state, double sum, double scale) {
    if (scale != scale || state.scale != state.scale) {
        state.scale = state.scale + scale;
    } else if (scale > state.scale) {
        double ratio = state.scale / scale;
        state.sum = state.scale == 0 ? sum : sum + state.sum * (ratio * ratio);
        state.scale = scale;
    } else if (scale != 0 && !isinf(state.scale)) {
        double ratio = scale / state.scale;
        state.sum += sum * (ratio * ratio);
    }
}

__device__ void narrow_magnitude(double x, float &to) { to = (float)x; }
__device__ void narrow_magnitude(double x, double &to) { to = x; }
__device__ void narrow_magnitude(double x, f16 &to) { narrow((float)x, to); }
__device__ void narrow_magnitude(double x, bf16 &to) { narrow((float)x, to); }

template <class T> __device__ void norm(typename magnitude<T>::type *out, const T *a, const i64 *numbers, codes code) {
    u32 what = code.of[3];
    reduce_blocks(
        numbers, code,
        [] { norm_state state = {0, 0}; return state; },
        [&](norm_state &state, i64 at, u64) {
            double x = absolute(widen(a[at]));
            if (what == ONE) state.sum += x;
            else if (what == TWO) add_squares(state, 1, x);
            else state.sum = state.sum != state.sum || x != x ? state.sum + x : (x > state.sum ? x : state.sum);
        },
        [&](norm_state &state, const norm_state &other) {
            if (what == ONE) state.sum += other.sum;
            else if (what == TWO) add_squares(state, other.sum, other.scale);
            else if (is_nan(state.sum) || is_nan(other.sum)) state.sum += other.sum;
            else if (other.sum > state.sum) state.sum = other.sum;
        },
        [&](const norm_state &state, i64 at) {
            bool finite = !is_nan(state.scale) && !isinf(state.scale);
            narrow_magnitude(what != TWO ? state.sum : finite ? state.scale * sqrt(state.sum) : state.scale, out[at]);
        });
}

// ---- argmax: the first of the largest; a NaN counts as the largest ----

template <class W> struct largest { W value; u64 index; };
const u64 NOWHERE = ~0ull;

template <class W> __device__ bool is_better(const largest<W> &x, const largest<W> &than) {
    if (than.index == NOWHERE) return true;
    if (is_nan(x.value) != is_nan(than.value)) return is_nan(x.value);
    if (below(than.value, x.value)) return true;
    return !below(x.value, than.value) && x.index < than.index;
}

template <class T> __device__ void argmax(u32 *out, const T *a, const i64 *numbers, codes code) {
    typedef typename wide<T>::type W;
    typedef largest<W> State;
    reduce_blocks(
        numbers, code,
        [] { State state = {constant<W>::zero(), NOWHERE}; return state; },
        [&](State &state, i64 at, u64 j) {
            State here = {widen(a[at]), j};
            if (is_better(here, state)) state = here;
        },
        [&](State &state, const State &other) {
            if (other.index != NOWHERE && is_better(other, state)) state = other;
        },
        [&](const State &state, i64 at) { out[at] = state.index == NOWHERE ? 0 : (u32)state.index; });
}

// ---- products: C = alpha A B + beta C, a thread for each element; what cuBLAS is not there for ----

struct pair64 { u64 of[2]; };

template <class T>
__device__ void gemm(T *c, const T *a, const T *b, u8 *workspace, pair64 mn, pair64 kb, pair64 of_c, pair64 of_a,
                     pair64 of_b, pair64 ca, pair64 bw, codes conjugated, T alpha_, T beta_) {
    typedef typename wide<T>::type W;
    W alpha = widen(alpha_), beta = widen(beta_);
    u64 m = mn.of[0], n = mn.of[1], k = is_zero(alpha) ? 0 : kb.of[0], batch = kb.of[1];
    u64 first = blockIdx.x * (u64)blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    if (m == 0 || n == 0 || batch == 0) return;
    for (u64 i = first; i < bw.of[1]; i += step) workspace[i] = 0;
    for (u64 i = first; i < m * n * batch; i += step) {
        u64 row = i / n % m, column = i % n, product = i / n / m;
        const T *x = a + product * ca.of[1] + row * of_a.of[0], *y = b + product * bw.of[0] + column * of_b.of[1];
        T *to = c + product * ca.of[0] + row * of_c.of[0] + column * of_c.of[1];
        W sum = constant<W>::zero();
#pragma unroll 4
        for (u64 l = 0; l < k; l++) {
            W p = widen(x[l * of_a.of[1]]), q = widen(y[l * of_b.of[0]]);
            if (conjugated.of[0]) p = conjugate(p);
            if (conjugated.of[1]) q = conjugate(q);
            sum = sum + p * q;
        }
        W result = k == 0 ? constant<W>::zero() : alpha * sum;
        if (!is_zero(beta)) result = beta * widen(*to) + result;
        narrow(result, *to);
    }
}

#define NUMBER(T)                                                                                                       \
    extern "C" __global__ void combine_##T(T *out, const T *a, const T *b, PLAN, codes code, T alpha, T beta, T gamma) { \
        NUMBERS combine<T>(out, a, b, numbers, code, alpha, beta, gamma);                                               \
    }                                                                                                                   \
    extern "C" __global__ void map_##T(T *out, const T *a, PLAN, codes code) {                                          \
        NUMBERS map<T>(out, a, numbers, code);                                                                          \
    }                                                                                                                   \
    extern "C" __global__ void reduce_##T(T *out, const T *a, PLAN, codes code) {                                       \
        NUMBERS reduce<T>(out, a, numbers, code);                                                                       \
    }                                                                                                                   \
    extern "C" __global__ void norm_##T(magnitude<T>::type *out, const T *a, PLAN, codes code) {                        \
        NUMBERS norm<T>(out, a, numbers, code);                                                                         \
    }                                                                                                                   \
    extern "C" __global__ void gemm_##T(T *c, const T *a, const T *b, u8 *workspace, pair64 mn, pair64 kb, pair64 of_c,  \
                                        pair64 of_a, pair64 of_b, pair64 ca, pair64 bw, codes conjugated, T alpha,      \
                                        T beta) {                                                                       \
        gemm<T>(c, a, b, workspace, mn, kb, of_c, of_a, of_b, ca, bw, conjugated, alpha, beta);                         \
    }
#define REAL(T)                                                                                                         \
    NUMBER(T)                                                                                                           \
    extern "C" __global__ void argmax_##T(u32 *out, const T *a, PLAN, codes code) {                                     \
        NUMBERS argmax<T>(out, a, numbers, code);                                                                       \
    }
typedef float f32;
typedef double f64;
REAL(f32) REAL(f64) REAL(f16) REAL(bf16)
NUMBER(c32) NUMBER(c64)

// ---- casts: to the nearest; to whole numbers cut off, and the nearest one where out of range ----

typedef int i32;

template <class S> struct signless { static __device__ S conjugate(S x) { return x; } };
template <class R> struct signless<cplx<R> > { static __device__ cplx<R> conjugate(cplx<R> x) { return ::conjugate(x); } };

// The conversions to whole numbers give the nearest one for what is out of range; of NaN some give something else than 0.
__device__ void cast(float x, double &to) { to = x; }
__device__ void cast(float x, f16 &to) { narrow(x, to); }
__device__ void cast(float x, bf16 &to) { narrow(x, to); }
__device__ void cast(float x, i32 &to) { to = x != x ? 0 : __float2int_rz(x); }
__device__ void cast(float x, u32 &to) { to = x != x ? 0 : __float2uint_rz(x); }
__device__ void cast(float x, c32 &to) { to = make<float>(x, 0); }
__device__ void cast(double x, float &to) { to = (float)x; }
__device__ void cast(double x, f16 &to) { to.bits = to_half(x); }
__device__ void cast(double x, bf16 &to) {
    // Cut off with a trace of what was lost in the last bit, so that rounding happens once.
    float cut = __double2float_rz(x);
    if (x == x && (double)cut != x) cut = __int_as_float(__float_as_int(cut) | 1);
    narrow(cut, to);
}
__device__ void cast(double x, i32 &to) { to = x != x ? 0 : __double2int_rz(x); }
__device__ void cast(double x, u32 &to) { to = x != x ? 0 : __double2uint_rz(x); }
__device__ void cast(double x, c64 &to) { to = make<double>(x, 0); }
template <class D> __device__ void cast(f16 x, D &to) { cast(widen(x), to); }
template <class D> __device__ void cast(bf16 x, D &to) { cast(widen(x), to); }
__device__ void cast(float x, float &to) { to = x; }
__device__ void cast(i32 x, float &to) { to = (float)x; }
__device__ void cast(i32 x, double &to) { to = x; }
__device__ void cast(u32 x, float &to) { to = (float)x; }
__device__ void cast(u32 x, double &to) { to = x; }
__device__ void cast(c32 x, c64 &to) { to = make<double>(x.re, x.im); }
__device__ void cast(c64 x, c32 &to) { to = make<float>((float)x.re, (float)x.im); }

#define CAST(S, D)                                                                                                      \
    extern "C" __global__ void cast_##S##_##D(D *out, const S *a, PLAN, codes code) {                                   \
        NUMBERS                                                                                                         \
        each(walk<2>(numbers, 0, code.of[0]), code.of[1], [&](const i64 *at) {                                          \
            S x = a[at[1]];                                                                                             \
            cast(code.of[2] ? signless<S>::conjugate(x) : x, out[at[0]]);                                               \
        });                                                                                                             \
    }
CAST(f32, f64) CAST(f32, f16) CAST(f32, bf16) CAST(f32, i32) CAST(f32, u32) CAST(f32, c32)
CAST(f64, f32) CAST(f64, f16) CAST(f64, bf16) CAST(f64, i32) CAST(f64, u32) CAST(f64, c64)
CAST(f16, f32) CAST(f16, f64) CAST(f16, bf16)
CAST(bf16, f32) CAST(bf16, f64) CAST(bf16, f16)
CAST(i32, f32) CAST(i32, f64) CAST(u32, f32) CAST(u32, f64)
CAST(c32, c64) CAST(c64, c32)
