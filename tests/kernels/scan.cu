// Prefix sums: inclusive within warps by shuffles, across warps through shared memory; and across CTAs by decoupled look-back.
extern "C" __global__ void scan_block(const int *x, int *y, int n)
{
    __shared__ int totals[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int v = i < n ? x[i] : 0;
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d) v += other;
    }
    if (lane == 31) totals[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int t = lane < blockDim.x / 32 ? totals[lane] : 0;
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(0xffffffffu, t, d);
            if (lane >= d) t += other;
        }
        totals[lane] = t;
    }
    __syncthreads();
    if (warp > 0) v += totals[warp - 1];
    if (i < n) y[i] = v;
}

// state[b] holds (flag << 32 | value): 1 the sum of block b, 2 the sum of all blocks up to b.
extern "C" __global__ void scan_lookback(const unsigned *x, unsigned *y, unsigned long long *state, int n)
{
    extern __shared__ unsigned buffer[];
    __shared__ unsigned before;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    buffer[threadIdx.x] = i < n ? x[i] : 0;
    for (int d = 1; d < blockDim.x; d *= 2) {
        __syncthreads();
        unsigned other = threadIdx.x >= d ? buffer[threadIdx.x - d] : 0;
        __syncthreads();
        buffer[threadIdx.x] += other;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        unsigned own = buffer[blockDim.x - 1], sum = 0;
        if (blockIdx.x > 0) {
            atomicExch(&state[blockIdx.x], 1ull << 32 | own);
            for (int b = blockIdx.x - 1; b >= 0; b--) {
                unsigned long long s;
                do s = atomicAdd(&state[b], 0ull); while (s >> 32 == 0);
                sum += (unsigned)s;
                if (s >> 32 == 2) break;
            }
        }
        atomicExch(&state[blockIdx.x], 2ull << 32 | (sum + own));
        before = sum;
    }
    __syncthreads();
    if (i < n) y[i] = before + buffer[threadIdx.x];
}
