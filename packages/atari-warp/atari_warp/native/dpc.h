// Display Processor Chip of Pitfall II's cartridge (US patent 4,644,495): eight fetchers that read 2 KB of display data
// backwards, flags of their positions, and random numbers. Sound is not emulated: the wave of its three voices reads as
// 0.

struct Dpc {
    enum { FETCHERS = 8, DATA = 2048, VOICES = 3, REGISTERS = 0x80, HOT = 0xfc0 };

    u8 top[FETCHERS], bottom[FETCHERS], flag[FETCHERS], music[FETCHERS];
    i32 counter[FETCHERS];
    i32 random;

    CUDA_CALLABLE void switch_on() {
        for (i32 k = 0; k < FETCHERS; k++) top[k] = bottom[k] = flag[k] = music[k] = 0, counter[k] = 0;
        random = 1;
    }

    // Whether a read shifts the random number in ALE; all writes do.
    static CUDA_CALLABLE bool notices(i32 address) { return address < REGISTERS || address >= HOT; }

    CUDA_CALLABLE void shift() {
        random = (random << 1 | (~(random >> 7 ^ random >> 5 ^ random >> 4 ^ random >> 3) & 1)) & 0xff;
    }

    // Read the register at `address`, 0 to 63.
    CUDA_CALLABLE i32 read(i32 address, const u8* display) {
        i32 k = address & 7, low = counter[k] & 0xff, value = 0;
        if (low == top[k]) flag[k] = 0xff;
        else if (low == bottom[k]) flag[k] = 0;
        i32 data = display[DATA - 1 - counter[k]], shown = data & flag[k];
        switch (address >> 3) {
            case 0: value = k < 4 ? random : 0; break;
            case 1: value = data; break;
            case 2: value = shown; break;
            case 7: value = flag[k];  // the other documented registers, which no game uses, read as 0 in ALE
        }
        if (!music[k]) counter[k] = (counter[k] - 1) & (DATA - 1);
        return value;
    }

    // Write the register at `address`, 64 to 127.
    CUDA_CALLABLE void write(i32 address, i32 value) {
        i32 k = address & 7, high = counter[k] & 0x700;
        switch (address >> 3 & 7) {
            case 0: top[k] = (u8)value, flag[k] = 0; break;
            case 1: bottom[k] = (u8)value; break;
            case 2: counter[k] = high | (music[k] ? top[k] : value); break;
            case 3:
                counter[k] = (value & 7) << 8 | (counter[k] & 0xff);
                if (k >= FETCHERS - VOICES) music[k] = value >> 4 & 1;
                break;
            case 6: random = 1; break;
        }
    }
};
