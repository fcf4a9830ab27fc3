// TMA by cuda::ptx: tensor loads and stores of one to five dimensions, reductions, multicast, hints, prefetches.
#include <cuda/ptx>
#include <cuda/barrier>
#include <cuda.h>
namespace ptx = cuda::ptx;
using barrier = cuda::barrier<cuda::thread_scope_block>;
template <int DIM> __device__ void through(const CUtensorMap *from, const CUtensorMap *to, const int (&c)[DIM], char *buf, uint64_t *bar, unsigned bytes, unsigned parity)
{
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, bar, bytes);
    ptx::cp_async_bulk_tensor(ptx::space_cluster, ptx::space_global, buf, from, c, bar);
    while (!ptx::mbarrier_try_wait_parity(bar, parity)) ;
    ptx::cp_async_bulk_tensor(ptx::space_global, ptx::space_shared, to, c, buf);
    ptx::cp_async_bulk_commit_group(); ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>());
  }
  __syncthreads();
}
#define BODY(DIM, ...) extern "C" __global__ void copy_##DIM##d(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, unsigned bytes, int steps, int step) { \
  extern __shared__ __align__(1024) char buf[]; __shared__ uint64_t bar; \
  if (threadIdx.x == 0) { ptx::mbarrier_init(&bar, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); } __syncthreads(); \
  for (int i = 0; i < steps; i++) { const int c[DIM] = {__VA_ARGS__}; through<DIM>(&from, &to, c, buf, &bar, bytes, i & 1); } }
BODY(1, i * step)
BODY(2, i * step, 2)
BODY(3, i * step, 0, 1)
BODY(4, i * step, 0, 1, 2)
BODY(5, i * step, 0, 1, 0, 1)
// each CTA of a cluster of two fetches half of the tile and gives it to both; the tile is then summed into `out` by TMA
extern "C" __global__ void __cluster_dims__(2, 1, 1) multicast_reduce(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out)
{
  extern __shared__ __align__(1024) float tile[]; __shared__ uint64_t bar;
  unsigned rank = ptx::get_sreg_cluster_ctarank();
  if (threadIdx.x == 0) { ptx::mbarrier_init(&bar, 1); ptx::fence_mbarrier_init(ptx::sem_release, ptx::scope_cluster); }
  ptx::barrier_cluster_arrive(); ptx::barrier_cluster_wait();
  if (threadIdx.x == 0) {
    uint64_t policy; asm("createpolicy.fractional.L2::evict_last.b64 %0, 0.5;" : "=l"(policy));
    ptx::mbarrier_arrive_expect_tx(ptx::sem_release, ptx::scope_cta, ptx::space_shared, &bar, 32 * 32 * 4);
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5, %6;" ::"r"((unsigned)__cvta_generic_to_shared(tile + rank * 512)), "l"(&in), "r"(0), "r"((int)(blockIdx.x / 2 * 32 + rank * 16)), "r"((unsigned)__cvta_generic_to_shared(&bar)), "h"((uint16_t)3), "l"(policy) : "memory");
  }
  while (!ptx::mbarrier_try_wait_parity(&bar, 0)) ;
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = tile[i] * (rank + 1);
  ptx::fence_proxy_async(ptx::space_shared);
  __syncthreads();
  if (threadIdx.x == 0) {
    const int c[2] = {0, 0};
    ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &out, c, tile);
    const int d[2] = {0, 16};
    ptx::cp_reduce_async_bulk_tensor(ptx::space_global, ptx::space_shared, ptx::op_add, &out, d, tile + 512);
    ptx::cp_async_bulk_commit_group(); ptx::cp_async_bulk_wait_group(ptx::n32_t<0>());
  }
  ptx::barrier_cluster_arrive(); ptx::barrier_cluster_wait();
}
// rows without a tensor map: bulk copies in, arithmetic, bulk reduction out (min of s32), a ring of 3
extern "C" __global__ void bulk_ring(const int *in, int *out, int rows)
{
  __shared__ alignas(128) int ring[3][256]; __shared__ barrier full[3], empty[3];
  if (threadIdx.x == 0) { for (int i = 0; i < 3; i++) { init(&full[i], 1); init(&empty[i], 32); } ptx::fence_proxy_async(ptx::space_shared); }
  __syncthreads();
  if (threadIdx.x >= 32) {
    if (threadIdx.x == 32)
      for (int r = 0; r < rows; r++) {
        if (r >= 3) empty[r % 3].wait_parity(((r / 3) & 1) ^ 1);
        cuda::device::memcpy_async_tx(ring[r % 3], in + ((size_t)blockIdx.x * rows + r) * 256, cuda::aligned_size_t<16>(1024), full[r % 3]);
        auto token = cuda::device::barrier_arrive_tx(full[r % 3], 1, 1024); (void)token;
      }
  } else
    for (int r = 0; r < rows; r++) {
      full[r % 3].wait_parity((r / 3) & 1);
      for (int i = threadIdx.x; i < 256; i += 32) ring[r % 3][i] = ring[r % 3][i] * 3 - r;
      ptx::fence_proxy_async(ptx::space_shared);
      __syncwarp();
      if (threadIdx.x == 0) { ptx::cp_reduce_async_bulk(ptx::space_global, ptx::space_shared, ptx::op_min, out, ring[r % 3], 1024); ptx::cp_async_bulk_commit_group(); ptx::cp_async_bulk_wait_group_read(ptx::n32_t<0>()); }
      __syncwarp();
      (void)empty[r % 3].arrive();
    }
}
