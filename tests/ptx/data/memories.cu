// State spaces, initialisers, atomics, half precision, warp functions.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
struct Point { float x; int y; short z[2]; };
__constant__ float weights[2][3] = {{1.0f, 2.5f, -3.0f}, {0.1f}};
__constant__ Point corner = {1.5f, -2, {3, 4}};
__device__ unsigned char bytes[8] = {1, 2, 3, 255};
__device__ double sums[4] = {1e300, -0.5};
__device__ int counter = 42;
__device__ int *counter_address = &counter;
__device__ const char *message = "constant text";
__device__ __managed__ long long shared_with_host = -1;
__global__ void spaces(float *out, int n) {
    __shared__ float tile[4][32];
    __shared__ __align__(128) int flags[3];
    extern __shared__ __align__(16) char dynamic[];
    float local[16];
    for (int i = 0; i < 16; ++i) local[i] = weights[i & 1][i % 3] * n;
    tile[threadIdx.y][threadIdx.x] = local[n & 15] + corner.x + bytes[n & 7];
    if (threadIdx.x < 3) flags[threadIdx.x] = atomicAdd(&counter, 1);
    ((int *)dynamic)[threadIdx.x] = flags[0] + message[n];
    __syncthreads();
    out[threadIdx.x] = tile[0][threadIdx.x ^ 1] + ((int *)dynamic)[31 - threadIdx.x] + *counter_address + (float)sums[n & 3] + shared_with_host;
}
__global__ void atomics(int *p, unsigned long long *q, float *f, double *d, __half2 *h) {
    atomicMax(p, threadIdx.x); atomicCAS(p + 1, 3, 4); atomicExch(p + 2, 5); atomicAnd(p + 3, 6);
    atomicAdd(q, 7ull); atomicAdd(f, 1.0f); atomicAdd(d, 2.0); atomicAdd(h, __half2(1.0f, 2.0f)); atomicInc((unsigned *)p + 4, 9u);
    __threadfence(); __threadfence_block();
}
__global__ void halves(__half *a, __half2 *b, __nv_bfloat16 *c, __nv_bfloat162 *d, float *f) {
    int i = threadIdx.x;
    a[i] = __hfma(a[i], a[i + 32], __float2half(f[i]));
    b[i] = __hmul2(b[i], __hadd2(b[i + 1], b[i + 2]));
    c[i] = __hfma(c[i], c[i + 32], __float2bfloat16(f[i]));
    d[i] = __hmax2(d[i], d[i + 1]);
    f[i] = __half2float(h2exp2(b[i]).x) + __bfloat162float(c[i]) + __expf(f[i]) + rsqrtf(f[i]) + sinf(f[i + 1]);
}
__global__ void warps(unsigned *out, float v) {
    unsigned x = out[threadIdx.x];
    x = __shfl_xor_sync(~0u, x, 1) + __shfl_up_sync(~0u, x, 2) + __shfl_down_sync(~0u, x, 3) + __shfl_sync(~0u, x, 4, 8);
    x += __ballot_sync(~0u, x > 3) + __any_sync(~0u, x > 4) + __match_any_sync(~0u, x) + __reduce_add_sync(~0u, x);
    x += __syncthreads_count(x > 1) + __syncthreads_or(x) + (unsigned)clock64() + __activemask() + __umulhi(x, 77) + __funnelshift_l(x, x, 3) + __byte_perm(x, x, 0x1032) + __dp4a(x, x, x);
    unsigned __int128 wide = (unsigned __int128)x * x; out[threadIdx.x] = (unsigned)(wide >> 40);
}
