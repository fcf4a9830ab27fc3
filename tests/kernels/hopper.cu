// Hopper: a warp-specialised GEMM with a TMA pipeline, wgmma and multicast in clusters of two; attention with wgmma and TMA;
// distributed shared memory.
#include <cuda_bf16.h>
#include <cstdint>

struct alignas(64) Map { unsigned char bytes[128]; };

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ uint32_t cluster_rank() { uint32_t r; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
__device__ __forceinline__ void init(uint64_t *b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(n)); }
__device__ __forceinline__ void expect(uint64_t *b, int bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory"); }
__device__ __forceinline__ void arrive(uint64_t *b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory"); }
__device__ __forceinline__ void arrive_at(uint64_t *b, uint32_t rank)
{
    asm volatile("{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %0, %1; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [remote]; }" ::"r"(shared_address(b)), "r"(rank) : "memory");
}
__device__ __forceinline__ void wait(uint64_t *b, int parity)
{
    asm volatile("{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" ::"r"(shared_address(b)), "r"(parity) : "memory");
}
__device__ __forceinline__ void wait_cluster(uint64_t *b, int parity)
{
    asm volatile("{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 P1, [%0], %1;\n@P1 bra DONE;\nbra LAB_WAIT;\nDONE:\n}" ::"r"(shared_address(b)), "r"(parity) : "memory");
}
__device__ __forceinline__ void load_2d(void *to, const Map *map, int x, int y, uint64_t *b)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(shared_address(to)), "l"(map), "r"(x), "r"(y), "r"(shared_address(b)) : "memory");
}
__device__ __forceinline__ void load_2d_multicast(void *to, const Map *map, int x, int y, uint64_t *b, uint16_t ctas)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)), "l"(map), "r"(x), "r"(y), "r"(shared_address(b)), "h"(ctas) : "memory");
}
__device__ __forceinline__ uint64_t descriptor(const void *p)
{
    return (uint64_t)((shared_address(p) & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62; // 128-byte swizzle, 8 rows 1024 bytes apart
}

#define REPEAT8(m, at) m(at) m(at + 1) m(at + 2) m(at + 3) m(at + 4) m(at + 5) m(at + 6) m(at + 7)
#define D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define D16(d, i) D4(d, i), D4(d, i + 4), D4(d, i + 8), D4(d, i + 12)

__device__ __forceinline__ void wgmma_64x64x16(float *d, uint64_t a, uint64_t b, int scale)
{
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;\n}"
                 : D16(d, 0), D16(d, 16) : "l"(a), "l"(b), "r"(scale));
}
__device__ __forceinline__ void wgmma_64x64x16_registers(float *d, const uint32_t *a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
                 "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : D16(d, 0), D16(d, 16) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void fence_registers(float *d) { for (int i = 0; i < 32; i++) asm volatile("" : "+f"(d[i])::"memory"); }
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int n> __device__ __forceinline__ void wgmma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(n) : "memory"); }

constexpr int STAGES = 3, TILE = 64 * 64 * 2;

