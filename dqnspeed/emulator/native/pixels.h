// The body of a native function that makes an observation of game `i`: the rows of one of its parts.
//
// Shades of two pictures, their maximum, and a resize by area as OpenCV does it, in its order of sums, so that every
// rounding is the same: of each row of the picture first the columns, then rows by their weights.

enum { WIDTH = 160, FIRST = 4, SECOND = 5, BEFORE = -1, MOST = 160 };

// A row of the two pictures, each of them shown in shades of a colour or the maximum before.
struct Row {
    const u8 *a, *b;
    bool a_is_before, b_is_before;

    static CUDA_CALLABLE bool same(const u8* these, const u8* those) {
        const u64 *x = (const u64*)these, *y = (const u64*)those;
        u64 differ = 0;
        for (i32 k = 0; k < WIDTH / 8; k++) differ |= x[k] ^ y[k];
        return !differ;
    }

    CUDA_CALLABLE bool looks_like(const Row& other) const {
        return !a_is_before && !b_is_before && same(a, other.a) && (a == b || same(b, other.b));
    }

    CUDA_CALLABLE void shade(const u8* shades, u8* to) const {
        if (!a_is_before && !b_is_before && (a == b || same(a, b)))
            for (i32 x = 0; x < WIDTH; x++) to[x] = shades[a[x]];
        else
            for (i32 x = 0; x < WIDTH; x++) {
                u8 one = a_is_before ? a[x] : shades[a[x]], other = b_is_before ? b[x] : shades[b[x]];
                to[x] = one > other ? one : other;
            }
    }
};

const i32 height = screens.shape.dims[2], of_shades = shades.shape.dims[0], side = observations.shape.dims[2];
const i32 across = columns.shape.dims[0], down = rows.shape.dims[1];
const i32 first = wp::index(answers, i, FIRST), second = wp::index(answers, i, SECOND);
for (i32 channel = 0; channel < of_shades; channel++) {
    const u8* shade = &wp::index(shades, channel, 0);
    u8* kept = &wp::index(pooled, i, channel, 0, 0);
    const u8* a = first == BEFORE ? kept : &wp::index(screens, i, first, 0, 0);
    const u8* b = second == BEFORE ? kept : &wp::index(screens, i, second, 0, 0);
    if (!resized_to) {  // what is kept is the observation
        for (i32 y = height * part / parts; y < height * (part + 1) / parts; y++) {
            Row row = {a + WIDTH * y, b + WIDTH * y, first == BEFORE, second == BEFORE};
            row.shade(shade, kept + WIDTH * y);
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
                if (last >= 0 && row.looks_like(above)) {
                    for (i32 x = 0; x < WIDTH; x++) to[x] = kept[WIDTH * last + x];
                } else {
                    row.shade(shade, to);
                    for (i32 x = 0; x < side; x++) across_row[x] = 0.0f;
                    for (i32 c = 0; c < across; c++) {
                        const i32* column = &wp::index(columns, c, 0);
                        const float* part_of = &wp::index(column_weights, c, 0);
                        for (i32 x = 0; x < side; x++) across_row[x] = across_row[x] + (float)to[column[x]] * part_of[x];
                    }
                }
                last = now;
            }
            for (i32 x = 0; x < side; x++) sum[x] = (k ? sum[x] : 0.0f) + weight * across_row[x];
        }
        u8* to = &wp::index(observations, i, channel, y, 0);
        const float whole = 12582912.0f;  // added and taken away rounds to the nearest whole number, or the even one
        for (i32 x = 0; x < side; x++) to[x] = (u8)(i32)((sum[x] + whole) - whole);
    }
}
