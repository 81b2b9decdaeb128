// Small tools: integers by width, and sets of pixels of a line.
// The parts of this folder are put together, in order, into the body of one native function of Warp, which compiles
// them for a CPU and for CUDA alike. So they hold local structs, whose member functions are inline, and no includes.

// What is called from many places is compiled once: compilers would copy it into each of them; or HERE, in each of them.
#ifdef __CUDA_ARCH__
#define APART __noinline__
#define HERE __forceinline__
#else
#define APART __attribute__((noinline))
#define HERE __attribute__((always_inline))
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

struct Bits {
    static CUDA_CALLABLE i32 lowest(u64 word) {  // index of the lowest bit that is set; word is not 0
#ifdef __CUDA_ARCH__
        return __ffsll((long long)word) - 1;
#else
        return __builtin_ctzll(word);
#endif
    }

    static CUDA_CALLABLE i32 count(u32 word) {
#ifdef __CUDA_ARCH__
        return __popc(word);
#else
        return __builtin_popcount(word);
#endif
    }

    static CUDA_CALLABLE u32 reversed(u32 byte) {
        byte = (byte & 0x0f) << 4 | byte >> 4;
        byte = (byte & 0x33) << 2 | (byte >> 2 & 0x33);
        return (byte & 0x55) << 1 | (byte >> 1 & 0x55);
    }

    static CUDA_CALLABLE u32 doubled(u32 byte) {  // 8 bits to 16, each one twice
        byte = (byte | byte << 4) & 0x0f0f;
        byte = (byte | byte << 2) & 0x3333;
        byte = (byte | byte << 1) & 0x5555;
        return byte | byte << 1;
    }

    static CUDA_CALLABLE u32 fourfold(u32 byte) {  // 8 bits to 32, each one four times
        byte = (byte | byte << 12) & 0x000f000f;
        byte = (byte | byte << 6) & 0x03030303;
        byte = (byte | byte << 3) & 0x11111111;
        return byte * 15;
    }
};

// A set of the 160 pixels of a line.
struct Pixels {
    u64 w0, w1, w2;

    CUDA_CALLABLE void clear() { w0 = w1 = w2 = 0; }
    CUDA_CALLABLE bool any() const { return (w0 | w1 | w2) != 0; }

    // Add `pattern` (at most 32 pixels, the leftmost lowest) at `x`; it wraps around the line's end.
    CUDA_CALLABLE void put(u64 pattern, i32 x) {
        if (x >= 160) x -= 160;
        i32 shift = x & 63;
        u64 low = pattern << shift, high = pattern >> 1 >> (63 - shift);
        if (x < 64) {
            w0 |= low;
            w1 |= high;
        } else if (x < 128) {
            w1 |= low;
            w2 |= high;
        } else {
            w2 |= low;
            w0 |= w2 >> 32;
            w2 &= 0xffffffffull;
        }
    }

    static CUDA_CALLABLE Pixels range(i32 begin, i32 end) {
        Pixels p;
        p.w0 = below(end) & ~below(begin);
        p.w1 = below(end - 64) & ~below(begin - 64);
        p.w2 = below(end - 128) & ~below(begin - 128);
        return p;
    }

    static CUDA_CALLABLE u64 below(i32 x) { return x <= 0 ? 0 : x >= 64 ? ~0ull : (1ull << x) - 1; }

    CUDA_CALLABLE Pixels both(const Pixels& o) const {
        Pixels p;
        p.w0 = w0 & o.w0;
        p.w1 = w1 & o.w1;
        p.w2 = w2 & o.w2;
        return p;
    }

    CUDA_CALLABLE bool meets(const Pixels& o) const { return ((w0 & o.w0) | (w1 & o.w1) | (w2 & o.w2)) != 0; }
};
