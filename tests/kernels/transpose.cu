// Transposes through shared memory: padded rows, 16-bit elements in vectors, and a swizzle without padding.
extern "C" __global__ void transpose_padded(const float *x, float *y, int rows, int columns)
{
    __shared__ float tile[32][33];
    int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (c < columns && r + k < rows) tile[threadIdx.y + k][threadIdx.x] = x[(r + k) * columns + c];
    __syncthreads();
    c = blockIdx.y * 32 + threadIdx.x, r = blockIdx.x * 32 + threadIdx.y;
    for (int k = 0; k < 32; k += 8)
        if (c < rows && r + k < columns) y[(r + k) * rows + c] = tile[threadIdx.x][threadIdx.y + k];
}

extern "C" __global__ void transpose_swizzled(const ushort4 *x, unsigned short *y, int n)
{
    __shared__ unsigned short tile[64 * 64];
    int t = threadIdx.x;
    for (int i = t; i < 64 * 16; i += blockDim.x) {
        int r = i / 16, c = i % 16 * 4;
        ushort4 v = x[(blockIdx.y * 64 + r) * (n / 4) + blockIdx.x * 16 + c / 4];
        unsigned short part[4] = {v.x, v.y, v.z, v.w};
        for (int k = 0; k < 4; k++) tile[r * 64 + ((c + k) ^ (r & 62))] = part[k];
    }
    __syncthreads();
    for (int i = t; i < 64 * 64; i += blockDim.x) {
        int c = i / 64, r = i % 64;
        y[(blockIdx.x * 64 + c) * n + blockIdx.y * 64 + r] = tile[r * 64 + (c ^ (r & 62))];
    }
}
