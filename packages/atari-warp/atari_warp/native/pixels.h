// Body of a native function that updates the observation of game `i`: the rows of one of its parts.
//
// `pooled` and the newest frame of `observations` must be as the previous call left them, or both empty.
//
// Two pictures are converted to shades, their maximum is taken, and it is resized by area as by OpenCV, with sums in
// the same order and therefore the same roundings. Each row of the picture is resized first, then rows are added with
// their weights. If all weights are 1, the sum is multiplied by `share`. Halves are rounded to the even number, or
// upwards if both sides are `halved`. A picture that grows in a direction is interpolated as by OpenCV, in integers.

enum { WIDTH = 160, EPISODE_START = 7, FIRST = 11, SECOND = 12, LEFT_OUT = 13, BEFORE = -1, MOST = 160 };
enum { TERMS = 250 };  // picture rows in one row of an observation, at most
enum { KEEP, SHRINK, ENLARGE };  // ways to resize

// Row of two pictures, each in colours or, for the previous maximum, in shades; a word has eight pixels.
struct Row {
    const u8 *a, *b;
    bool a_is_before, b_is_before;

    enum { WORDS = WIDTH / 8, ALL = (1 << WORDS) - 1 };

    // Bits of the words in which this row differs from another.
    CUDA_CALLABLE u32 differs(const Row& other) const {
        if (a_is_before || b_is_before) return ALL;
        const u64 *x = (const u64*)a, *y = (const u64*)other.a, *v = (const u64*)b, *w = (const u64*)other.b;
        u32 found = 0;
        for (i32 k = 0; k < WORDS; k++) found |= (u32)(((x[k] ^ y[k]) | (v[k] ^ w[k])) != 0) << k;
        return found;
    }

    CUDA_CALLABLE u8 shade(const u8* shades, i32 x) const {
        u8 one = a_is_before ? a[x] : shades[a[x]], other = b_is_before ? b[x] : shades[b[x]];
        return one > other ? one : other;
    }

    CUDA_CALLABLE u64 shaded(const u8* shades, i32 word) const {
        u64 made = 0, one = ((const u64*)a)[word];
        if (!a_is_before && !b_is_before && one == ((const u64*)b)[word]) {
            for (i32 k = 0; k < 8; k++) made |= (u64)shades[one >> 8 * k & 255] << 8 * k;
            return made;
        }
        for (i32 k = 0; k < 8; k++) made |= (u64)shade(shades, 8 * word + k) << 8 * k;
        return made;
    }
};

// Columns of an observation that words of a row contribute to, each once: word by word, or all columns if there are
// many words.
struct Pieces {
    u32 words;
    const i32 left, width, side;
    i32 begin = 0, end = 0;

    enum { FEW = 5 };

    CUDA_CALLABLE Pieces(u32 words, i32 left, i32 width, i32 side)
        : words(words), left(left), width(width), side(side) {}

    CUDA_CALLABLE bool next() {
        if (!words) return false;
        const bool all = Bits::count(words) > FEW;
        const i32 word = Bits::lowest(words);
        begin = all ? 0 : side * (8 * word - left) / width;
        if (begin < end) begin = end;
        end = all ? side : (side * (8 * (word + 1) - left) + width - 1) / width;
        if (end > side) end = side;
        words = all ? 0 : words & (words - 1);
        return true;
    }
};

// Row of a stack of frames, the newest last. At the start of an episode the others are equal to it, or black.
struct Stacked {
    u8* oldest;
    const i32 frames, width;
    const size_t apart;
    const bool starts, blank;

    CUDA_CALLABLE u8* newest() const { return oldest + apart * (frames - 1); }

    CUDA_CALLABLE void move_up() const {
        for (u8* frame = oldest; frame != newest() && !starts; frame += apart)
            for (i32 x = 0; x < width; x++) frame[x] = frame[apart + x];
    }

    CUDA_CALLABLE void spread() const {
        for (u8* frame = oldest; frame != newest() && starts; frame += apart)
            for (i32 x = 0; x < width; x++) frame[x] = blank ? 0 : newest()[x];
    }
};

