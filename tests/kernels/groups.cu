// Cooperative groups within a block: tiles, coalesced groups, partitions, reductions, scans, memcpy_async.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda/barrier>
namespace cg = cooperative_groups;
extern "C" __global__ void tiles(const int *x, int *y)
{
  auto block = cg::this_thread_block(); auto tile = cg::tiled_partition<8>(block);
  int i = block.group_index().x * block.size() + block.thread_rank(), v = x[i];
  int sum = cg::reduce(tile, v, cg::plus<int>()), most = cg::reduce(tile, v, cg::greater<int>()), bits = cg::reduce(tile, v, cg::bit_xor<int>());
  int inc = cg::inclusive_scan(tile, v), exc = cg::exclusive_scan(tile, v, cg::plus<int>());
  y[i] = sum + 3 * most + 5 * bits + 7 * inc + 11 * exc + tile.shfl(v, 3) + tile.shfl_xor(v, 1) * 2 + tile.any(v > 90) + tile.all(v > 10) * 2 + tile.ballot(v & 1) + tile.meta_group_rank() * 1000;
}
extern "C" __global__ void coalesced(const int *x, int *y, int *count)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (x[i] % 3 == 0) {
    auto active = cg::coalesced_threads();
    int base; if (active.thread_rank() == 0) base = atomicAdd(count, active.size());
    y[active.shfl(base, 0) + active.thread_rank()] = x[i] + 1000 * cg::reduce(active, 1, cg::plus<int>());
  }
}
extern "C" __global__ void partitions(const int *x, int *y)
{
  auto warp = cg::tiled_partition<32>(cg::this_thread_block());
  int i = blockIdx.x * blockDim.x + threadIdx.x, v = x[i];
  auto same = cg::labeled_partition(warp, v % 5); auto half = cg::binary_partition(warp, v & 1);
  int a = cg::reduce(same, v, cg::plus<int>()), b = cg::reduce(half, v, cg::less<int>()), c = cg::inclusive_scan(half, v);
  y[i] = a + 1000 * b + 7 * c + same.thread_rank() + half.meta_group_size();
}
extern "C" __global__ void staged(const float *x, float *y, int rows)
{
  __shared__ float buf[2][256]; auto block = cg::this_thread_block();
  cg::memcpy_async(block, buf[0], x + (size_t)blockIdx.x * rows * 256, sizeof(float) * 256);
  float s = 0;
  for (int r = 0; r < rows; r++) {
    if (r + 1 < rows) { cg::memcpy_async(block, buf[(r + 1) & 1], x + ((size_t)blockIdx.x * rows + r + 1) * 256, cuda::aligned_size_t<16>(1024)); cg::wait_prior<1>(block); } else cg::wait(block);
    s += buf[r & 1][255 - threadIdx.x] * (r + 1);
    block.sync();
  }
  y[blockIdx.x * 256 + threadIdx.x] = s;
}
extern "C" __global__ void grid_sync(int *x) { auto g = cg::this_grid(); x[g.thread_rank()] = 1; g.sync(); x[g.thread_rank()] += x[(g.thread_rank() + 32) % g.size()]; }
extern "C" __global__ void big_tile(const int *x, int *y)
{
  __shared__ cg::block_tile_memory<256> mem; auto block = cg::this_thread_block(mem); auto tile = cg::tiled_partition<128>(block);
  int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = cg::reduce(tile, x[i], cg::plus<int>()) + 3 * tile.any(x[i] == 7) + tile.shfl(x[i], 77); tile.sync();
}
