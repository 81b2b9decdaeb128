// Integers by width, sets of pixels of a line, and their colours.
//
// The files of this folder are joined in order into the body of one native function of Warp, which compiles them for a
// CPU and for CUDA. So the files hold local structs, whose member functions are inline, and no includes.

// APART compiles a function once, where compilers would copy it into each of many callers; HERE copies it into all of
// them.
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
    static CUDA_CALLABLE i32 lowest(u64 word) {  // index of the lowest set bit; word is not 0
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

    static CUDA_CALLABLE u32 doubled(u32 byte) {  // 8 bits to 16, each bit twice
        byte = (byte | byte << 4) & 0x0f0f;
        byte = (byte | byte << 2) & 0x3333;
        byte = (byte | byte << 1) & 0x5555;
        return byte | byte << 1;
    }

    static CUDA_CALLABLE u32 fourfold(u32 byte) {  // 8 bits to 32, each bit four times
        byte = (byte | byte << 12) & 0x000f000f;
        byte = (byte | byte << 6) & 0x03030303;
        byte = (byte | byte << 3) & 0x11111111;
        return byte * 15;
    }
};

// Colours of adjacent pixels that are painted at once, and a bit for each, the lowest for the leftmost. Warp's own
// compiler uses a vector of the CPU, other compilers a word.
#if defined(__clang__) && !defined(__CUDACC__)
typedef u8 Colors __attribute__((vector_size(32)));
typedef u32 Side __attribute__((may_alias));
#else
typedef u64 Colors;
typedef u8 Side;
#endif

struct Paint {
    enum { SIDE = sizeof(Colors) };

#if defined(__clang__) && !defined(__CUDACC__)
    typedef Colors Anywhere __attribute__((aligned(1), may_alias));

    static Colors all_of(u8 color) { return Colors{} + color; }

    static Colors mask(Side where) {
        typedef u32 Words __attribute__((vector_size(32)));
        const Colors all = (Colors)(Words{} + where);
        const Colors each = __builtin_shufflevector(all, all, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,
                                                    18, 18, 18, 18, 18, 18, 18, 18, 19, 19, 19, 19, 19, 19, 19, 19);
        const Colors bits = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128,
                             1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
        return (Colors)((each & bits) != 0);
    }
#else
    typedef Colors Anywhere;  // rows of words are aligned

    static CUDA_CALLABLE Colors all_of(u8 color) { return color * 0x0101010101010101ull; }

    static CUDA_CALLABLE Colors mask(Side where) {
        const Colors bits = where * 0x0101010101010101ull & 0x8040201008040201ull, tops = 0x8080808080808080ull;
        return ((bits + ~tops) & tops) / 128 * 255;
    }
#endif

    static CUDA_CALLABLE Colors load(const u8* from) { return *(const Anywhere*)from; }
    static CUDA_CALLABLE void store(u8* to, Colors colors) { *(Anywhere*)to = colors; }

    // `above` where bits are set, otherwise `below`.
    static CUDA_CALLABLE Colors blended(Colors below, Colors above, Side where) {
        return (above & mask(where)) | (below & ~mask(where));
    }

    // Bits of the pixels from `x` on that are in begin..end - 1; at least one is.
    static CUDA_CALLABLE Side within(i32 x, i32 begin, i32 end) {
        Side here = (Side)~0u;
        if (begin > x) here &= ~0u << (begin - x);
        if (end < x + SIDE) here &= ~(~0u << (end - x));
        return here;
    }

    // `back` where bits are set, otherwise the present pixels.
    static CUDA_CALLABLE Colors filled(const u8* pixels, Colors back, Side where) {
        return where == (Side)~0u ? back : blended(load(pixels), back, where);
    }
};

// Set of the 160 pixels of a line.
struct Pixels {
    u64 w0, w1, w2;

    CUDA_CALLABLE void clear() { w0 = w1 = w2 = 0; }
    CUDA_CALLABLE bool any() const { return (w0 | w1 | w2) != 0; }

    // Add `pattern` (the leftmost pixel lowest) at `x`; it wraps around at the end of the line.
    CUDA_CALLABLE void put(u64 pattern, i32 x) {
        if (x >= 160) x -= 160;
        i32 shift = x & 63;
        u64 low = pattern << shift, high = pattern >> 1 >> (63 - shift);
        if (x < 64) {
            w0 |= low;
            w1 |= high;
        } else {
            if (x < 128) {
                w1 |= low;
                w2 |= high;
            } else {
                w2 |= low;
                w0 |= high << 32;
            }
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

    // Bits of the pixels that are painted at once from `x` on.
    CUDA_CALLABLE Side side(i32 x) const { return ((const Side*)this)[x / Paint::SIDE]; }

    CUDA_CALLABLE Pixels both(const Pixels& o) const {
        Pixels p;
        p.w0 = w0 & o.w0;
        p.w1 = w1 & o.w1;
        p.w2 = w2 & o.w2;
        return p;
    }

    CUDA_CALLABLE bool meets(const Pixels& o) const { return ((w0 & o.w0) | (w1 & o.w1) | (w2 & o.w2)) != 0; }
};