if (wp::index(answers, i, LEFT_OUT)) return;
const i32 height = screens.shape.dims[2], of_shades = shades.shape.dims[0];
const i32 side = observations.shape.dims[2], wide = observations.shape.dims[3];
const i32 across = columns.shape.dims[0], down = rows.shape.dims[1];
const i32 frames = observations.shape.dims[1] / of_shades;
const bool starts = wp::index(answers, i, EPISODE_START);
const i32 first = wp::index(answers, i, FIRST), second = wp::index(answers, i, SECOND);
for (i32 channel = 0; channel < of_shades; channel++) {
    const u8* shade = &wp::index(shades, channel, 0);
    u8* kept = &wp::index(pooled, i, channel, 0, 0);
    const u8* a = first == BEFORE ? kept : &wp::index(screens, i, first, 0, 0);
    const u8* b = second == BEFORE ? kept : &wp::index(screens, i, second, 0, 0);
    const size_t apart = (size_t)of_shades * side * wide;
    if (resize == KEEP) {  // `pooled` is the newest frame
        for (i32 y = height * part / parts; y < height * (part + 1) / parts; y++) {
            Row row = {a + WIDTH * y, b + WIDTH * y, first == BEFORE, second == BEFORE};
            for (i32 x = 0; x < WIDTH; x++) kept[WIDTH * y + x] = row.shade(shade, x);
            if (frames == 1) continue;  // observations are `pooled`
            Stacked stacked = {&wp::index(observations, i, channel, y, 0), frames, wide, apart, starts, blank};
            stacked.move_up();
            for (i32 x = 0; x < WIDTH; x++) stacked.newest()[x] = kept[WIDTH * y + x];
            stacked.spread();
        }
        continue;
    }
    if (resize == ENLARGE) {  // between two columns and two rows; one part converts the picture before it is resized
        for (i32 y = 0; y < height && part == 0; y++) {
            Row row = {a + WIDTH * y, b + WIDTH * y, first == BEFORE, second == BEFORE};
            for (i32 x = 0; x < WIDTH; x++) kept[WIDTH * y + x] = row.shade(shade, x);
        }
        for (i32 y = 0; y < side && part == 0; y++) {
            const u8 *upper = kept + WIDTH * wp::index(rows, y, 0), *lower = kept + WIDTH * wp::index(rows, y, 1);
            const i32 of_upper = (i32)wp::index(row_weights, y, 0), of_lower = (i32)wp::index(row_weights, y, 1);
            Stacked stacked = {&wp::index(observations, i, channel, y, 0), frames, wide, apart, starts, blank};
            stacked.move_up();
            for (i32 x = 0; x < wide; x++) {
                const i32 one = wp::index(columns, 0, x), other = wp::index(columns, 1, x);
                const i32 of_one = (i32)wp::index(column_weights, 0, x), of_other = (i32)wp::index(column_weights, 1, x);
                const i32 above = (upper[one] * of_one + upper[other] * of_other) >> 4;
                const i32 below = (lower[one] * of_one + lower[other] * of_other) >> 4;
                stacked.newest()[x] = (u8)((((above * of_upper) >> 16) + ((below * of_lower) >> 16) + 2) >> 2);
            }
            stacked.spread();
        }
        continue;
    }
    // Most of a picture equals the previous one, and most of a row equals the row above. So words are converted only
    // where a row differs from the row above, and resized only where the picture has changed. Parallel parts resize
    // everything, as they read rows that others write.
    const u32 inside = (u32)Row::ALL >> (Row::WORDS - 1 - (left + width - 1) / 8) & ~0u << left / 8;  // of the crop
    float across_row[MOST], sum[MOST];  // a picture row with resized columns, and a row of the observation
    u64 shaded[Row::WORDS];             // last picture row,
    i32 last = -1;                      // its number,
    u32 changed_last = 0;               // and its changed words
    u32 differ[TERMS], there = 0;       // words of each picture row that differ from the one above; words in across_row
    for (i32 y = side * part / parts; y < side * (part + 1) / parts; y++) {
        u32 changed = 0;
        for (i32 k = 0; k < down; k++) {
            const i32 now = wp::index(rows, y, k);
            differ[k] = 0;
            if (now != last) {
                Row row = {a + WIDTH * now, b + WIDTH * now, first == BEFORE, second == BEFORE};
                Row above = {a + WIDTH * last, b + WIDTH * last, first == BEFORE, second == BEFORE};
                differ[k] = last < 0 ? (u32)Row::ALL : row.differs(above);
                for (u32 rest = differ[k]; rest; rest &= rest - 1)
                    shaded[Bits::lowest(rest)] = row.shaded(shade, Bits::lowest(rest));
                u64* to = (u64*)(kept + WIDTH * now);
                changed_last = parts > 1 ? inside : 0;
                for (i32 word = 0; word < Row::WORDS; word++) {
                    if (parts == 1) changed_last |= (u32)(to[word] != shaded[word]) << word;
                    to[word] = shaded[word];
                }
                last = now;
            }
            changed |= changed_last;
        }
        changed &= inside;
        if (Bits::count(changed) > Pieces::FEW) changed = inside;
        u32 needed = changed;  // columns of a word depend on its neighbours too
        for (i32 reach = 0; 8 * reach * wide < width; reach++) needed |= needed << 1 | needed >> 1;
        needed &= inside;
        for (i32 k = 0; k < down; k++) {
            there &= ~differ[k];
            if (!changed) continue;
            const u8* from = kept + WIDTH * wp::index(rows, y, k);
            for (Pieces piece(needed & ~there, left, width, wide); piece.next();) {
                for (i32 x = piece.begin; x < piece.end; x++) across_row[x] = 0.0f;
                for (i32 c = 0; c < across; c++) {
                    const i32* column = &wp::index(columns, c, 0);
                    const float* part_of = &wp::index(column_weights, c, 0);
                    for (i32 x = piece.begin; x < piece.end; x++)
                        across_row[x] = across_row[x] + (float)from[column[x]] * part_of[x];
                }
            }
            there |= needed;
            const float weight = wp::index(row_weights, y, k);
            for (Pieces piece(changed, left, width, wide); piece.next();)
                for (i32 x = piece.begin; x < piece.end; x++) sum[x] = (k ? sum[x] : 0.0f) + weight * across_row[x];
        }
        Stacked stacked = {&wp::index(observations, i, channel, y, 0), frames, wide, apart, starts, blank};
        stacked.move_up();
        u8* to = stacked.newest();
        const float whole = 12582912.0f;  // adding and subtracting it rounds to the nearest or even integer
        for (Pieces piece(changed, left, width, wide); piece.next();)
            for (i32 x = piece.begin; x < piece.end; x++) {
                const float mean = sum[x] * share;
                to[x] = (u8)(i32)(halved ? mean + 0.5f : (mean + whole) - whole);
            }
        stacked.spread();
    }
}
