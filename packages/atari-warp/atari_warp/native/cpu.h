    // --- 6507 ----------------------------------------------------------------------------------------------------
    // As in ALE, an instruction accesses everything but its own bytes in its last cycle, also where a 6502 accesses it
    // earlier: `t` is advanced first. Reads without a use are made by pulls and after a return only.

    CUDA_CALLABLE void set_nz(i32 value) { nv = zv = value; }

    CUDA_CALLABLE i32 flags() const {
        return (nv & 0x80) | overflow << 6 | 0x20 | decimal << 3 | interrupt << 2 | (zv == 0) << 1 | carry;
    }

    CUDA_CALLABLE void set_flags(i32 p) {
        nv = p & 0x80;
        zv = !(p & 2);
        overflow = p >> 6 & 1, decimal = p >> 3 & 1, interrupt = p >> 2 & 1, carry = p & 1;
    }

    CUDA_CALLABLE i32 fetch() {
        i32 byte = pc & 0x1000 ? (scheme == PLAIN ? cartridge(pc) : read(pc, 0)) : read(pc, 0);
        pc = (pc + 1) & 0xffff;
        return byte;
    }

    CUDA_CALLABLE void push(i32 value) {
        write(0x100 | s, value);
        s = (s - 1) & 0xff;
    }

    // Push in the cycle after a push, in which WSYNC has no effect.
    CUDA_CALLABLE void push_next(i32 value) {
        i32 end = t;
        push(value);
        t = end;
    }

    CUDA_CALLABLE i32 pull(i32 bus) {
        s = (s + 1) & 0xff;
        return read(0x100 | s, bus);
    }

    // Pull the first byte. ALE reads at the stack pointer and then pulls all bytes, at the end of `cycles`.
    CUDA_CALLABLE i32 pull_first(i32 opcode, i32 cycles) {
        t += cycles;
        return pull(read(0x100 | s, opcode));
    }

    // Read without a use, which does not affect the timer.
    CUDA_CALLABLE i32 idle_read(i32 address, i32 bus) {
        bool nothing = address & 0x1000 ? scheme == PLAIN : (address & 0x280) == 0x280;
        return nothing ? bus : read(address, bus);
    }

    enum { LOADS, STORES, CHANGES };

    // Address of the operand. `bus`: last byte on the data bus; `t`: end of the cycle before the operand's.
    CUDA_CALLABLE i32 zero_page(i32& bus) {
        t += 2;
        return bus = fetch();
    }

    CUDA_CALLABLE i32 zero_page_indexed(i32 index, i32& bus) {
        bus = fetch();
        t += 3;
        return (bus + index) & 0xff;
    }

    CUDA_CALLABLE i32 absolute(i32& bus) {
        i32 low = fetch();
        bus = fetch();
        t += 3;
        return low | bus << 8;
    }

    static CUDA_CALLABLE bool same_page(i32 one, i32 other) { return !((one ^ other) & 0xff00); }

    // A 6502 makes a read before the index is added; ALE does not.
    CUDA_CALLABLE i32 indexed(i32 base, i32 index, i32 use) {
        i32 address = (base + index) & 0xffff;
        t += use != LOADS || !same_page(base, address);
        return address;
    }

    CUDA_CALLABLE i32 absolute_indexed(i32 index, i32 use, i32& bus) {
        i32 base = absolute(bus);
        return indexed(base, index, use);
    }

    // Address stored in the zero page at `at`. ALE reads it when the instruction ends, after `cycles`.
    CUDA_CALLABLE i32 pointer(i32 at, i32 bus_before, i32 cycles, i32& bus) {
        i32 begin = t;
        t += cycles;
        i32 low = read(at, bus_before);
        bus = read((at + 1) & 0xff, low);
        t = begin;
        return low | bus << 8;
    }

    CUDA_CALLABLE i32 indirect_x(i32 use, i32& bus) {
        i32 at = fetch(), address = pointer((at + x) & 0xff, at, use == CHANGES ? 8 : 6, bus);
        t += 5;
        return address;
    }

    CUDA_CALLABLE i32 indirect_y(i32 use, i32& bus) {
        i32 at = fetch(), base = pointer(at, at, use == CHANGES ? 8 : use == STORES ? 6 : 5, bus);
        t += 4;
        return indexed(base, y, use);
    }

    // Address mode by the low bits of the opcode, as the processor decodes them.
    CUDA_CALLABLE APART i32 address_of(i32 opcode, i32 use, i32& bus) {
        i32 column = opcode & 0x1f;
        bool by_y = (opcode & 0xc2) == 0x82;  // STX, LDX and related opcodes
        switch (column) {
            case 0x01: case 0x03: return indirect_x(use, bus);
            case 0x04: case 0x05: case 0x06: case 0x07: return zero_page(bus);
            case 0x0c: case 0x0d: case 0x0e: case 0x0f: return absolute(bus);
            case 0x11: case 0x13: return indirect_y(use, bus);
            case 0x14: case 0x15: case 0x16: case 0x17: return zero_page_indexed(by_y ? y : x, bus);
            case 0x19: case 0x1b: return absolute_indexed(y, use, bus);
            default: return absolute_indexed(by_y ? y : x, use, bus);  // 1c..1f
        }
    }

    CUDA_CALLABLE i32 operand(i32 opcode) {
        if ((opcode & 0x1d) == 0x09 || (opcode & 0x9d) == 0x80) {  // immediate
            t += 2;
            return fetch();
        }
        i32 bus, address = address_of(opcode, LOADS, bus);
        t += 1;
        return read(address, bus);
    }

    CUDA_CALLABLE void store(i32 opcode, i32 value) {
        i32 bus, address = address_of(opcode, STORES, bus);
        t += 1;
        write(address, value);
    }

    CUDA_CALLABLE void add(i32 m) {
        if (decimal) {
            i32 sum = (a >> 4) * 10 + (a & 15) + (m >> 4) * 10 + (m & 15) + carry;
            carry = sum > 99;
            to_decimal(sum, m);
        } else {
            i32 sum = a + m + carry;
            overflow = (~(a ^ m) & (a ^ sum)) >> 7 & 1;
            carry = sum >> 8;
            set_nz(a = sum & 0xff);
        }
    }

    CUDA_CALLABLE void subtract(i32 m) {
        if (decimal) {
            i32 rest = (a >> 4) * 10 + (a & 15) - (m >> 4) * 10 - (m & 15) - !carry;
            carry = a - m - !carry >= 0;
            if (rest < 0) rest += 100;
            if (rest < 0) {  // with digits above 9: the number is taken as digits once more
                i32 number = (rest >> 4 & 15) * 10 + (rest & 15);
                overflow = ((a ^ number) & (number ^ m)) >> 7 & 1;
                set_nz(a = number);
            } else
                to_decimal(rest, m);
        } else
            add(m ^ 0xff);
    }

    CUDA_CALLABLE void to_decimal(i32 number, i32 m) {
        number = (number & 0xff) % 100;
        i32 result = number / 10 << 4 | number % 10;
        overflow = ((a ^ result) & (result ^ m)) >> 7 & 1;
        set_nz(a = result);
    }

    CUDA_CALLABLE void compare(i32 reg, i32 m) {
        carry = reg >= m;
        set_nz((reg - m) & 0xff);
    }

    CUDA_CALLABLE i32 shifted(i32 operation, i32 value) {  // ASL, ROL, LSR, ROR
        i32 carried = carry;
        if (operation < 2) {
            carry = value >> 7;
            value = (value << 1 & 0xff) | (operation == 1 ? carried : 0);
        } else {
            carry = value & 1;
            value = value >> 1 | (operation == 3 ? carried << 7 : 0);
        }
        set_nz(value);
        return value;
    }

    // Read, change and write; undocumented opcodes also use the accumulator.
    CUDA_CALLABLE APART void change(i32 opcode) {
        i32 bus, address = address_of(opcode, CHANGES, bus);
        t += 3;  // ALE reads in the last cycle and writes once; a 6502 also writes the old value in between
        i32 value = read(address, bus);
        i32 operation = opcode >> 5;
        if (operation < 4) value = shifted(operation, value);
        else set_nz(value = (value + (operation == 6 ? -1 : 1)) & 0xff);
        write(address, value);
        if ((opcode & 3) != 3) return;
        switch (operation) {
            case 0: set_nz(a |= value); break;        // SLO
            case 1: set_nz(a &= value); break;        // RLA
            case 2: set_nz(a ^= value); break;        // SRE
            case 3: add(value); break;                // RRA
            case 6: compare(a, value); break;         // DCP
            default: subtract(value); break;          // ISB
        }
    }

    CUDA_CALLABLE void branch(bool taken) {
        t += 2;
        i32 by = fetch();
        if (!taken) return;
        i32 to = (pc + (by ^ 0x80) - 0x80) & 0xffff;
        t += same_page(to, pc) ? 1 : 2;
        pc = to;
    }

    CUDA_CALLABLE APART void instruction() {
        i32 opcode = fetch(), bus, m, address;
        switch (opcode) {
            // loads
            case 0xa9: case 0xa5: case 0xb5: case 0xad: case 0xbd: case 0xb9: case 0xa1: case 0xb1:
                set_nz(a = operand(opcode)); break;
            case 0xa2: case 0xa6: case 0xb6: case 0xae: case 0xbe: set_nz(x = operand(opcode)); break;
            case 0xa0: case 0xa4: case 0xb4: case 0xac: case 0xbc: set_nz(y = operand(opcode)); break;
            case 0xa3: case 0xa7: case 0xaf: case 0xb3: case 0xb7: case 0xbf:  // LAX
                t += opcode == 0xa7;  // in ALE only
                set_nz(a = x = operand(opcode));
                break;
            // stores
            case 0x85: case 0x95: case 0x8d: case 0x9d: case 0x99: case 0x81: case 0x91: store(opcode, a); break;
            case 0x86: case 0x96: case 0x8e: store(opcode, x); break;
            case 0x84: case 0x94: case 0x8c: store(opcode, y); break;
            case 0x83: case 0x87: case 0x8f: case 0x97: store(opcode, a & x); break;  // SAX
            // arithmetic and logic
            case 0x09: case 0x05: case 0x15: case 0x0d: case 0x1d: case 0x19: case 0x01: case 0x11:
                set_nz(a |= operand(opcode)); break;
            case 0x29: case 0x25: case 0x35: case 0x2d: case 0x3d: case 0x39: case 0x21: case 0x31:
                set_nz(a &= operand(opcode)); break;
            case 0x49: case 0x45: case 0x55: case 0x4d: case 0x5d: case 0x59: case 0x41: case 0x51:
                set_nz(a ^= operand(opcode)); break;
            case 0x69: case 0x65: case 0x75: case 0x6d: case 0x7d: case 0x79: case 0x61: case 0x71:
                add(operand(opcode)); break;
            case 0xe9: case 0xe5: case 0xf5: case 0xed: case 0xfd: case 0xf9: case 0xe1: case 0xf1: case 0xeb:
                subtract(operand(opcode)); break;
            case 0xc9: case 0xc5: case 0xd5: case 0xcd: case 0xdd: case 0xd9: case 0xc1: case 0xd1:
                compare(a, operand(opcode)); break;
            case 0xe0: case 0xe4: case 0xec: compare(x, operand(opcode)); break;
            case 0xc0: case 0xc4: case 0xcc: compare(y, operand(opcode)); break;
            case 0x24: case 0x2c:  // BIT
                m = operand(opcode);
                nv = m, zv = a & m, overflow = m >> 6 & 1;
                break;
            // read, change, write
            case 0x0a: a = shifted(0, a); idle(); break;
            case 0x2a: a = shifted(1, a); idle(); break;
            case 0x4a: a = shifted(2, a); idle(); break;
            case 0x6a: a = shifted(3, a); idle(); break;
            case 0x06: case 0x16: case 0x0e: case 0x1e: case 0x26: case 0x36: case 0x2e: case 0x3e:
            case 0x46: case 0x56: case 0x4e: case 0x5e: case 0x66: case 0x76: case 0x6e: case 0x7e:
            case 0xc6: case 0xd6: case 0xce: case 0xde: case 0xe6: case 0xf6: case 0xee: case 0xfe:
            case 0x03: case 0x07: case 0x0f: case 0x13: case 0x17: case 0x1b: case 0x1f:
            case 0x23: case 0x27: case 0x2f: case 0x33: case 0x37: case 0x3b: case 0x3f:
            case 0x43: case 0x47: case 0x4f: case 0x53: case 0x57: case 0x5b: case 0x5f:
            case 0x63: case 0x67: case 0x6f: case 0x73: case 0x77: case 0x7b: case 0x7f:
            case 0xc3: case 0xc7: case 0xcf: case 0xd3: case 0xd7: case 0xdb: case 0xdf:
            case 0xe3: case 0xe7: case 0xef: case 0xf3: case 0xf7: case 0xfb: case 0xff: change(opcode); break;
            // registers
            case 0xaa: set_nz(x = a); idle(); break;
            case 0xa8: set_nz(y = a); idle(); break;
            case 0x8a: set_nz(a = x); idle(); break;
            case 0x98: set_nz(a = y); idle(); break;
            case 0xba: set_nz(x = s); idle(); break;
            case 0x9a: s = x; idle(); break;
            case 0xe8: set_nz(x = (x + 1) & 0xff); idle(); break;
            case 0xc8: set_nz(y = (y + 1) & 0xff); idle(); break;
            case 0xca: set_nz(x = (x - 1) & 0xff); idle(); break;
            case 0x88: set_nz(y = (y - 1) & 0xff); idle(); break;
            case 0x18: carry = 0; idle(); break;
            case 0x38: carry = 1; idle(); break;
            case 0x58: interrupt = 0; idle(); break;
            case 0x78: interrupt = 1; idle(); break;
            case 0xb8: overflow = 0; idle(); break;
            case 0xd8: decimal = 0; idle(); break;
            case 0xf8: decimal = 1; idle(); break;
            // branches
            case 0x10: branch(!(nv & 0x80)); break;
            case 0x30: branch(nv & 0x80); break;
            case 0x50: branch(!overflow); break;
            case 0x70: branch(overflow); break;
            case 0x90: branch(!carry); break;
            case 0xb0: branch(carry); break;
            case 0xd0: branch(zv != 0); break;
            case 0xf0: branch(zv == 0); break;
            // jumps and the stack
            case 0x4c: pc = absolute(bus); break;
            case 0x6c:
                m = absolute(bus);
                t += 2;
                address = read(m, bus);
                pc = address | read((m & 0xff00) | ((m + 1) & 0xff), address) << 8;
                break;
            case 0x20:  // JSR
                m = fetch();
                t += 6;
                push(pc >> 8);
                push_next(pc & 0xff);
                address = fetch();
                if (scheme == FE) choose(address & 0x20 ? 0 : 1);
                pc = m | address << 8;
                break;
            case 0x60:  // RTS
                m = pull_first(opcode, 6);
                address = pull(m);
                if (scheme == FE) choose(address & 0x20 ? 0 : 1);
                idle_read(m | address << 8, address);
                pc = ((m | address << 8) + 1) & 0xffff;
                break;
            case 0x40:  // RTI
                set_flags(m = pull_first(opcode, 6));
                m = pull(m);
                pc = m | pull(m) << 8;
                break;
            case 0x00:  // BRK
                fetch();
                t += 7;
                push(pc >> 8);
                push_next(pc & 0xff);
                push_next(flags() | 0x10);
                interrupt = 1;
                m = read(0xfffe, 0);
                pc = m | read(0xffff, 0) << 8;
                break;
            case 0x48: t += 3; push(a); break;
            case 0x08: t += 3; push(flags() | 0x10); break;
            case 0x68: set_nz(a = pull_first(opcode, 4)); break;
            case 0x28: set_flags(pull_first(opcode, 4)); break;
            // undocumented: with immediate operands
            case 0x0b: case 0x2b: set_nz(a &= operand(opcode)); carry = a >> 7; break;  // ANC
            case 0x4b: a &= operand(opcode); a = shifted(2, a); break;                   // ALR
            case 0x6b:                                                                   // ARR
                m = a & operand(opcode);
                arr(m);
                break;
            case 0x8b: set_nz(a = (a | 0xee) & x & operand(opcode)); break;  // ANE
            case 0xab: set_nz(a = x = (a | 0xee) & operand(opcode)); break;  // LXA
            case 0xcb:                                                       // SBX
                m = operand(opcode);
                x = (a & x) - m;
                carry = x >= 0;
                set_nz(x &= 0xff);
                break;
            case 0xbb: set_nz(a = x = s &= operand(opcode)); break;  // LAS
            case 0x9b: s = a & x; store_high(opcode, s); break;      // TAS
            case 0x93: case 0x9f: store_high(opcode, a & x); break;  // SHA
            case 0x9c: store_high(opcode, y); break;                 // SHY
            case 0x9e: store_high(opcode, x); break;                 // SHX
            // undocumented: no effect
            case 0x80: case 0x82: case 0x89: case 0xc2: case 0xe2: case 0x04: case 0x44: case 0x64: case 0x14: case 0x34:
            case 0x54: case 0x74: case 0xd4: case 0xf4: case 0x0c: case 0x1c: case 0x3c: case 0x5c: case 0x7c: case 0xdc:
            case 0xfc: operand(opcode); break;
            case 0xea: case 0x1a: case 0x3a: case 0x5a: case 0x7a: case 0xda: case 0xfa: idle(); break;
            default:  // opcodes that stop the processor for ever
                pc = (pc - 1) & 0xffff;
                t += 2;
                break;
        }
    }

    CUDA_CALLABLE void idle() { t += 2; }

    CUDA_CALLABLE void arr(i32 m) {
        a = m >> 1 | carry << 7;
        set_nz(a);
        if (decimal) {
            overflow = (m ^ a) >> 6 & 1;
            i32 result = a;
            if ((m & 15) + (m & 1) > 5) result = (result & 0xf0) | ((result + 6) & 15);
            carry = (m >> 4) + (m >> 4 & 1) > 5;
            if (carry) result = (result + 0x60) & 0xff;
            a = result;
        } else {
            carry = a >> 6 & 1;
            overflow = (a >> 6 ^ a >> 5) & 1;
        }
    }

    // Stores of a value AND the high byte of the address plus 1.
    CUDA_CALLABLE void store_high(i32 opcode, i32 value) {
        i32 bus, address;
        if (opcode == 0x93) address = indirect_y(STORES, bus);
        else address = absolute_indexed(opcode == 0x9c ? x : y, STORES, bus);
        i32 page = address >> 8;  // after the index was added
        t += 1;
        write(address, value & (page + 1));
    }
