// Kernels of the contract suite; src/kernels.rs declares them.

// out[i] = a * x[i]
extern "C" __global__ void contract_scale(unsigned n, float a, float *out, const float *x) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        out[i] = a * x[i];
    }
}

// x[i] += step, with the count as 64 bits and the step as 16: arguments of several sizes.
extern "C" __global__ void contract_count(unsigned long long n, unsigned short step, unsigned *x) {
    for (unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x; i < n;
         i += (unsigned long long)gridDim.x * blockDim.x) {
        x[i] += step;
    }
}

// out[i] = x[i] + y[i]
extern "C" __global__ void contract_add(unsigned n, float *out, const float *x, const float *y) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        out[i] = x[i] + y[i];
    }
}
