// libcu++ synchronisation: barriers, pipelines, semaphores, latches, atomics of every order and scope.
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/semaphore>
#include <cuda/latch>
#include <cuda/atomic>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void split_arrive(const int *x, int *y, int rounds)
{
  using B = cuda::barrier<cuda::thread_scope_block>; __shared__ B b; __shared__ int buf[2][128];
  if (threadIdx.x == 0) init(&b, blockDim.x);
  __syncthreads();
  int v = x[blockIdx.x * 128 + threadIdx.x];
  for (int r = 0; r < rounds; r++) { buf[r & 1][threadIdx.x] = v; auto token = b.arrive(); int other = v * 3; b.wait(std::move(token)); v = buf[r & 1][(threadIdx.x + 37) % 128] + other; }
  y[blockIdx.x * 128 + threadIdx.x] = v;
}
extern "C" __global__ void drop_threads(int *y)
{
  using B = cuda::barrier<cuda::thread_scope_block>; __shared__ B b; __shared__ int count;
  if (threadIdx.x == 0) { init(&b, blockDim.x); count = 0; }
  __syncthreads();
  for (int r = 0; r < 8; r++) { if (threadIdx.x == r * 4) { b.arrive_and_drop(); break; } atomicAdd(&count, 1); b.arrive_and_wait(); if (threadIdx.x == 100) y[r] = count; b.arrive_and_wait(); }
}
extern "C" __global__ void pipelined(const float *x, float *y, int tiles)
{
  constexpr auto scope = cuda::thread_scope_block; constexpr int stages = 3; __shared__ cuda::pipeline_shared_state<scope, stages> state; __shared__ alignas(16) float buf[stages][128];
  auto block = cg::this_thread_block(); auto pipe = cuda::make_pipeline(block, &state); float s = 0;
  for (int t = 0, f = 0; t < tiles; t++) {
    for (; f < tiles && f < t + stages; f++) { pipe.producer_acquire(); cuda::memcpy_async(block, buf[f % stages], x + ((size_t)blockIdx.x * tiles + f) * 128, cuda::aligned_size_t<16>(512), pipe); pipe.producer_commit(); }
    pipe.consumer_wait(); s = s * 0.5f + buf[t % stages][(threadIdx.x * 7 + t) % 128]; pipe.consumer_release();
  }
  y[blockIdx.x * 128 + threadIdx.x] = s;
}
extern "C" __global__ void partitioned(const int *x, int *y, int tiles)
{
  constexpr auto scope = cuda::thread_scope_block; __shared__ cuda::pipeline_shared_state<scope, 2> state; __shared__ int buf[2][64];
  auto block = cg::this_thread_block(); auto role = threadIdx.x < 64 ? cuda::pipeline_role::producer : cuda::pipeline_role::consumer; auto pipe = cuda::make_pipeline(block, &state, role);
  if (role == cuda::pipeline_role::producer) for (int t = 0; t < tiles; t++) { pipe.producer_acquire(); cuda::memcpy_async(&buf[t & 1][threadIdx.x], x + (blockIdx.x * tiles + t) * 64 + threadIdx.x, sizeof(int), pipe); pipe.producer_commit(); }
  else { int s = 0; for (int t = 0; t < tiles; t++) { pipe.consumer_wait(); s = s * 3 + buf[t & 1][127 - threadIdx.x]; pipe.consumer_release(); } y[blockIdx.x * 64 + threadIdx.x - 64] = s; }
}
extern "C" __global__ void async_barrier(const int4 *x, int4 *y, int n)
{
  using B = cuda::barrier<cuda::thread_scope_block>; __shared__ B b; extern __shared__ int4 stage[]; auto block = cg::this_thread_block();
  if (threadIdx.x == 0) init(&b, blockDim.x);
  block.sync();
  cuda::memcpy_async(block, stage, x + (size_t)blockIdx.x * n, sizeof(int4) * n, b); b.arrive_and_wait();
  for (int i = threadIdx.x; i < n; i += blockDim.x) { int4 v = stage[n - 1 - i]; y[blockIdx.x * n + i] = make_int4(v.w, v.z, v.y, v.x); }
}
__device__ cuda::binary_semaphore<cuda::thread_scope_device> gate{1}; __device__ cuda::counting_semaphore<cuda::thread_scope_device, 2> pool{2};
extern "C" __global__ void semaphores(int *total, int *most)
{
  using L = cuda::latch<cuda::thread_scope_block>; __shared__ alignas(L) char raw[sizeof(L)]; L &l = *reinterpret_cast<L *>(raw); if (threadIdx.x == 0) new (&l) L(blockDim.x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) { pool.acquire(); int now = atomicAdd(&most[0], 1); atomicMax(&most[1], now + 1); gate.acquire(); int v = *(volatile int *)total; __nanosleep(20); *(volatile int *)total = v + threadIdx.x + 1; gate.release(); atomicAdd(&most[0], -1); pool.release(); }
  l.arrive_and_wait();
  if (threadIdx.x == 0) atomicAdd(&most[2], 1);
}
template <cuda::thread_scope S> __device__ void orders(int *x)
{
  cuda::atomic_ref<int, S> a(x[0]); a.fetch_add(1, cuda::memory_order_relaxed); a.fetch_add(2, cuda::memory_order_acquire); a.fetch_add(3, cuda::memory_order_release); a.fetch_add(4, cuda::memory_order_acq_rel); a.fetch_add(5, cuda::memory_order_seq_cst);
  cuda::atomic_ref<int, S> m(x[1]); m.fetch_max(threadIdx.x * 7 % 31, cuda::memory_order_relaxed); cuda::atomic_ref<int, S> n(x[2]); n.fetch_min((int)(threadIdx.x * 5 % 29) - 9); cuda::atomic_ref<int, S> o(x[3]); o.fetch_or(1 << threadIdx.x % 32, cuda::memory_order_release); cuda::atomic_ref<int, S> e(x[4]); e.fetch_xor(threadIdx.x, cuda::memory_order_acquire);
  cuda::atomic_ref<int, S> c(x[5]); int old = c.load(cuda::memory_order_acquire); while (!c.compare_exchange_weak(old, old * 3 + 1 & 0xffff | (old & 0x10000), cuda::memory_order_acq_rel, cuda::memory_order_relaxed)) ;
  cuda::atomic_ref<int, S> s(x[6]); s.store(77, cuda::memory_order_release); cuda::atomic_thread_fence(cuda::memory_order_seq_cst, S); cuda::atomic_thread_fence(cuda::memory_order_acquire, S);
}
extern "C" __global__ void atomic_refs(int *x, float *f, double *d, unsigned char *bytes, short *words, unsigned long long *w)
{
  orders<cuda::thread_scope_block>(x + 8 * blockIdx.x); orders<cuda::thread_scope_device>(x + 32); orders<cuda::thread_scope_system>(x + 40);
  cuda::atomic_ref<float, cuda::thread_scope_device>(f[0]).fetch_add(threadIdx.x * 0.5f); cuda::atomic_ref<double, cuda::thread_scope_device>(d[0]).fetch_sub(threadIdx.x * 0.25); cuda::atomic_ref<float, cuda::thread_scope_device>(f[1]).fetch_max((float)(threadIdx.x ^ 21));
  cuda::atomic_ref<unsigned char, cuda::thread_scope_device>(bytes[threadIdx.x % 4]).fetch_add(3); cuda::atomic_ref<short, cuda::thread_scope_device>(words[threadIdx.x % 2]).fetch_sub(5); cuda::atomic_ref<unsigned long long, cuda::thread_scope_device>(w[0]).fetch_xor(1ull << threadIdx.x % 64);
}
