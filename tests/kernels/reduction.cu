// Sums: shuffles in a warp, shared memory in a CTA, one atomic per CTA; and a second kernel with the last CTA done by ticket.
#include <cstdint>

__device__ unsigned int tickets;

__device__ __forceinline__ float warp_sum(float x)
{
    for (int offset = 16; offset > 0; offset /= 2) x += __shfl_down_sync(0xffffffffu, x, offset);
    return x;
}

extern "C" __global__ void sum_atomic(const float *x, float *total, int n)
{
    __shared__ float partial[32];
    float mine = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine += x[i];
    mine = warp_sum(mine);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
    __syncthreads();
    if (threadIdx.x < 32) {
        mine = threadIdx.x < blockDim.x / 32 ? partial[threadIdx.x] : 0.0f;
        mine = warp_sum(mine);
        if (threadIdx.x == 0) atomicAdd(total, mine);
    }
}

extern "C" __global__ void max_by_ticket(const int *x, int *partial, int *result, int n)
{
    __shared__ int best[256];
    __shared__ bool is_last;
    int mine = INT32_MIN;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) mine = max(mine, x[i]);
    best[threadIdx.x] = mine;
    __syncthreads();
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) best[threadIdx.x] = max(best[threadIdx.x], best[threadIdx.x + half]);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = best[0];
        __threadfence();
        is_last = atomicInc(&tickets, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        __threadfence();
        int all = INT32_MIN;
        for (int i = 0; i < gridDim.x; i++) all = max(all, ((volatile int *)partial)[i]);
        *result = all;
    }
}
