// Matrix products below the tensor memory accelerator: cp.async and ldmatrix and mma.sync in three stages, wmma, integers.
#include <cuda_fp16.h>
#include <cstdint>
#include <mma.h>

__device__ __forceinline__ uint32_t shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }

// C (m x n, f32) = A (m x k, row by row) times B (n x k, row by row), tiles of 64 x 64 x 32, 4 warps in 2 x 2.
extern "C" __global__ void __launch_bounds__(128) hgemm(const __half *a, const __half *b, float *c, int m, int n, int k)
{
    extern __shared__ __align__(128) unsigned char memory[];
    __half *as = (__half *)memory, *bs = as + 3 * 64 * 40;
    int t = threadIdx.x, warp = t / 32, lane = t % 32, wm = warp / 2 * 32, wn = warp % 2 * 32;
    int row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    auto load = [&](int stage, int k0) {
        for (int i = t; i < 64 * 4; i += 128) {
            int r = i / 4, q = i % 4 * 8;
            int a_bytes = row0 + r < m ? 16 : 0, b_bytes = column0 + r < n ? 16 : 0;
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(as + (stage * 64 + r) * 40 + q)), "l"(a + (size_t)(a_bytes ? row0 + r : 0) * k + k0 + q), "r"(a_bytes));
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(bs + (stage * 64 + r) * 40 + q)), "l"(b + (size_t)(b_bytes ? column0 + r : 0) * k + k0 + q), "r"(b_bytes));
        }
        asm volatile("cp.async.commit_group;");
    };
    float d[2][4][4] = {};
    int steps = k / 32;
    load(0, 0);
    if (steps > 1) load(1, 32); else asm volatile("cp.async.commit_group;");
    for (int s = 0; s < steps; s++) {
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        if (s + 2 < steps) load((s + 2) % 3, (s + 2) * 32); else asm volatile("cp.async.commit_group;");
        const __half *at = as + s % 3 * 64 * 40, *bt = bs + s % 3 * 64 * 40;
        for (int kk = 0; kk < 32; kk += 16) {
            uint32_t fa[2][4], fb[4][2];
            for (int i = 0; i < 2; i++)
                asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(fa[i][0]), "=r"(fa[i][1]), "=r"(fa[i][2]), "=r"(fa[i][3]) : "r"(shared_address(at + (wm + i * 16 + lane % 16) * 40 + kk + lane / 16 * 8)));
            for (int j = 0; j < 4; j++)
                asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(fb[j][0]), "=r"(fb[j][1]) : "r"(shared_address(bt + (wn + j * 8 + lane % 8) * 40 + kk + lane / 8 % 2 * 8)));
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++)
                    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                                 : "+f"(d[i][j][0]), "+f"(d[i][j][1]), "+f"(d[i][j][2]), "+f"(d[i][j][3])
                                 : "r"(fa[i][0]), "r"(fa[i][1]), "r"(fa[i][2]), "r"(fa[i][3]), "r"(fb[j][0]), "r"(fb[j][1]));
        }
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int h = 0; h < 2; h++) {
                int r = row0 + wm + i * 16 + h * 8 + lane / 4, q = column0 + wn + j * 8 + lane % 4 * 2;
                if (r < m && q + 1 < n) *(float2 *)&c[(size_t)r * n + q] = make_float2(d[i][j][2 * h], d[i][j][2 * h + 1]);
            }
}

extern "C" __global__ void wmma_gemm(const __half *a, const __half *b, float *c, int n, int k)
{
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, __half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> acc;
    fill_fragment(acc, 0.0f);
    for (int s = 0; s < k; s += 16) {
        load_matrix_sync(fa, a + blockIdx.y * 16 * k + s, k);
        load_matrix_sync(fb, b + blockIdx.x * 16 * k + s, k);
        mma_sync(acc, fa, fb, acc);
    }
    store_matrix_sync(c + blockIdx.y * 16 * n + blockIdx.x * 16, acc, n, mem_row_major);
}

extern "C" __global__ void dot_products(const int *a, const int *b, int *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = 0;
    for (int k = 0; k < n; k++) sum = __dp4a(a[i * n + k], b[k], sum);
    c[i] = __reduce_max_sync(0xffffffffu, sum) - sum;
}
