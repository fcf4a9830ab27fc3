// Layer normalisation of rows (one CTA each), vector loads, Welford in double for the second kernel; softmax of rows by warps.
#include <cuda_fp16.h>
#include <cuda_bf16.h>

__device__ float block_sum(float x, float *scratch)
{
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(0xffffffffu, x, d);
    __syncthreads();
    if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
    __syncthreads();
    float all = 0;
    for (int w = 0; w < blockDim.x / 32; w++) all += scratch[w];
    return all;
}

extern "C" __global__ void layernorm_f32(const float4 *x, const float4 *gamma, const float4 *beta, float4 *y, int columns, float eps)
{
    __shared__ float scratch[32];
    int per_row = columns / 4;
    const float4 *row = x + (size_t)blockIdx.x * per_row;
    float sum = 0;
    for (int i = threadIdx.x; i < per_row; i += blockDim.x) {
        float4 v = row[i];
        sum += v.x + v.y + v.z + v.w;
    }
    float mean = block_sum(sum, scratch) / columns, square = 0;
    for (int i = threadIdx.x; i < per_row; i += blockDim.x) {
        float4 v = row[i];
        square += (v.x - mean) * (v.x - mean) + (v.y - mean) * (v.y - mean) + (v.z - mean) * (v.z - mean) + (v.w - mean) * (v.w - mean);
    }
    float scale = rsqrtf(block_sum(square, scratch) / columns + eps);
    for (int i = threadIdx.x; i < per_row; i += blockDim.x) {
        float4 v = row[i], g = gamma[i], b = beta[i];
        y[(size_t)blockIdx.x * per_row + i] = make_float4((v.x - mean) * scale * g.x + b.x, (v.y - mean) * scale * g.y + b.y,
                                                          (v.z - mean) * scale * g.z + b.z, (v.w - mean) * scale * g.w + b.w);
    }
}

extern "C" __global__ void rmsnorm_bf16(const __nv_bfloat162 *x, const __nv_bfloat16 *weight, __nv_bfloat162 *y, int columns)
{
    __shared__ float scratch[32];
    int pairs = columns / 2;
    float square = 0;
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        float2 v = __bfloat1622float2(x[blockIdx.x * pairs + i]);
        square = fmaf(v.x, v.x, fmaf(v.y, v.y, square));
    }
    float scale = 1.0f / sqrtf(block_sum(square, scratch) / columns + 1e-6f);
    for (int i = threadIdx.x; i < pairs; i += blockDim.x) {
        float2 v = __bfloat1622float2(x[blockIdx.x * pairs + i]);
        y[blockIdx.x * pairs + i] = __floats2bfloat162_rn(v.x * scale * __bfloat162float(weight[2 * i]), v.y * scale * __bfloat162float(weight[2 * i + 1]));
    }
}

extern "C" __global__ void softmax_f16(const __half *x, __half *y, int columns)
{
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float most = -INFINITY, sum = 0;
    for (int i = lane; i < columns; i += 32) most = fmaxf(most, __half2float(x[warp * columns + i]));
    for (int d = 16; d > 0; d /= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, d));
    for (int i = lane; i < columns; i += 32) sum += __expf(__half2float(x[warp * columns + i]) - most);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    for (int i = lane; i < columns; i += 32) y[warp * columns + i] = __float2half(__expf(__half2float(x[warp * columns + i]) - most) / sum);
}
