// Histograms in shared and global memory, locks between lanes and between CTAs, 64-bit and floating atomics, warp aggregation.
#include <cstdint>

extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, int n)
{
    __shared__ unsigned own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&own[x[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (own[i]) atomicAdd(&bins[i], own[i]);
}

// Every thread takes the lock, also those of one warp: forward progress of diverged lanes.
extern "C" __global__ void locked_sum(int *lock, volatile long long *sum, const int *x)
{
    int mine = x[blockIdx.x * blockDim.x + threadIdx.x];
    while (atomicCAS(lock, 0, 1) != 0) { }
    __threadfence();
    *sum += mine;
    __threadfence();
    atomicExch(lock, 0);
}

// The form that worked before Volta, too: the critical section inside the loop.
extern "C" __global__ void locked_inside(unsigned *lock, volatile unsigned *list, unsigned *count)
{
    bool done = false;
    while (!done) {
        if (atomicExch(lock, 1u) == 0) {
            unsigned k = *(volatile unsigned *)count;
            list[k] = blockIdx.x * blockDim.x + threadIdx.x;
            *(volatile unsigned *)count = k + 1;
            __threadfence();
            atomicExch(lock, 0u);
            done = true;
        }
    }
}

// One shared-memory lock per bucket.
extern "C" __global__ void buckets(const int *x, int *most, int *count)
{
    __shared__ int locks[8], best[8], seen[8];
    if (threadIdx.x < 8) locks[threadIdx.x] = 0, best[threadIdx.x] = -1, seen[threadIdx.x] = 0;
    __syncthreads();
    int v = x[threadIdx.x], b = v & 7;
    while (atomicCAS_block(&locks[b], 0, 1)) __nanosleep(20);
    __threadfence_block();
    if (v > ((volatile int *)best)[b]) ((volatile int *)best)[b] = v;
    ((volatile int *)seen)[b] = ((volatile int *)seen)[b] + 1;
    __threadfence_block();
    atomicExch_block(&locks[b], 0);
    __syncthreads();
    if (threadIdx.x < 8) most[threadIdx.x] = best[threadIdx.x], count[threadIdx.x] = seen[threadIdx.x];
}

extern "C" __global__ void many_kinds(const int *x, int *r, unsigned long long *wide, float *f, double *d, unsigned *wrapped)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
    atomicMin(&r[0], v), atomicMax(&r[1], v), atomicAnd(&r[2], v | 0xff), atomicOr(&r[3], v & 0xff00), atomicXor(&r[4], v);
    atomicSub(&r[5], 3);
    atomicAdd(&wide[0], (unsigned long long)v << 20), atomicMax(&wide[1], (unsigned long long)v * v);
    atomicAdd(f, (float)(v & 7)), atomicAdd(d, 0.5 * (v & 3));
    atomicInc(wrapped, 99), atomicDec(wrapped + 1, 49);
}

extern "C" __global__ void compact(const int *x, int *y, int *count, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool keep = i < n && x[i] % 3 == 0;
    unsigned votes = __ballot_sync(0xffffffffu, keep), lane = threadIdx.x % 32;
    int base = 0;
    if (lane == 0 && votes) base = atomicAdd(count, __popc(votes));
    base = __shfl_sync(0xffffffffu, base, 0);
    if (keep) y[base + __popc(votes & ((1u << lane) - 1))] = x[i];
}

extern "C" __global__ void flag_between_blocks(int *flag, int *data, int *out)
{
    if (blockIdx.x == 0) {
        data[threadIdx.x] = 7 * threadIdx.x;
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            atomicExch(flag, 1);
        }
    } else {
        if (threadIdx.x == 0) {
            while (atomicAdd(flag, 0) == 0) { }
            __threadfence();
        }
        __syncthreads();
        out[threadIdx.x] = ((volatile int *)data)[threadIdx.x] + 1;
    }
}
