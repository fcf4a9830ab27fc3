// Warp and block collectives, locks, named barriers.
#include <cstdint>
extern "C" __global__ void collectives(const int *x, int *y)
{
  int t = threadIdx.x, v = x[blockIdx.x * blockDim.x + t]; unsigned any = __match_any_sync(~0u, v % 7); int all; unsigned m = __match_all_sync(~0u, v / 1000, &all); unsigned long long w = (unsigned long long)v << 33;
  int r = __popc(any) + (int)(m & 255) + all * 3 + __reduce_add_sync(any, v) + (int)__reduce_xor_sync(~0u, (unsigned)v) + __reduce_max_sync(any, v) - __reduce_min_sync(~0u, v) + __shfl_down_sync(~0u, v, 3, 16) + (int)(__shfl_sync(~0u, w, (t * 5) & 31) >> 33) + __any_sync(any, v > 90) + __all_sync(any, v > 5) * 2 + (int)__ballot_sync(any, v & 1) + __uni_sync(any, v & 1) * 5;
  y[blockIdx.x * blockDim.x + t] = r + __syncthreads_count(v & 1) + __syncthreads_and(v >= 0) * 11 + __syncthreads_or(v == 3) * 13;
}
struct Mutex { int *p; __device__ void lock() { unsigned ns = 8; while (atomicCAS(p, 0, 1) != 0) { __nanosleep(ns); if (ns < 256) ns *= 2; } __threadfence(); } __device__ void unlock() { __threadfence(); atomicExch(p, 0); } };
extern "C" __global__ void mutexes(int *lock, double *sum, const double *x) { Mutex m{lock}; double v = x[blockIdx.x * blockDim.x + threadIdx.x]; for (int lane = 0; lane < 32; lane++) if (threadIdx.x % 32 == lane) { m.lock(); *(volatile double *)sum = *(volatile double *)sum + v; m.unlock(); } }
// ticket lock in shared memory, taken by one thread of each warp
extern "C" __global__ void tickets(int *y) { __shared__ volatile int next, serving; __shared__ int order[32]; if (threadIdx.x == 0) { next = 0; serving = 0; } __syncthreads(); if (threadIdx.x % 32 == 0) { int mine = atomicAdd((int *)&next, 1); while (atomicAdd((int *)&serving, 0) != mine) __nanosleep(40); order[mine] = threadIdx.x / 32; __threadfence_block(); atomicAdd((int *)&serving, 1); } __syncthreads(); if (threadIdx.x < blockDim.x / 32) y[threadIdx.x] = order[threadIdx.x]; }
// one warp fills, three drain, by bar.sync and bar.arrive
extern "C" __global__ void __launch_bounds__(128, 2) named(const int *x, int *y, int rounds)
{
  __shared__ int buf[96]; int w = threadIdx.x / 32, s = 0;
  for (int r = 0; r < rounds; r++)
    if (w == 0) { asm volatile("bar.sync 2, 128;" ::: "memory"); for (int i = threadIdx.x; i < 96; i += 32) buf[i] = x[r * 96 + i]; asm volatile("bar.arrive 1, 128;" ::: "memory"); }
    else { asm volatile("bar.arrive 2, 128;" ::: "memory"); asm volatile("bar.sync 1, 128;" ::: "memory"); s += buf[threadIdx.x - 32] * (r + 1); }
  if (w) y[threadIdx.x - 32] = s;
}
extern "C" __global__ void divergent_barriers(int *y) { int t = threadIdx.x; if (t < 64) { asm volatile("barrier.sync 1, 64;"); y[t] = t; asm volatile("barrier.sync 1, 64;"); } else { __syncwarp(); y[t] = -t; } __syncthreads(); unsigned p; asm volatile("{.reg .pred a, b; setp.lt.s32 a, %1, 10; barrier.red.or.pred b, 3, a; selp.u32 %0, 1, 0, b;}" : "=r"(p) : "r"(t)); y[t] += p; }
