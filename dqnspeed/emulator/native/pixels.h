// The body of a native function that makes an observation of game `i`: the rows of one of its parts.
//
// Shades of two pictures, their maximum, and a resize by area as OpenCV does it, in its order of sums, so that every
// rounding is the same: of each row of the picture first the columns, then rows by their weights.

enum { WIDTH = 160, FIRST = 4, SECOND = 5, BEFORE = -1, MOST = 160 };

struct Row {  // of a maximum of two pictures, each of them shown in shades of a colour or the maximum before
    const u8 *a, *b;
    bool a_is_before, b_is_before;

    static CUDA_CALLABLE bool same(const u8* these, const u8* those) {
        const u64 *x = (const u64*)these, *y = (const u64*)those;
        u64 differ = 0;
        for (i32 k = 0; k < WIDTH / 8; k++) differ |= x[k] ^ y[k];
        return !differ;
    }

    CUDA_CALLABLE void shade(const u8* shades, u8* to) const {
        if (a == b && !a_is_before) {
            for (i32 x = 0; x < WIDTH; x++) to[x] = shades[a[x]];
            return;
        }
        for (i32 x = 0; x < WIDTH; x++) {
            u8 one = a_is_before ? a[x] : shades[a[x]], other = b_is_before ? b[x] : shades[b[x]];
            to[x] = one > other ? one : other;
        }
    }
};

const i32 height = screens.shape.dims[2], of_shades = shades.shape.dims[0], side = observations.shape.dims[2];
const i32 across = columns.shape.dims[0], down = rows.shape.dims[1];
const i32 first = wp::index(answers, i, FIRST), second = wp::index(answers, i, SECOND);
const i32 begin = side * part / parts, end = side * (part + 1) / parts;
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
    float resized[MOST], sum[MOST];
    i32 shaded = -1, last = -1;  // the row of the picture that is resized now, and the last one that is kept
    for (i32 y = begin; y < end; y++) {
        for (i32 k = 0; k < down; k++) {
            const i32 from = wp::index(rows, y, k);
            const float weight = wp::index(row_weights, y, k);
            if (from != shaded) {
                Row row = {a + WIDTH * from, b + WIDTH * from, first == BEFORE, second == BEFORE};
                u8* to = kept + WIDTH * from;
                row.shade(shade, to);
                if (last < 0 || !Row::same(to, kept + WIDTH * last)) {
                    const i32* column = &wp::index(columns, 0, 0);
                    const float* part_of = &wp::index(column_weights, 0, 0);
                    for (i32 x = 0; x < side; x++) {
                        float total = 0.0f;
                        for (i32 c = 0; c < across; c++) total = total + to[column[c * side + x]] * part_of[c * side + x];
                        resized[x] = total;
                    }
                }
                shaded = last = from;
            }
            if (k == 0) for (i32 x = 0; x < side; x++) sum[x] = weight * resized[x];
            else for (i32 x = 0; x < side; x++) sum[x] = sum[x] + weight * resized[x];
        }
        u8* to = &wp::index(observations, i, channel, y, 0);
        for (i32 x = 0; x < side; x++) to[x] = (u8)(i32)rintf(sum[x]);
    }
}
