// Element types: half, bf16, fp8, fp6 and fp4 of the CUDA headers; libcu++ complex; 128-bit integers; bit tricks and SIMD in a word.
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda_fp6.h>
#include <cuda_fp4.h>
#include <cuda/std/complex>
#include <cuda/std/bit>
#include <cuda/std/cmath>
#include <cuda/std/limits>
#include <cuda/std/optional>
#include <cuda/std/tuple>
#include <cuda/std/array>
#include <cuda/std/variant>
#include <cuda/std/span>
#include <cuda/std/mdspan>
#include <cuda/std/chrono>
extern "C" __global__ void half_maths(const __half2 *x, const __half2 *y, __half2 *z)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x; __half2 a = x[i], b = y[i]; __half2 *o = z + 24 * i;
  o[0] = __hadd2(a, b); o[1] = __hsub2_sat(a, b); o[2] = __hfma2(a, b, a); o[3] = __hfma2_relu(a, b, b); o[4] = __h2div(a, b); o[5] = __hmax2(a, b); o[6] = __hmin2_nan(a, b); o[7] = h2exp(a); o[8] = h2log(__habs2(a)); o[9] = h2sqrt(__habs2(a)); o[10] = h2rsqrt(__habs2(b)); o[11] = h2sin(a); o[12] = h2cos(a); o[13] = h2floor(a); o[14] = h2rint(a); o[15] = h2trunc(b); o[16] = h2exp2(a); o[17] = h2log2(__habs2(b)); o[18] = h2rcp(b); o[19] = h2exp10(a); o[20] = __heq2(a, b); o[21] = __hgtu2(a, b); o[22] = h2tanh_approx(a); o[23] = __hneg2(__lows2half2(a, b));
}
extern "C" __global__ void bf16_maths(const __nv_bfloat162 *x, const __nv_bfloat162 *y, __nv_bfloat162 *z)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x; __nv_bfloat162 a = x[i], b = y[i]; __nv_bfloat162 *o = z + 16 * i;
  o[0] = __hadd2(a, b); o[1] = __hmul2_sat(a, b); o[2] = __hfma2(a, b, a); o[3] = __hfma2_relu(a, b, b); o[4] = __h2div(a, b); o[5] = __hmax2_nan(a, b); o[6] = __hmin2(a, b); o[7] = h2exp(a); o[8] = h2log(__habs2(a)); o[9] = h2sqrt(__habs2(a)); o[10] = h2sin(a); o[11] = h2ceil(a); o[12] = h2rcp(b); o[13] = __hcmadd(a, b, a); o[14] = __hle2(a, b); o[15] = h2tanh(a);
}
extern "C" __global__ void conversions(const float *x, unsigned *y, int *k)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x; float v = x[i], w = x[i ^ 1]; unsigned *o = y + 20 * i; int *q = k + 12 * i;
  o[0] = __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3); o[1] = __nv_cvt_float_to_fp8(v, __NV_NOSAT, __NV_E5M2); o[2] = __nv_cvt_float2_to_fp8x2(make_float2(v, w), __NV_SATFINITE, __NV_E5M2); o[3] = __half2_raw(__nv_cvt_fp8x2_to_halfraw2(o[2], __NV_E5M2)).x; o[4] = __half_raw(__nv_cvt_fp8_to_halfraw(i & 255, __NV_E4M3)).x;
  o[5] = __nv_cvt_double_to_fp8((double)v, __NV_SATFINITE, __NV_E4M3); o[6] = __nv_cvt_float_to_fp6(v, __NV_E2M3, cudaRoundNearest); o[7] = __nv_cvt_float_to_fp6(v, __NV_E3M2, cudaRoundNearest); o[8] = __nv_cvt_float_to_fp4(v, __NV_E2M1, cudaRoundNearest); o[9] = __half_raw(__nv_cvt_fp6_to_halfraw(i & 63, __NV_E3M2)).x; o[10] = __half_raw(__nv_cvt_fp4_to_halfraw(i & 15, __NV_E2M1)).x;
  __nv_bfloat16 b(v); __nv_fp8_e4m3 f(b); o[11] = f.__x; o[12] = __bfloat16_as_ushort(__float2bfloat16_rz(v)); o[13] = __bfloat16_as_ushort(__double2bfloat16(v * 1.00390625)); o[14] = __half_as_ushort(__float2half_ru(v)); o[15] = __half_as_ushort(__int2half_rd((int)(v * 100))); o[16] = __half_as_ushort(__ull2half_rn((unsigned long long)fabsf(v * 37))); o[17] = __nv_cvt_float_to_e8m0(v, __NV_SATFINITE, cudaRoundPosInf); o[18] = __bfloat16_as_ushort(__short2bfloat16_rn((short)(v * 300))); o[19] = __bfloat16_as_ushort(__ll2bfloat16_ru((long long)(v * 1e9f)));
  __half h = __float2half(v); q[0] = __half2int_rn(h); q[1] = __half2uint_rz(h); q[2] = __half2short_ru(h); q[3] = (int)__half2ll_rd(h); q[4] = __bfloat162int_rd(b); q[5] = (signed char)__half2char_rz(h); q[6] = __float2int_ru(v); q[7] = __float2uint_rn(v); q[8] = (int)__float2ll_rd(v * 1000); q[9] = __double2int_rn((double)v * 3); q[10] = __double2hiint((double)v); q[11] = __float_as_int(__uint2float_rd(__float_as_uint(v)));
}
extern "C" __global__ void complex_maths(const float2 *x, const float2 *y, float2 *z, double2 *d)
{
  using C = cuda::std::complex<float>; using Z = cuda::std::complex<double>;
  int i = blockIdx.x * blockDim.x + threadIdx.x; C a(x[i].x, x[i].y), b(y[i].x, y[i].y); C r[12] = {a * b, a / b, cuda::std::exp(a), cuda::std::log(a), cuda::std::sqrt(a), cuda::std::sin(a), cuda::std::tanh(a), cuda::std::pow(a, b), C(cuda::std::abs(a), cuda::std::arg(a)), cuda::std::conj(a) + cuda::std::polar(2.f, b.real()), cuda::std::acos(a), cuda::std::proj(b)};
  for (int k = 0; k < 12; k++) z[12 * i + k] = make_float2(r[k].real(), r[k].imag());
  Z p(x[i].x, x[i].y), q(y[i].x, y[i].y); Z s[4] = {p * q, p / q, cuda::std::exp(p), cuda::std::sqrt(q)};
  for (int k = 0; k < 4; k++) d[4 * i + k] = make_double2(s[k].real(), s[k].imag());
}
extern "C" __global__ void integers_128(const ulonglong2 *x, const ulonglong2 *y, ulonglong2 *z)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x; unsigned __int128 a = (unsigned __int128)x[i].y << 64 | x[i].x, b = (unsigned __int128)y[i].y << 64 | y[i].x; __int128 s = (__int128)a, t = (__int128)b; int n = x[i].x & 127;
  unsigned __int128 r[12] = {a + b, a - b, a * b, a / b, a % b, (unsigned __int128)(s / t), (unsigned __int128)(s % t), a << n, a >> n, (unsigned __int128)(s >> n), (unsigned __int128)(a < b) | (unsigned __int128)(s < t) << 1 | (unsigned __int128)(a == b) << 64, a ^ ~b};
  for (int k = 0; k < 12; k++) z[12 * i + k] = make_ulonglong2((unsigned long long)r[k], (unsigned long long)(r[k] >> 64));
}
extern "C" __global__ void bit_tricks(const unsigned *x, const unsigned *y, unsigned *z)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x; unsigned a = x[i], b = y[i]; unsigned long long w = (unsigned long long)a << 32 | b; unsigned *o = z + 40 * i;
  o[0] = __brev(a); o[1] = (unsigned)__brevll(w); o[2] = __clz(a); o[3] = __clzll(w >> (b & 63)); o[4] = __ffs(a); o[5] = __ffsll(w << (a & 63)); o[6] = __popc(a); o[7] = __popcll(w); o[8] = __byte_perm(a, b, b); o[9] = __funnelshift_l(a, b, b); o[10] = __funnelshift_rc(a, b, b & 63); o[11] = __fns(a, b & 31, (int)(b >> 5 & 7) - 3); o[12] = __mulhi((int)a, (int)b); o[13] = __umulhi(a, b); o[14] = (unsigned)(__umul64hi(w, w * 3) >> 32); o[15] = __mul24(a, b); o[16] = __umul24(a, b); o[17] = __sad(a, b, 5); o[18] = __usad(a, b, 7); o[19] = __hadd(a, b); o[20] = __rhadd(a, b); o[21] = __uhadd(a, b);
  o[22] = __vadd4(a, b); o[23] = __vsubss2(a, b); o[24] = __vavgs4(a, b); o[25] = __vabsdiffu4(a, b); o[26] = __vcmpgtu4(a, b); o[27] = __vmaxs2(a, b); o[28] = __vsads4(a, b); o[29] = __vneg4(a); o[30] = __viaddmax_s32_relu((int)a, (int)b, 3); o[31] = __vimin3_u16x2(a, b, a ^ b); o[32] = __dp4a((int)a, (int)b, 9); o[33] = __dp2a_hi(a, b, 9u); o[34] = cuda::std::rotl(a, b & 31) + cuda::std::bit_width(b) + cuda::std::countr_zero(a) + cuda::std::has_single_bit(b); bool p; o[35] = __vibmax_s32((int)a, (int)b, &p) + p; o[36] = __vseteq2(a, b); o[37] = __vabs2(a) + __vabsss4(b); o[38] = (unsigned)(w / (b | 1)) ^ (unsigned)((long long)w % ((int)a | 1)); o[39] = a / (b | 1) * 3 + (int)a % ((int)b | 3);
}
struct Shape { float r; __device__ float operator()(int) const { return r; } __device__ float operator()(float f) const { return f * r; } };
extern "C" __global__ void vocabulary(const float *x, float *y, int n)
{
  int i = threadIdx.x; cuda::std::optional<float> o; if (x[i] > 0) o = x[i] * 2; cuda::std::tuple<int, float> t(i, x[i]); cuda::std::array<float, 5> a{1, 2, 3, 4, 5}; cuda::std::variant<int, float> v; if (i & 1) v = x[i]; else v = i; cuda::std::span<const float> s(x, n); cuda::std::mdspan<const float, cuda::std::extents<int, 4, cuda::std::dynamic_extent>> m(x, n / 4);
  y[i] = o.value_or(-1) + cuda::std::get<0>(t) * cuda::std::get<1>(t) + a[i % 5] + cuda::std::visit(Shape{3}, v) + s[s.size() - 1 - i % s.size()] + m(i % 4, i % (n / 4)) + cuda::std::numeric_limits<float>::epsilon() + cuda::std::bit_cast<int>(1.5f) % 7 + cuda::std::fmin(x[i], 1.f);
}
