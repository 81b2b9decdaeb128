// Body of a native function that converts row `y` of the newest picture of console `i` to red, green and blue or to gray
// levels. Most of a picture equals the previous one, so words of eight pixels are converted only where `converted`, the
// last converted picture, differs.

enum { WIDTH = 160, WORDS = WIDTH / 8, TURN = 256 };
const i32 turn = *(const i32*)&wp::index(state, i, TURN);
const u64* row = (const u64*)&wp::index(screens, i, turn, y, 0);
u64* last = (u64*)&wp::index(converted, i, y, 0);
u64 differs = 0;
for (i32 k = 0; k < WORDS; k++) differs |= row[k] ^ last[k];
if (!differs) return;
const u32* color = &wp::index(colors, 0);
const i32 channels = pictures.shape.dims[3];
for (i32 k = 0; k < WORDS; k++) {
    const u64 word = row[k];
    if (word == last[k]) continue;
    last[k] = word;
    u64 c[8];
    for (i32 j = 0; j < 8; j++) c[j] = color[word >> 8 * j & 255];
    u64* to = (u64*)&wp::index(pictures, i, y, 8 * k, 0);
    if (channels == 1) {
        *to = c[0] | c[1] << 8 | c[2] << 16 | c[3] << 24 | c[4] << 32 | c[5] << 40 | c[6] << 48 | c[7] << 56;
        continue;
    }
    to[0] = c[0] | c[1] << 24 | c[2] << 48;
    to[1] = c[2] >> 16 | c[3] << 8 | c[4] << 32 | c[5] << 56;
    to[2] = c[5] >> 8 | c[6] << 16 | c[7] << 40;
}
