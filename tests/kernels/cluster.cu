// Clusters by cooperative groups: a histogram and a reduction over distributed shared memory, a halo exchange, a sorted merge.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
#include <cstdint>
namespace cg = cooperative_groups;
extern "C" __global__ void dsm_histogram(const unsigned char *x, int n, unsigned *bins)
{
  extern __shared__ unsigned mine[];
  cg::cluster_group cluster = cg::this_cluster();
  unsigned per = 256 / cluster.num_blocks();
  for (unsigned i = threadIdx.x; i < per; i += blockDim.x) mine[i] = 0;
  cluster.sync();
  for (int i = cg::this_grid().thread_rank(); i < n; i += cg::this_grid().num_threads()) atomicAdd(cluster.map_shared_rank(mine, x[i] / per) + x[i] % per, 1);
  cluster.sync();
  for (unsigned i = threadIdx.x; i < per; i += blockDim.x) atomicAdd(bins + cluster.block_rank() * per + i, mine[i]);
}
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_sum(const float *x, float *out, int n)
{
  __shared__ float part; __shared__ float parts[8];
  auto cluster = cg::this_cluster(); auto block = cg::this_thread_block(); auto warp = cg::tiled_partition<32>(block);
  float s = 0;
  for (int i = cluster.thread_rank() + blockIdx.x / 4 * n; i < (blockIdx.x / 4 + 1) * n; i += cluster.num_threads()) s += x[i];
  s = cg::reduce(warp, s, cg::plus<float>());
  if (warp.thread_rank() == 0) parts[warp.meta_group_rank()] = s;
  block.sync();
  if (block.thread_rank() == 0) { s = 0; for (int i = 0; i < warp.meta_group_size(); i++) s += parts[i]; part = s; }
  auto token = cluster.barrier_arrive();
  cluster.barrier_wait(std::move(token));
  if (cluster.thread_rank() == 0) { s = 0; for (unsigned r = 0; r < cluster.num_blocks(); r++) s += *cluster.map_shared_rank(&part, r); out[blockIdx.x / 4] = s; }
  cluster.sync();
}
extern "C" __global__ void halo(const float *x, float *y, int steps)
{
  __shared__ float a[2][66];
  auto cluster = cg::this_cluster(); int t = threadIdx.x + 1, r = cluster.block_rank(), n = cluster.num_blocks();
  float *left = cluster.map_shared_rank(&a[0][0], (r + n - 1) % n), *right = cluster.map_shared_rank(&a[0][0], (r + 1) % n);
  a[0][t] = x[blockIdx.x * 64 + threadIdx.x];
  for (int s = 0; s < steps; s++) {
    int p = s & 1;
    if (t == 1) left[p * 66 + 65] = a[p][1];
    if (t == 64) right[p * 66] = a[p][64];
    cluster.sync();
    a[p ^ 1][t] = 0.25f * a[p][t - 1] + 0.5f * a[p][t] + 0.25f * a[p][t + 1];
  }
  cluster.sync();
  y[blockIdx.x * 64 + threadIdx.x] = a[steps & 1][t];
}
// a message by st.async from each CTA to the next, waited for on an mbarrier there
extern "C" __global__ void __cluster_dims__(4, 1, 1) ring_messages(const uint32_t *x, uint32_t *y, int rounds)
{
  __shared__ uint32_t box[2][32]; __shared__ uint64_t bar[2];
  auto cluster = cg::this_cluster(); unsigned r = cluster.block_rank();
  unsigned b = (unsigned)__cvta_generic_to_shared(bar), m = (unsigned)__cvta_generic_to_shared(box), rb, rm;
  if (threadIdx.x < 2) asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(b + 8 * threadIdx.x));
  asm volatile("fence.mbarrier_init.release.cluster;");
  cluster.sync();
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(rb) : "r"(b), "r"((r + 1) % 4));
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(rm) : "r"(m), "r"((r + 1) % 4));
  uint32_t v = x[blockIdx.x * 32 + threadIdx.x];
  for (int i = 0; i < rounds; i++) {
    int p = i & 1;
    if (threadIdx.x == 0) asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 128;" ::"r"(b + 8 * p) : "memory");
    __syncwarp();
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(rm + 128 * p + 4 * threadIdx.x), "r"(v * 5 + r), "r"(rb + 8 * p) : "memory");
    asm volatile("{\n.reg .pred P;\nW:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 P, [%0], %1;\n@!P bra W;\n}" ::"r"(b + 8 * p), "r"(i >> 1 & 1) : "memory");
    v = box[p][threadIdx.x];
    cluster.sync();
  }
  y[blockIdx.x * 32 + threadIdx.x] = v;
}
