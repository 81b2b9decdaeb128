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
        const u64 digits = 0xf7b3d591e6a2c480ull;
        return (u32)(digits >> 4 * (byte & 15) & 15) << 4 | (u32)(digits >> 4 * (byte >> 4) & 15);
    }

    static CUDA_CALLABLE u32 doubled(u32 byte) {  // 8 bits to 16, each bit twice
        byte = (byte | byte << 4) & 0x0f0f;
        byte = (byte | byte << 2) & 0x3333;
        byte = (byte | byte << 1) & 0x5555;
        return byte | byte << 1;
    }

    static CUDA_CALLABLE u32 fourfold(u32 byte) {  // 8 bits to 32, each bit four times
        static const u16 of[16] = {0x0, 0xf, 0xf0, 0xff, 0xf00, 0xf0f, 0xff0, 0xfff,
                                   0xf000, 0xf00f, 0xf0f0, 0xf0ff, 0xff00, 0xff0f, 0xfff0, 0xffff};
        return of[byte & 15] | (u32)of[byte >> 4] << 16;
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
        typedef bool Each __attribute__((ext_vector_type(32)));
        return -__builtin_convertvector(__builtin_bit_cast(Each, (u32)where), Colors);
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
        const i32 shift = x & 63, word = x >> 6;
        const u64 low = pattern << shift, high = pattern >> 1 >> (63 - shift);
        const u64 last = w2 | (word == 2 ? low : word == 1 ? high : 0);  // pixels from 160 on wrap around
        w0 |= last >> 32 | (word == 0 ? low : word == 2 ? high << 32 : 0);
        w1 |= word == 1 ? low : word == 0 ? high : 0;
        w2 = last & 0xffffffffull;
    }

    static CUDA_CALLABLE Pixels range(i32 begin, i32 end) {
        Pixels p;
        p.w0 = below(end) & ~below(begin);
        p.w1 = below(end - 64) & ~below(begin - 64);
        p.w2 = below(end - 128) & ~below(begin - 128);
        return p;
    }

    // Take the pixels of another set from `x` on.
    CUDA_CALLABLE void replace_from(i32 x, const Pixels& o) {
        u64 before = below(x);
        w0 = (w0 & before) | (o.w0 & ~before);
        before = below(x - 64);
        w1 = (w1 & before) | (o.w1 & ~before);
        before = below(x - 128);
        w2 = (w2 & before) | (o.w2 & ~before);
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
