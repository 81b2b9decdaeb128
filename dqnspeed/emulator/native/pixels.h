// The body of a native function that makes an observation of game `i`: the rows of one of its parts.
//
// Shades of two pictures, their maximum, and a resize by area as OpenCV does it, in its order of sums, so that every
// rounding is the same: of each row of the picture first the columns, then rows by their weights, and a `share` of that,
// where all weights are 1. A half it rounds to the even number, but upwards where both sides are `halved`.

enum { WIDTH = 160, STARTS = 7, FIRST = 8, SECOND = 9, BEFORE = -1, MOST = 160, FEW = 5 };

// A row of the two pictures, each of them shown in shades of a colour or the maximum before.
struct Row {
    const u8 *a, *b;
    bool a_is_before, b_is_before;

    enum { WORDS = WIDTH / 8, ALL = (1 << WORDS) - 1 };

    // Where this row looks otherwise than another: a bit for each eight pixels.
    CUDA_CALLABLE u32 differs(const Row& other) const {
        if (a_is_before || b_is_before) return ALL;
        const u64 *x = (const u64*)a, *y = (const u64*)other.a, *v = (const u64*)b, *w = (const u64*)other.b;
        u32 found = 0;
        for (i32 k = 0; k < WORDS; k++) found |= (u32)(((x[k] ^ y[k]) | (v[k] ^ w[k])) != 0) << k;
        return found;
    }

    CUDA_CALLABLE void shade(const u8* shades, u8* to, i32 begin, i32 end) const {
        for (i32 x = begin; x < end; x++) {
            u8 one = a_is_before ? a[x] : shades[a[x]], other = b_is_before ? b[x] : shades[b[x]];
            to[x] = one > other ? one : other;
        }
    }
};

// A row of a stack of frames, of which the newest is the last; at an episode's start all are the first.
struct Stacked {
    u8* oldest;
    const i32 frames, width;
    const size_t apart;
    const bool starts;

    CUDA_CALLABLE u8* newest() const { return oldest + apart * (frames - 1); }

    CUDA_CALLABLE void move_up() const {
        for (u8* frame = oldest; frame != newest() && !starts; frame += apart)
            for (i32 x = 0; x < width; x++) frame[x] = frame[apart + x];
    }

    CUDA_CALLABLE void spread() const {
        for (u8* frame = oldest; frame != newest() && starts; frame += apart)
            for (i32 x = 0; x < width; x++) frame[x] = newest()[x];
    }
};

const i32 height = screens.shape.dims[2], of_shades = shades.shape.dims[0], side = observations.shape.dims[2];
const i32 across = columns.shape.dims[0], down = rows.shape.dims[1];
const i32 frames = observations.shape.dims[1] / of_shades, wide = observations.shape.dims[3];
const bool starts = wp::index(answers, i, STARTS);
const i32 first = wp::index(answers, i, FIRST), second = wp::index(answers, i, SECOND);
for (i32 channel = 0; channel < of_shades; channel++) {
    const u8* shade = &wp::index(shades, channel, 0);
    u8* kept = &wp::index(pooled, i, channel, 0, 0);
    const u8* a = first == BEFORE ? kept : &wp::index(screens, i, first, 0, 0);
    const u8* b = second == BEFORE ? kept : &wp::index(screens, i, second, 0, 0);
    const size_t apart = (size_t)of_shades * side * wide;
    if (!resized_to) {  // what is kept is the newest frame
        for (i32 y = height * part / parts; y < height * (part + 1) / parts; y++) {
            Row row = {a + WIDTH * y, b + WIDTH * y, first == BEFORE, second == BEFORE};
            row.shade(shade, kept + WIDTH * y, 0, WIDTH);
            if (frames == 1) continue;  // it is where it is kept
            Stacked stacked = {&wp::index(observations, i, channel, y, 0), frames, wide, apart, starts};
            stacked.move_up();
            for (i32 x = 0; x < WIDTH; x++) stacked.newest()[x] = kept[WIDTH * y + x];
            stacked.spread();
        }
        continue;
    }
    float across_row[MOST], sum[MOST];  // a row of the picture with its columns resized, and a row of the observation
    i32 last = -1;                      // that row of the picture
    for (i32 y = side * part / parts; y < side * (part + 1) / parts; y++) {
        for (i32 k = 0; k < down; k++) {
            const i32 now = wp::index(rows, y, k);
            const float weight = wp::index(row_weights, y, k);
            if (now != last) {
                Row row = {a + WIDTH * now, b + WIDTH * now, first == BEFORE, second == BEFORE};
                Row above = {a + WIDTH * last, b + WIDTH * last, first == BEFORE, second == BEFORE};
                u8* to = kept + WIDTH * now;
                u32 differ = last < 0 ? (u32)Row::ALL : row.differs(above);
                // All of a row is done at once, a little of it piece by piece: pixels first, then columns made of them.
                bool all = Bits::count(differ) > FEW;
                if (all) row.shade(shade, to, 0, WIDTH);
                else {
                    const u64* same = (const u64*)(kept + WIDTH * last);  // each once: other parts may read this row
                    for (i32 k = 0; k < Row::WORDS; k++)
                        if (!(differ >> k & 1)) ((u64*)to)[k] = same[k];
                    for (u32 rest = differ; rest; rest &= rest - 1)
                        row.shade(shade, to, 8 * Bits::lowest(rest), 8 * Bits::lowest(rest) + 8);
                }
                for (u32 rest = all ? 1 : differ; rest; rest &= rest - 1) {
                    i32 word = Bits::lowest(rest), begin = all ? 0 : side * (8 * word - left) / width;
                    i32 end = all ? side : (side * (8 * (word + 1) - left) + width - 1) / width;
                    if (begin < 0) begin = 0;
                    if (end > side) end = side;
                    for (i32 x = begin; x < end; x++) across_row[x] = 0.0f;
                    for (i32 c = 0; c < across; c++) {
                        const i32* column = &wp::index(columns, c, 0);
                        const float* part_of = &wp::index(column_weights, c, 0);
                        for (i32 x = begin; x < end; x++)
                            across_row[x] = across_row[x] + (float)to[column[x]] * part_of[x];
                    }
                }
                last = now;
            }
            for (i32 x = 0; x < side; x++) sum[x] = (k ? sum[x] : 0.0f) + weight * across_row[x];
        }
        Stacked stacked = {&wp::index(observations, i, channel, y, 0), frames, wide, apart, starts};
        stacked.move_up();
        u8* to = stacked.newest();
        const float whole = 12582912.0f;  // added and taken away rounds to the nearest whole number, or the even one
        for (i32 x = 0; x < side; x++) {
            const float mean = sum[x] * share;
            to[x] = (u8)(i32)(halved ? mean + 0.5f : (mean + whole) - whole);
        }
        stacked.spread();
    }
}
