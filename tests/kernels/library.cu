// Libraries of CUDA: lambdas, CUB, cooperative groups, cuda::barrier and pipeline, packed halves, a lock, a cluster, SIMD in a word.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_radix_sort.cuh>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
namespace cg = cooperative_groups;

template <class F> __device__ void each(int n, F f) { for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) f(i); }
extern "C" __global__ void lambda(const float *x, float *y, int n) { float s = 3; each(n, [=](int i) { y[i] = s * x[i] + 1; }); }

extern "C" __global__ void cub_sum(const int *x, int *y)
{
    typedef cub::BlockReduce<int, 128> R; __shared__ typename R::TempStorage t;
    int s = R(t).Sum(x[blockIdx.x * 128 + threadIdx.x]); if (threadIdx.x == 0) y[blockIdx.x] = s;
}
extern "C" __global__ void cub_scan(const int *x, int *y)
{
    typedef cub::BlockScan<int, 128> R; __shared__ typename R::TempStorage t;
    int v = x[threadIdx.x], o; R(t).ExclusiveSum(v, o); y[threadIdx.x] = o;
}
extern "C" __global__ void cub_sort(unsigned *x)
{
    typedef cub::BlockRadixSort<unsigned, 64, 4> R;
    __shared__ union { typename R::TempStorage t; unsigned keep[256]; } u;
    unsigned k[4]; for (int i = 0; i < 4; i++) k[i] = x[threadIdx.x * 4 + i];
    R(u.t).Sort(k); __syncthreads();
    for (int i = 0; i < 4; i++) u.keep[threadIdx.x * 4 + i] = k[i];
    __syncthreads();
    for (int i = 0; i < 4; i++) x[i * 64 + threadIdx.x] = u.keep[i * 64 + threadIdx.x];
}
extern "C" __global__ void groups(const int *x, int *y)
{
    auto b = cg::this_thread_block(); auto t = cg::tiled_partition<16>(b);
    int s = cg::reduce(t, x[b.thread_rank()], cg::plus<int>());
    int m = cg::reduce(t, x[b.thread_rank()], cg::greater<int>());
    if (t.thread_rank() == 0) { y[b.thread_rank() / 16] = s; y[8 + b.thread_rank() / 16] = m; }
    if (x[b.thread_rank()] & 1) { auto a = cg::coalesced_threads(); y[16 + b.thread_rank()] = a.size() * 100 + a.thread_rank(); }
}
extern "C" __global__ void barrier(const int *x, int *y, int n)
{
    __shared__ cuda::barrier<cuda::thread_scope_block> b; __shared__ int s[2][64];
    if (threadIdx.x == 0) init(&b, blockDim.x);
    __syncthreads();
    for (int k = 0; k < n; k++) {
        cuda::memcpy_async(&s[k & 1][threadIdx.x], &x[k * 64 + threadIdx.x], sizeof(int), b);
        b.arrive_and_wait();
        y[k * 64 + threadIdx.x] = s[k & 1][63 - threadIdx.x];
    }
}
extern "C" __global__ void pipeline(const int *x, int *y, int n)
{
    __shared__ int s[2][64]; auto p = cuda::make_pipeline();
    p.producer_acquire(); cuda::memcpy_async(&s[0][threadIdx.x], &x[threadIdx.x], sizeof(int), p); p.producer_commit();
    int sum = 0;
    for (int k = 0; k < n; k++) {
        if (k + 1 < n) { p.producer_acquire(); cuda::memcpy_async(&s[(k + 1) & 1][threadIdx.x], &x[(k + 1) * 64 + threadIdx.x], sizeof(int), p); p.producer_commit(); 
        cuda::pipeline_consumer_wait_prior<1>(p); } else cuda::pipeline_consumer_wait_prior<0>(p);
        __syncthreads(); sum += s[k & 1][63 - threadIdx.x]; __syncthreads(); p.consumer_release();
    }
    y[threadIdx.x] = sum;
}
extern "C" __global__ void packed(const __half2 *x, __half2 *y, const __nv_bfloat162 *u, __nv_bfloat162 *v)
{
    int i = threadIdx.x; y[i] = __hfma2(x[i], x[i], __float2half2_rn(0.5f)); v[i] = __hmax2(__hadd2(u[i], u[i]), __float2bfloat162_rn(-1.f));
}
extern "C" __global__ void spin(int *lock, int *count)
{
    unsigned ns = 8; while (atomicCAS(lock, 0, 1)) { __nanosleep(ns); if (ns < 256) ns *= 2; }
    __threadfence(); *(volatile int *)count += 1; __threadfence(); atomicExch(lock, 0);
}
extern "C" __global__ void __cluster_dims__(4) dsmem(int *y)
{
    __shared__ int s[32]; auto c = cg::this_cluster();
    s[threadIdx.x] = c.block_rank() * 100 + threadIdx.x; c.sync();
    int sum = 0; for (int r = 0; r < 4; r++) sum += c.map_shared_rank(s, r)[31 - threadIdx.x];
    c.sync(); y[blockIdx.x * 32 + threadIdx.x] = sum;
}
extern "C" __global__ void sad(const unsigned *x, const unsigned *y, unsigned *z) { int i = threadIdx.x; z[i] = __vsadu4(x[i], y[i]); z[32 + i] = __vabsdiffu4(x[i], y[i]); z[64 + i] = __vabsdiffs4(x[i], y[i]); z[96+i] = __vaddus4(x[i], y[i]); z[128+i]=__vmaxs2(x[i],y[i]); }