// C (m x n, bf16) = A (m x k) times B (n x k), tiles 128 x 64 x 64: one producer warp, two consumer warpgroups of 64 rows each.
// A cluster of two CTAs along m shares the tile of B: each loads half of it for both.
extern "C" __global__ void __cluster_dims__(2, 1, 1) __launch_bounds__(384)
gemm(const __grid_constant__ Map a, const __grid_constant__ Map b, const __grid_constant__ Map c, int k)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned char *as = memory, *bs = memory + STAGES * 2 * TILE, *cs = bs + STAGES * TILE;
    __shared__ uint64_t full[STAGES], empty[STAGES];
    int group = threadIdx.x / 128, steps = k / 64;
    uint32_t rank = cluster_rank();
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; s++) init(&full[s], 1), init(&empty[s], 4);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
    if (group == 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0)
            for (int s = 0; s < steps; s++) {
                int slot = s % STAGES;
                if (s >= STAGES) wait_cluster(&empty[slot], (s / STAGES - 1) & 1);
                expect(&full[slot], 3 * TILE);
                load_2d(as + slot * 2 * TILE, &a, s * 64, blockIdx.x * 128, &full[slot]);
                load_2d(as + slot * 2 * TILE + TILE, &a, s * 64, blockIdx.x * 128 + 64, &full[slot]);
                load_2d_multicast(bs + slot * TILE + rank * (TILE / 2), &b, s * 64, blockIdx.y * 64 + rank * 32, &full[slot], 3);
            }
    } else {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        float d[32];
        int half = group - 1;
        for (int s = 0; s < steps; s++) {
            int slot = s % STAGES;
            wait(&full[slot], s / STAGES & 1);
            fence_registers(d);
            wgmma_fence();
            for (int q = 0; q < 4; q++)
                wgmma_64x64x16(d, descriptor(as + slot * 2 * TILE + half * TILE) + q * 2, descriptor(bs + slot * TILE) + q * 2, s > 0 || q > 0);
            wgmma_commit();
            wgmma_wait<0>();
            fence_registers(d);
            if (threadIdx.x % 128 < 2) arrive_at(&empty[slot], threadIdx.x % 128);
        }
        int warp = threadIdx.x % 128 / 32, lane = threadIdx.x % 32;
        for (int i = 0; i < 32; i += 2) {
            int r = warp * 16 + lane / 4 + (i / 2 % 2) * 8, q = i / 4 * 8 + lane % 4 * 2;
            int at = r * 128 + ((q * 2) ^ ((r & 7) << 4));
            *(__nv_bfloat162 *)(cs + half * TILE + at) = __floats2bfloat162_rn(d[i], d[i + 1]);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory");
        if (threadIdx.x % 128 == 0) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&c), "r"(blockIdx.y * 64), "r"(blockIdx.x * 128 + half * 64), "r"(shared_address(cs + half * TILE)) : "memory");
            asm volatile("cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;" ::: "memory");
        }
    }
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// O = softmax(Q K^T / 8) V for heads of 64 columns: one CTA for 64 queries, keys and values in blocks of 64 through two stages.
extern "C" __global__ void __launch_bounds__(160)
attention(const __grid_constant__ Map q, const __grid_constant__ Map k, const __grid_constant__ Map v, __nv_bfloat16 *o, int keys)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    unsigned char *qs = memory, *ks = memory + TILE, *vs = ks + 2 * TILE;
    __shared__ uint64_t q_full, k_full[2], v_full[2], k_empty[2], v_empty[2];
    int blocks = keys / 64;
    if (threadIdx.x == 0) {
        init(&q_full, 1);
        for (int s = 0; s < 2; s++) init(&k_full[s], 1), init(&v_full[s], 1), init(&k_empty[s], 128), init(&v_empty[s], 128);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= 128) {
        if (threadIdx.x == 128) {
            expect(&q_full, TILE);
            load_2d(qs, &q, 0, blockIdx.x * 64, &q_full);
            for (int s = 0; s < blocks; s++) {
                if (s >= 2) wait(&k_empty[s % 2], (s / 2 - 1) & 1);
                expect(&k_full[s % 2], TILE);
                load_2d(ks + s % 2 * TILE, &k, 0, s * 64, &k_full[s % 2]);
                if (s >= 2) wait(&v_empty[s % 2], (s / 2 - 1) & 1);
                expect(&v_full[s % 2], TILE);
                load_2d(vs + s % 2 * TILE, &v, 0, s * 64, &v_full[s % 2]);
            }
        }
        return;
    }
    float out[32], most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    for (int i = 0; i < 32; i++) out[i] = 0;
    wait(&q_full, 0);
    for (int s = 0; s < blocks; s++) {
        float p[32];
        wait(&k_full[s % 2], s / 2 & 1);
        fence_registers(p);
        wgmma_fence();
        for (int x = 0; x < 4; x++) wgmma_64x64x16(p, descriptor(qs) + x * 2, descriptor(ks + s % 2 * TILE) + x * 2, x > 0);
        wgmma_commit();
        wgmma_wait<0>();
        fence_registers(p);
        arrive(&k_empty[s % 2]);
        for (int h = 0; h < 2; h++) {
            float best = most[h];
            for (int i = 0; i < 32; i += 4) best = fmaxf(best, fmaxf(p[i + 2 * h], p[i + 2 * h + 1]));
            best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
            best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
            float scale = exp2f((most[h] - best) * 0.18033688f);
            most[h] = best;
            sum[h] *= scale;
            for (int i = 0; i < 32; i += 4)
                for (int j = 0; j < 2; j++) {
                    out[i + 2 * h + j] *= scale;
                    p[i + 2 * h + j] = exp2f((p[i + 2 * h + j] - best) * 0.18033688f);
                    sum[h] += p[i + 2 * h + j];
                }
        }
        uint32_t packed[16];
        for (int i = 0; i < 16; i++) {
            __nv_bfloat162 two = __floats2bfloat162_rn(p[2 * i], p[2 * i + 1]);
            packed[i] = *(uint32_t *)&two;
        }
        wait(&v_full[s % 2], s / 2 & 1);
        fence_registers(out);
        wgmma_fence();
        for (int x = 0; x < 4; x++) wgmma_64x64x16_registers(out, packed + 4 * x, descriptor(vs + s % 2 * TILE) + x * 128);
        wgmma_commit();
        wgmma_wait<0>();
        fence_registers(out);
        arrive(&v_empty[s % 2]);
    }
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int h = 0; h < 2; h++) {
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
        sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
        int r = blockIdx.x * 64 + warp * 16 + h * 8 + lane / 4;
        for (int i = 0; i < 32; i += 4) *(__nv_bfloat162 *)&o[r * 64 + i / 4 * 8 + lane % 4 * 2] = __floats2bfloat162_rn(out[i + 2 * h] / sum[h], out[i + 2 * h + 1] / sum[h]);
    }
}

// Each CTA of a cluster sums a part; rank 0 reads the sums of the others from their shared memory.
extern "C" __global__ void __cluster_dims__(4, 1, 1) cluster_sum(const int *x, int *y)
{
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    if (cluster_rank() == 0 && threadIdx.x < 4) {
        uint32_t remote;
        int value;
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(shared_address(&sum)), "r"(threadIdx.x));
        asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
        y[blockIdx.x + threadIdx.x] = value;
    }
    asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}
