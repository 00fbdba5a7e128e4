#include "backend/cuda/prelude.h"

namespace heddle::cuda {

namespace {

// PTX and intrinsics. min.NaN and max.NaN: NaN propagates, -0 < +0 (PTX ISA, sm_80 and later).
constexpr const char* kMachine = R"cuda(
#define HD_FN static __device__ __forceinline__
#define HD_KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define HD_SHARED __shared__
#define HD_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define HD_UNROLL _Pragma("unroll")
#define HD_UNROLL4 _Pragma("unroll 4")
#define HD_UNROLL8 _Pragma("unroll 8")
HD_FN float hd_bits_f32(unsigned v) { return __uint_as_float(v); }
HD_FN unsigned hd_f32_bits(float v) { return __float_as_uint(v); }
HD_FN double hd_bits_f64(unsigned long long v) { return __longlong_as_double((long long)v); }
HD_FN unsigned long long hd_f64_bits(double v) { return (unsigned long long)__double_as_longlong(v); }
HD_FN float hd_half_float(unsigned short v) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v)); return r; }
HD_FN unsigned short hd_float_half(float v) { unsigned short r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v)); return r; }
HD_FN unsigned short hd_float_bf16(float v) { unsigned short r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v)); return r; }
HD_FN float hd_round_zero(double v) { return __double2float_rz(v); }
HD_FN float hd_min(float a, float b) { float r; asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
HD_FN float hd_max(float a, float b) { float r; asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
HD_FN float hd_min_num(float a, float b) { float r; asm("min.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
HD_FN float hd_max_num(float a, float b) { float r; asm("max.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b)); return r; }
HD_FN float hd_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
HD_FN double hd_fma(double a, double b, double c) { return __fma_rn(a, b, c); }
HD_FN float hd_rcp_approx(float v) { float r; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v)); return r; }
HD_FN unsigned hd_shfl_xor(unsigned v, int m) { return __shfl_xor_sync(0xffffffffu, v, m); }
HD_FN unsigned hd_shfl_up(unsigned v, int d) { return __shfl_up_sync(0xffffffffu, v, d); }
HD_FN unsigned hd_shfl(unsigned v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
HD_FN unsigned hd_ballot(bool v) { return __ballot_sync(0xffffffffu, v); }
HD_FN unsigned hd_popc(unsigned v) { return (unsigned)__popc(v); }
HD_FN int hd_lowest(unsigned v) { return __ffs((int)v) - 1; }
HD_FN void hd_sync_warp() { __syncwarp(); }
HD_FN void hd_sync() { __syncthreads(); }
HD_FN uint4 hd_ldg16(const void* p) { return __ldg((const uint4*)p); }
HD_FN uint2 hd_ldg8(const void* p) { return __ldg((const uint2*)p); }
template <class T> HD_FN T hd_ldg(const T* p) { return __ldg(p); }
template <class T> HD_FN void hd_stcs(T* p, T v) { __stcs(p, v); }
HD_FN void hd_publish(unsigned long long* p, unsigned long long v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
HD_FN unsigned long long hd_observe(const unsigned long long* p) {
  unsigned long long v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
HD_FN unsigned hd_atomic_add(unsigned* p, unsigned v) { return atomicAdd(p, v); }
HD_FN unsigned hd_atomic_cas(unsigned* p, unsigned a, unsigned b) { return atomicCAS(p, a, b); }
// All blocks of a cooperative launch. The word's top bit flips when the last block arrives; it needs no reset.
HD_FN void hd_grid_sync(unsigned* word) {
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u;
    unsigned old, now;
    asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(word), "r"(add) : "memory");
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(word) : "memory");
    while (((old ^ now) & 0x80000000u) == 0);
  }
  __syncthreads();
}
)cuda";

constexpr const char* kCommon = R"cuda(
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32; typedef unsigned long long u64;
struct f16 { u16 v; };
struct bf16 { u16 v; };

// ---- index arithmetic
HD_FN idx hd_udiv(idx a, idx b) { return (idx)((uidx)a / (uidx)b); }
HD_FN idx hd_umod(idx a, idx b) { return (idx)((uidx)a % (uidx)b); }
HD_FN idx hd_floordiv(idx a, idx b) { idx q = a / b; return (a % b != 0 && (a < 0) != (b < 0)) ? q - 1 : q; }
HD_FN idx hd_floormod(idx a, idx b) { idx r = a % b; return (r != 0 && (r < 0) != (b < 0)) ? r + b : r; }
HD_FN idx hd_imin(idx a, idx b) { return a < b ? a : b; }
HD_FN idx hd_imax(idx a, idx b) { return a > b ? a : b; }

// ---- vectors of bytes
template <int N> struct hd_pack { u32 w[(N + 3) / 4]; };
template <int N> HD_FN hd_pack<N> hd_load(const void* p) {
  hd_pack<N> r;
  const char* c = (const char*)p;
  if constexpr (N >= 16) {
    HD_UNROLL for (int k = 0; k < N / 16; ++k) {
      uint4 v = *(const uint4*)(c + 16 * k);
      r.w[4 * k] = v.x; r.w[4 * k + 1] = v.y; r.w[4 * k + 2] = v.z; r.w[4 * k + 3] = v.w;
    }
  } else if constexpr (N == 8) { uint2 v = *(const uint2*)c; r.w[0] = v.x; r.w[1] = v.y; }
  else if constexpr (N == 4) r.w[0] = *(const u32*)c;
  else if constexpr (N == 2) r.w[0] = *(const u16*)c;
  else r.w[0] = *(const u8*)c;
  return r;
}
template <int N> HD_FN hd_pack<N> hd_load_const(const void* p) {
  hd_pack<N> r;
  const char* c = (const char*)p;
  if constexpr (N >= 16) {
    HD_UNROLL for (int k = 0; k < N / 16; ++k) {
      uint4 v = hd_ldg16(c + 16 * k);
      r.w[4 * k] = v.x; r.w[4 * k + 1] = v.y; r.w[4 * k + 2] = v.z; r.w[4 * k + 3] = v.w;
    }
  } else if constexpr (N == 8) { uint2 v = hd_ldg8(c); r.w[0] = v.x; r.w[1] = v.y; }
  else if constexpr (N == 4) r.w[0] = hd_ldg((const u32*)c);
  else if constexpr (N == 2) r.w[0] = hd_ldg((const u16*)c);
  else r.w[0] = hd_ldg((const u8*)c);
  return r;
}
template <int N> HD_FN void hd_store(void* p, const hd_pack<N>& v) {
  char* c = (char*)p;
  if constexpr (N >= 16) {
    HD_UNROLL for (int k = 0; k < N / 16; ++k) {
      uint4 q; q.x = v.w[4 * k]; q.y = v.w[4 * k + 1]; q.z = v.w[4 * k + 2]; q.w = v.w[4 * k + 3];
      *(uint4*)(c + 16 * k) = q;
    }
  } else if constexpr (N == 8) { uint2 q; q.x = v.w[0]; q.y = v.w[1]; *(uint2*)c = q; }
  else if constexpr (N == 4) *(u32*)c = v.w[0];
  else if constexpr (N == 2) *(u16*)c = (u16)v.w[0];
  else *(u8*)c = (u8)v.w[0];
}
template <int N> HD_FN void hd_store_stream(void* p, const hd_pack<N>& v) {
  char* c = (char*)p;
  if constexpr (N >= 16) {
    HD_UNROLL for (int k = 0; k < N / 16; ++k) {
      uint4 q; q.x = v.w[4 * k]; q.y = v.w[4 * k + 1]; q.z = v.w[4 * k + 2]; q.w = v.w[4 * k + 3];
      hd_stcs((uint4*)(c + 16 * k), q);
    }
  } else if constexpr (N == 8) { uint2 q; q.x = v.w[0]; q.y = v.w[1]; hd_stcs((uint2*)c, q); }
  else if constexpr (N == 4) hd_stcs((u32*)c, v.w[0]);
  else if constexpr (N == 2) hd_stcs((u16*)c, (u16)v.w[0]);
  else hd_stcs((u8*)c, (u8)v.w[0]);
}
template <int B> HD_FN u64 hd_piece(const u32* w, int l) {
  if constexpr (B == 8) return (u64)w[2 * l] | ((u64)w[2 * l + 1] << 32);
  else if constexpr (B == 4) return w[l];
  else if constexpr (B == 2) return (w[l / 2] >> (16 * (l % 2))) & 0xffffu;
  else return (w[l / 4] >> (8 * (l % 4))) & 0xffu;
}
template <int B> HD_FN void hd_set_piece(u32* w, int l, u64 v) {
  if constexpr (B == 8) { w[2 * l] = (u32)v; w[2 * l + 1] = (u32)(v >> 32); }
  else if constexpr (B == 4) w[l] = (u32)v;
  else if constexpr (B == 2) { if (l % 2 == 0) w[l / 2] = (u32)v & 0xffffu; else w[l / 2] |= (u32)v << 16; }
  else { if (l % 4 == 0) w[l / 4] = (u32)v & 0xffu; else w[l / 4] |= ((u32)v & 0xffu) << (8 * (l % 4)); }
}
// Bits of a value in memory and back.
HD_FN u64 hd_bits(float v) { return hd_f32_bits(v); }
HD_FN u64 hd_bits(double v) { return hd_f64_bits(v); }
HD_FN u64 hd_bits(f16 v) { return v.v; }
HD_FN u64 hd_bits(bf16 v) { return v.v; }
HD_FN u64 hd_bits(bool v) { return v ? 1 : 0; }
HD_FN u64 hd_bits(i8 v) { return (u8)v; }
HD_FN u64 hd_bits(i16 v) { return (u16)v; }
HD_FN u64 hd_bits(i32 v) { return (u32)v; }
HD_FN u64 hd_bits(i64 v) { return (u64)v; }
HD_FN u64 hd_bits(u8 v) { return v; }
HD_FN u64 hd_bits(u16 v) { return v; }
HD_FN u64 hd_bits(u32 v) { return v; }
HD_FN u64 hd_bits(u64 v) { return v; }
template <class T> struct hd_tag {};
HD_FN float hd_from(hd_tag<float>, u64 b) { return hd_bits_f32((u32)b); }
HD_FN double hd_from(hd_tag<double>, u64 b) { return hd_bits_f64(b); }
HD_FN f16 hd_from(hd_tag<f16>, u64 b) { f16 r; r.v = (u16)b; return r; }
HD_FN bf16 hd_from(hd_tag<bf16>, u64 b) { bf16 r; r.v = (u16)b; return r; }
HD_FN bool hd_from(hd_tag<bool>, u64 b) { return b != 0; }
template <class T> HD_FN T hd_from(hd_tag<T>, u64 b) { return (T)b; }
template <class T> HD_FN T hd_lane(const u32* w, int l) { return hd_from(hd_tag<T>(), hd_piece<sizeof(T)>(w, l)); }
template <class T> HD_FN void hd_set_lane(u32* w, int l, T v) { hd_set_piece<sizeof(T)>(w, l, hd_bits(v)); }
// One element.
template <class T> HD_FN T hd_get(const void* p, idx i) {
  if constexpr (sizeof(T) == 8) return hd_from(hd_tag<T>(), ((const u64*)p)[i]);
  else if constexpr (sizeof(T) == 4) return hd_from(hd_tag<T>(), ((const u32*)p)[i]);
  else if constexpr (sizeof(T) == 2) return hd_from(hd_tag<T>(), ((const u16*)p)[i]);
  else return hd_from(hd_tag<T>(), ((const u8*)p)[i]);
}
template <class T> HD_FN T hd_get_const(const void* p, idx i) {
  if constexpr (sizeof(T) == 8) return hd_from(hd_tag<T>(), hd_ldg((const u64*)p + i));
  else if constexpr (sizeof(T) == 4) return hd_from(hd_tag<T>(), hd_ldg((const u32*)p + i));
  else if constexpr (sizeof(T) == 2) return hd_from(hd_tag<T>(), hd_ldg((const u16*)p + i));
  else return hd_from(hd_tag<T>(), hd_ldg((const u8*)p + i));
}
template <class T> HD_FN void hd_put(void* p, idx i, T v) {
  if constexpr (sizeof(T) == 8) ((u64*)p)[i] = hd_bits(v);
  else if constexpr (sizeof(T) == 4) ((u32*)p)[i] = (u32)hd_bits(v);
  else if constexpr (sizeof(T) == 2) ((u16*)p)[i] = (u16)hd_bits(v);
  else ((u8*)p)[i] = (u8)hd_bits(v);
}
template <class T> HD_FN void hd_put_stream(void* p, idx i, T v) {
  if constexpr (sizeof(T) == 8) hd_stcs((u64*)p + i, hd_bits(v));
  else if constexpr (sizeof(T) == 4) hd_stcs((u32*)p + i, (u32)hd_bits(v));
  else if constexpr (sizeof(T) == 2) hd_stcs((u16*)p + i, (u16)hd_bits(v));
  else hd_stcs((u8*)p + i, (u8)hd_bits(v));
}

// ---- arithmetic that C++ leaves open
template <class T> struct hd_unsigned { typedef T type; };
template <> struct hd_unsigned<i8> { typedef u8 type; };
template <> struct hd_unsigned<i16> { typedef u16 type; };
template <> struct hd_unsigned<i32> { typedef u32 type; };
template <> struct hd_unsigned<i64> { typedef u64 type; };
template <class T> HD_FN T hd_add(T a, T b) { return (T)((u64)a + (u64)b); }
template <class T> HD_FN T hd_sub(T a, T b) { return (T)((u64)a - (u64)b); }
template <class T> HD_FN T hd_mul(T a, T b) { return (T)((u64)a * (u64)b); }
HD_FN i32 hd_add(i32 a, i32 b) { return (i32)((u32)a + (u32)b); }
HD_FN i32 hd_sub(i32 a, i32 b) { return (i32)((u32)a - (u32)b); }
HD_FN i32 hd_mul(i32 a, i32 b) { return (i32)((u32)a * (u32)b); }
HD_FN float hd_add(float a, float b) { return a + b; }
HD_FN float hd_sub(float a, float b) { return a - b; }
HD_FN float hd_mul(float a, float b) { return a * b; }
HD_FN double hd_add(double a, double b) { return a + b; }
HD_FN double hd_sub(double a, double b) { return a - b; }
HD_FN double hd_mul(double a, double b) { return a * b; }
template <class T> HD_FN T hd_fma(T a, T b, T c) { return hd_add(hd_mul(a, b), c); }
HD_FN float hd_div(float a, float b) { return a / b; }
HD_FN double hd_div(double a, double b) { return a / b; }
template <class T> HD_FN T hd_div(T a, T b) {
  if (b == (T)0) return (T)0;
  if ((T)-1 < (T)0 && b == (T)-1) return hd_sub((T)0, a);
  return (T)(a / b);
}
// The compiler's own sequence for quotients, without its branches: the IEEE quotient where neither operand is far, and
// of +0. (On an H200: no difference in 34e9 quotients of random and of hard operands.)
HD_FN float hd_reciprocal(float b) {
  const float r = hd_rcp_approx(b);
  return hd_fma(r, hd_fma(-b, r, 1.f), r);
}
HD_FN float hd_inverse(float a) { return hd_reciprocal(a); }
HD_FN double hd_inverse(double a) { return 1.0 / a; }
HD_FN float hd_quotient(float a, float b, float reciprocal) {
  const float q = a * reciprocal;
  return hd_fma(reciprocal, hd_fma(-b, q, a), q);
}
// Outside 2^-60 .. 2^60, on either side of 0.
HD_FN bool hd_far(float v) { return (hd_f32_bits(v) << 1) - (67u << 24) >= (120u << 24); }
HD_FN bool hd_far_dividend(float v) { return hd_far(v) & (hd_f32_bits(v) != 0u); }
HD_FN float hd_rem(float a, float b) { return fmodf(a, b); }
HD_FN double hd_rem(double a, double b) { return fmod(a, b); }
template <class T> HD_FN T hd_rem(T a, T b) {
  if (b == (T)0 || ((T)-1 < (T)0 && b == (T)-1)) return (T)0;
  return (T)(a % b);
}
template <class T> HD_FN T hd_neg(T a) { return hd_sub((T)0, a); }
HD_FN float hd_neg(float a) { return -a; }
HD_FN double hd_neg(double a) { return -a; }
template <class T> HD_FN T hd_abs(T a) { return a < (T)0 ? hd_sub((T)0, a) : a; }
HD_FN float hd_abs(float a) { return fabsf(a); }
HD_FN double hd_abs(double a) { return fabs(a); }
HD_FN float hd_sqrt(float a) { return sqrtf(a); }
HD_FN double hd_sqrt(double a) { return sqrt(a); }
template <class T> HD_FN T hd_floor(T a) { return a; }
template <class T> HD_FN T hd_ceil(T a) { return a; }
template <class T> HD_FN T hd_trunc(T a) { return a; }
template <class T> HD_FN T hd_rint(T a) { return a; }
HD_FN float hd_floor(float a) { return floorf(a); }
HD_FN float hd_ceil(float a) { return ceilf(a); }
HD_FN float hd_trunc(float a) { return truncf(a); }
HD_FN float hd_rint(float a) { return rintf(a); }
HD_FN double hd_floor(double a) { return floor(a); }
HD_FN double hd_ceil(double a) { return ceil(a); }
HD_FN double hd_trunc(double a) { return trunc(a); }
HD_FN double hd_rint(double a) { return rint(a); }
template <class T> HD_FN T hd_not(T a) { return (T)~a; }
HD_FN bool hd_not(bool a) { return !a; }
template <class T> HD_FN T hd_and(T a, T b) { return (T)(a & b); }
template <class T> HD_FN T hd_or(T a, T b) { return (T)(a | b); }
template <class T> HD_FN T hd_xor(T a, T b) { return (T)(a ^ b); }
template <class T> HD_FN T hd_shl(T a, T b) {
  typedef typename hd_unsigned<T>::type U;
  return (T)((u64)(U)a << ((unsigned)(U)b % (sizeof(T) * 8)));
}
template <class T> HD_FN T hd_shr(T a, T b) {
  typedef typename hd_unsigned<T>::type U;
  return (T)(a >> ((unsigned)(U)b % (sizeof(T) * 8)));
}
template <class T> HD_FN bool hd_is_nan(T a) { return a != a; }
template <class T> HD_FN T hd_min(T a, T b) { return b < a ? b : a; }
template <class T> HD_FN T hd_max(T a, T b) { return a < b ? b : a; }
template <class T> HD_FN T hd_min_num(T a, T b) { return b < a ? b : a; }
template <class T> HD_FN T hd_max_num(T a, T b) { return a < b ? b : a; }
HD_FN double hd_pick(double a, double b, bool larger, bool number) {
  if (a != a) return number ? b : a;
  if (b != b) return number ? a : b;
  if (a == b) return ((hd_f64_bits(a) >> 63 != 0) == larger) ? b : a;
  return ((a < b) == larger) ? b : a;
}
HD_FN double hd_min(double a, double b) { return hd_pick(a, b, false, false); }
HD_FN double hd_max(double a, double b) { return hd_pick(a, b, true, false); }
HD_FN double hd_min_num(double a, double b) { return hd_pick(a, b, false, true); }
HD_FN double hd_max_num(double a, double b) { return hd_pick(a, b, true, true); }

// ---- conversions. Halves go through f32; f64 is rounded to odd first, so that the second rounding is harmless.
HD_FN float hd_odd(double v) {
  float r = hd_round_zero(v);
  u32 b = hd_f32_bits(r);
  bool finite = (b & 0x7f800000u) != 0x7f800000u;
  return finite && (double)r != v ? hd_bits_f32(b | 1u) : r;
}
HD_FN float hd_value(f16 v) { return hd_half_float(v.v); }
HD_FN float hd_value(bf16 v) { return hd_bits_f32((u32)v.v << 16); }
template <class T> HD_FN T hd_value(T v) { return v; }
HD_FN i32 hd_saturate(hd_tag<i32>, float v) {
  return v != v ? 0 : v >= 2147483648.f ? 2147483647 : v <= -2147483648.f ? -2147483647 - 1 : (i32)v;
}
HD_FN i32 hd_saturate(hd_tag<i32>, double v) {
  return v != v ? 0 : v >= 2147483648. ? 2147483647 : v <= -2147483648. ? -2147483647 - 1 : (i32)v;
}
template <class F> HD_FN u32 hd_saturate(hd_tag<u32>, F v) { return !(v > (F)0) ? 0u : v >= (F)4294967296. ? ~0u : (u32)v; }
template <class F> HD_FN i64 hd_saturate(hd_tag<i64>, F v) {
  return v != v ? 0 : v >= (F)9223372036854775808. ? 0x7fffffffffffffffLL
       : v <= (F)-9223372036854775808. ? -0x7fffffffffffffffLL - 1 : (i64)v;
}
template <class F> HD_FN u64 hd_saturate(hd_tag<u64>, F v) {
  return !(v > (F)0) ? 0ULL : v >= (F)18446744073709551616. ? ~0ULL : (u64)v;
}
template <class F> HD_FN i8 hd_saturate(hd_tag<i8>, F v) { return (i8)hd_saturate(hd_tag<i32>(), v); }
template <class F> HD_FN u8 hd_saturate(hd_tag<u8>, F v) { return (u8)hd_saturate(hd_tag<i32>(), v); }
template <class F> HD_FN i16 hd_saturate(hd_tag<i16>, F v) { return (i16)hd_saturate(hd_tag<i32>(), v); }
template <class F> HD_FN u16 hd_saturate(hd_tag<u16>, F v) { return (u16)hd_saturate(hd_tag<i32>(), v); }
template <class F> HD_FN bool hd_saturate(hd_tag<bool>, F v) { return v != (F)0; }
HD_FN float hd_saturate(hd_tag<float>, float v) { return v; }
HD_FN float hd_saturate(hd_tag<float>, double v) { return (float)v; }
HD_FN double hd_saturate(hd_tag<double>, float v) { return (double)v; }
HD_FN double hd_saturate(hd_tag<double>, double v) { return v; }
template <class T> HD_FN T hd_convert(hd_tag<T> t, float v) { return hd_saturate(t, v); }
template <class T> HD_FN T hd_convert(hd_tag<T> t, double v) { return hd_saturate(t, v); }
template <class T, class S> HD_FN T hd_convert(hd_tag<T>, S v) { return (T)v; }
template <class S> HD_FN bool hd_convert(hd_tag<bool>, S v) { return v != (S)0; }
HD_FN bool hd_convert(hd_tag<bool>, float v) { return v != 0.f; }
HD_FN bool hd_convert(hd_tag<bool>, double v) { return v != 0.; }
HD_FN f16 hd_convert(hd_tag<f16>, float v) { f16 r; r.v = hd_float_half(v); return r; }
HD_FN f16 hd_convert(hd_tag<f16> t, double v) { return hd_convert(t, hd_odd(v)); }
template <class S> HD_FN f16 hd_convert(hd_tag<f16> t, S v) { return hd_convert(t, (float)v); }
HD_FN bf16 hd_convert(hd_tag<bf16>, float v) { bf16 r; r.v = hd_float_bf16(v); return r; }
HD_FN bf16 hd_convert(hd_tag<bf16> t, double v) { return hd_convert(t, hd_odd(v)); }
template <class S> HD_FN bf16 hd_convert(hd_tag<bf16> t, S v) { return hd_convert(t, (float)v); }
template <class T> struct hd_caster {
  template <class S> HD_FN T of(S v) { return hd_convert(hd_tag<T>(), hd_value(v)); }
  HD_FN T of(T v) { return v; }
};
template <class T, class S> HD_FN T hd_cast(S v) { return hd_caster<T>::of(v); }
template <class T, class S> HD_FN T hd_bitcast(S v) { return hd_from(hd_tag<T>(), hd_bits(v)); }

// ---- folds
struct hd_sum { template <class T> HD_FN T f(T a, T b) { return hd_add(a, b); } };
struct hd_product { template <class T> HD_FN T f(T a, T b) { return hd_mul(a, b); } };
struct hd_maximum { template <class T> HD_FN T f(T a, T b) { return hd_max(a, b); } };
struct hd_minimum { template <class T> HD_FN T f(T a, T b) { return hd_min(a, b); } };
struct hd_maximum_num { template <class T> HD_FN T f(T a, T b) { return hd_max_num(a, b); } };
struct hd_minimum_num { template <class T> HD_FN T f(T a, T b) { return hd_min_num(a, b); } };
struct hd_any { template <class T> HD_FN T f(T a, T b) { return hd_or(a, b); } };
struct hd_all { template <class T> HD_FN T f(T a, T b) { return hd_and(a, b); } };
// A value and where it was found; at < 0: nothing yet. The first NaN, else the first extreme, whatever the order of merging.
template <class T> struct hd_at { T v; i64 at; };
template <bool Max> struct hd_arg {
  template <class T> HD_FN bool better(T a, i64 i, T b, i64 j) {
    if (i < 0) return false;
    if (j < 0) return true;
    bool an = a != a, bn = b != b;
    if (an || bn) return an && (!bn || i < j);
    if (a == b) return i < j;
    return Max ? a > b : a < b;
  }
  template <class T> HD_FN hd_at<T> f(hd_at<T> a, hd_at<T> b) { return better(b.v, b.at, a.v, a.at) ? b : a; }
};
typedef hd_arg<true> hd_argmax;
typedef hd_arg<false> hd_argmin;

template <class T> HD_FN T hd_shuffle(int kind, T v, int k) {
  union { T t; u32 w[(sizeof(T) + 3) / 4]; } x;
  HD_UNROLL for (int j = 0; j < (int)(sizeof(T) + 3) / 4; ++j) x.w[j] = 0;
  x.t = v;
  HD_UNROLL for (int j = 0; j < (int)(sizeof(T) + 3) / 4; ++j) {
    x.w[j] = kind == 0 ? hd_shfl_xor(x.w[j], k) : kind == 1 ? hd_shfl_up(x.w[j], k) : hd_shfl(x.w[j], k);
  }
  return x.t;
}
// Every thread of each group of N (a power of two, at most a warp) gets the fold of the group.
template <class Op, int N, class T> HD_FN T hd_warp_fold(T v) {
  HD_UNROLL for (int m = 1; m < N; m *= 2) {
    T o = hd_shuffle(0, v, m);
    v = (threadIdx.x & m) ? Op::f(o, v) : Op::f(v, o);
  }
  return v;
}
template <class Op, int W, class T> HD_FN T hd_fold_warps(const T* s) {
  T v = s[0];
  HD_UNROLL for (int k = 1; k < W; ++k) v = Op::f(v, s[k]);
  return v;
}
// What the warps before this one left in s, and the fold of all.
template <class Op, int W, class T> HD_FN T hd_warps_before(const T* s, T identity, T* total) {
  const int warp = threadIdx.x >> 5;
  T ahead = identity, all = s[0];
  HD_UNROLL for (int k = 0; k < W; ++k) {
    if (k < warp) ahead = k == 0 ? s[0] : Op::f(ahead, s[k]);
    if (k > 0) all = Op::f(all, s[k]);
  }
  *total = all;
  return ahead;
}
// Exclusive prefix of the group's values, and their total. `s`: N / 32 values of shared memory.
template <class Op, int N, class T> HD_FN T hd_group_scan(T v, T identity, T* s, T* total) {
  const int width = N < 32 ? N : 32;
  const int lane = threadIdx.x & (width - 1);
  T inclusive = v;
  HD_UNROLL for (int d = 1; d < width; d *= 2) {
    T o = hd_shuffle(1, inclusive, d);
    if (lane >= d) inclusive = Op::f(o, inclusive);
  }
  T before = hd_shuffle(1, inclusive, 1);
  if (lane == 0) before = identity;
  if constexpr (N <= 32) {
    *total = hd_shuffle(2, inclusive, (int)(threadIdx.x & 31 & ~(width - 1)) + width - 1);
    return before;
  } else {
    const int warp = threadIdx.x >> 5;
    hd_sync();
    if (lane == 31) s[warp] = inclusive;
    hd_sync();
    const T ahead = hd_warps_before<Op, N / 32>(s, identity, total);
    return warp == 0 ? before : lane == 0 ? ahead : Op::f(ahead, before);
  }
}
// ---- tiles that wait for those before them. A word counts the launches so far: totals carry the launch's tag.
HD_FN u32 hd_launch_tag(const u64* launches) { return (u32)hd_observe(launches) + 1u; }
// A value and the launch's tag travel in one word (two, where the value has 8 bytes), so that no fence is needed.
template <class T> HD_FN void hd_publish_total(u64* words, u32 tag, T v) {
  const u64 bits = hd_bits(v);
  hd_publish(words, bits << 32 | tag);
  if constexpr (sizeof(T) == 8) hd_publish(words + 1, (bits >> 32 << 32) | tag);
}
HD_FN u64 hd_wait_word(const u64* word, u32 tag) {
  u64 w;
  do w = hd_observe(word); while ((u32)w != tag);
  return w >> 32;
}
template <class T> HD_FN T hd_wait_total(const u64* words, u32 tag) {
  u64 bits = hd_wait_word(words, tag);
  if constexpr (sizeof(T) == 8) bits |= hd_wait_word(words + 1, tag) << 32;
  return hd_from(hd_tag<T>(), bits);
}
// ---- bounds checking: the first fault is kept. record: {taken, access, rank, coordinate, extent of the bad axis}
HD_FN bool hd_inside(u32* fault, u32 access, u32 axis, i64 c, i64 n) {
  if (c >= 0 && c < n) return true;
  if (hd_atomic_cas(fault, 0u, 1u) == 0u) {
    fault[1] = access; fault[2] = axis;
    fault[3] = (u32)c; fault[4] = (u32)((u64)c >> 32);
    fault[5] = (u32)n; fault[6] = (u32)((u64)n >> 32);
  }
  return false;
}
)cuda";

}  // namespace

std::string prelude_machine() { return kMachine; }

std::string prelude_common(bool wide) {
  std::string index = wide ? "typedef long long idx; typedef unsigned long long uidx;"
                           : "typedef int idx; typedef unsigned uidx;";
  return index + kCommon;
}

}  // namespace heddle::cuda
