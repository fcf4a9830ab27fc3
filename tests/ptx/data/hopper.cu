// Inline PTX as Hopper libraries write it: scopes with their own registers and labels, TMA, mbarriers, wgmma, clusters.
#include <cuda.h>
#include <cooperative_groups.h>
#include <cstdint>
namespace cg = cooperative_groups;
__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void wait(uint32_t bar, uint32_t parity) {
    asm volatile("{\n.reg .pred P1;\nLAB_WAIT:\nmbarrier.try_wait.parity.shared::cta.b64 P1, [%0], %1;\n@P1 bra.uni DONE;\nbra.uni LAB_WAIT;\nDONE:\n}" ::"r"(bar), "r"(parity));
}
__device__ __forceinline__ bool elect() {
    uint32_t p;
    asm volatile("{\n.reg .pred %%px;\nelect.sync _|%%px, 0xffffffff;\nselp.b32 %0, 1, 0, %%px;\n}" : "=r"(p));
    return p;
}
__global__ void __launch_bounds__(128, 1) gemm_tile(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, float *out, int steps) {
    extern __shared__ __align__(1024) uint8_t smem[];
    __shared__ __align__(8) uint64_t full[2];
    float d[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) d[i] = 0;
    uint32_t bar = shared_address(full), tile = shared_address(smem);
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "n"(1));
        asm volatile("mbarrier.init.shared::cta.b64 [%0+8], 1;" ::"r"(bar));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    for (int k = 0; k < steps; ++k) {
        uint32_t b = bar + (k & 1) * 8, stage = tile + (k & 1) * 16384;
        if (threadIdx.x < 32 && elect()) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(16384) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(stage), "l"(&map_a), "r"(k * 64), "r"(blockIdx.x * 64), "r"(b) : "memory");
            asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, 0}], [%3], %4;" ::"r"(stage + 8192), "l"(&map_b), "r"(k * 64), "r"(b), "l"(0x12f0000000000000ull) : "memory");
        }
        wait(b, (k >> 1) & 1);
        uint64_t da = (uint64_t)(stage >> 4 & 0x3fff) | 1ull << 62 | 64ull << 32, db = da + 512;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
            "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, %32, %33, p, 1, 1, 0, 0;\n}"
            : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
            : "l"(da), "l"(db), "r"(k));
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = d[i];
}
__global__ void __cluster_dims__(2, 1, 1) cluster_sum(int *out) {
    __shared__ int mine;
    cg::cluster_group cluster = cg::this_cluster();
    mine = threadIdx.x + cluster.block_rank();
    cluster.sync();
    int *other = cluster.map_shared_rank(&mine, cluster.block_rank() ^ 1);
    out[threadIdx.x] = *other;
    cluster.sync();
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
}
__global__ void shadowing(float *out, int n) {
    asm volatile("{\n.reg .f32 %%f<3>;\n.reg .b32 low, %%r1;\nmov.b32 low, %1;\n{\n.reg .b32 low;\nmov.b32 low, 7;\nadd.s32 low, low, %1;\nmov.b32 %%r1, low;\n}\nadd.s32 low, low, %%r1;\ncvt.rn.f32.s32 %%f1, low;\n"
                 ".reg .v2 .f32 pair;\nmov.f32 pair.x, %%f1;\nmov.f32 pair.y, 0f3F800000;\nadd.f32 %%f2, pair.x, pair.y;\nst.global.f32 [%0+(4*2)], %%f2;\n}" ::"l"(out), "r"(n) : "memory");
    asm volatile("{ .reg .b32 t; .reg .b16 l,h; mov.b32 t, %0; mov.b32 {l,h}, t; mov.b32 {_, h}, t; mov.b32 t, {h,l}; shl.b32 t, t, WARP_SZ/16; }" ::"r"(n));
}
