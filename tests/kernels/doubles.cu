// Double precision: a matrix product, mathematics of the library, a Jacobi sweep, complex numbers.
extern "C" __global__ void dgemm(const double *a, const double *b, double *c, int m, int n, int k)
{
    __shared__ double as[16][17], bs[16][17];
    int r = blockIdx.y * 16 + threadIdx.y, q = blockIdx.x * 16 + threadIdx.x;
    double sum = 0;
    for (int s = 0; s < k; s += 16) {
        as[threadIdx.y][threadIdx.x] = r < m && s + threadIdx.x < k ? a[r * k + s + threadIdx.x] : 0.0;
        bs[threadIdx.y][threadIdx.x] = s + threadIdx.y < k && q < n ? b[(s + threadIdx.y) * n + q] : 0.0;
        __syncthreads();
        for (int i = 0; i < 16; i++) sum = fma(as[threadIdx.y][i], bs[i][threadIdx.x], sum);
        __syncthreads();
    }
    if (r < m && q < n) c[r * n + q] = sum;
}

extern "C" __global__ void mathematics(const double *x, double *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    double v = x[i];
    y[i] = exp(v) + log(fabs(v) + 1) + sin(v) * cos(v) + sqrt(fabs(v)) + pow(fabs(v), 0.3) + cbrt(v) + atan2(v, 2.0) + erf(v) + tanh(v) + 1 / (2 + v * v);
}

extern "C" __global__ void mathematics_f32(const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    y[i] = expf(v) + logf(fabsf(v) + 1) + sinf(v) * cosf(v) + sqrtf(fabsf(v)) + powf(fabsf(v), 0.3f) + atanf(v) + erff(v) + tanhf(v) + 1 / (2 + v * v) + fmodf(v, 0.7f) + rintf(v) + floorf(v) + (float)(int)v;
}

extern "C" __global__ void jacobi(const double *u, double *v, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i > 0 && j > 0 && i < n - 1 && j < n - 1) v[j * n + i] = 0.25 * (u[j * n + i - 1] + u[j * n + i + 1] + u[(j - 1) * n + i] + u[(j + 1) * n + i]);
}

extern "C" __global__ void mandelbrot(int *y, int width, int height, int most)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= width * height) return;
    double cr = -2.0 + 3.0 * (i % width) / width, ci = -1.0 + 2.0 * (i / width) / height, r = 0, q = 0;
    int k = 0;
    while (k < most && r * r + q * q < 4.0) {
        double t = r * r - q * q + cr;
        q = 2 * r * q + ci;
        r = t;
        k++;
    }
    y[i] = k;
}
