package seccomp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/elastic/go-seccomp-bpf/arch"
	"golang.org/x/net/bpf"
)

// A filter's return values and offsets (linux/seccomp.h, struct seccomp_data).
const (
	retAllow = 0x7fff0000 // SECCOMP_RET_ALLOW
	retKill  = 0x80000000 // SECCOMP_RET_KILL_PROCESS
	retErrno = 0x00050000 // SECCOMP_RET_ERRNO

	errnoPerm, errnoNoSys, errnoNotSup = 1, 38, 95

	offNumber, offArch, offArgs = 0, 4, 16

	x32 = 0x40000000 // the bit of calls by the x32 table
)

// BPF returns the profile as a classic BPF program for the running architecture: an array
// of struct sock_filter, as `bwrap --seccomp FD` reads it.
func BPF() ([]byte, error) {
	info, err := arch.GetInfo("")
	if err != nil {
		return nil, fmt.Errorf("creating the seccomp filter: %w", err)
	}
	program, err := assemble(info)
	if err != nil {
		return nil, err
	}
	raw, err := bpf.Assemble(program)
	if err != nil {
		return nil, fmt.Errorf("creating the seccomp filter: %w", err)
	}
	var out bytes.Buffer
	for _, in := range raw {
		// Writing numbers to a buffer cannot fail.
		_ = binary.Write(&out, binary.NativeEndian, struct {
			Op     uint16
			Jt, Jf uint8
			K      uint32
		}{in.Op, in.Jt, in.Jf, in.K})
	}
	return out.Bytes(), nil
}

// assemble builds the program with the tables of go-seccomp-bpf, but without its assembler:
// in v1.6.0 a call whose arguments do not match continues at the next comparison with an
// argument where the call's number should be, so that socket(SYS_x, …) may pass as the call
// x. Here each block ends with a return.
func assemble(info *arch.Info) ([]bpf.Instruction, error) {
	p := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offArch, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(info.ID), SkipTrue: 1},
		bpf.RetConstant{Val: retKill},
		bpf.LoadAbsolute{Off: offNumber, Size: 4},
	}
	if info.ID == arch.X86_64.ID {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1}, bpf.RetConstant{Val: retErrno | errnoNoSys})
	}
	for _, r := range conditional {
		for _, nr := range numbers(info, r.names) {
			block := alternatives(r.any)
			if len(block) > 255 {
				return nil, fmt.Errorf("creating the seccomp filter: the rules of %s are too long for a jump", r.names[0])
			}
			p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: nr, SkipFalse: uint8(len(block))})
			p = append(p, block...)
		}
	}
	last := uint32(0)
	answer := func(names []string, ret uint32) {
		for _, span := range spans(numbers(info, names)) {
			p = append(p,
				bpf.JumpIf{Cond: bpf.JumpGreaterOrEqual, Val: span[0], SkipFalse: 2},
				bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: span[1], SkipTrue: 1},
				bpf.RetConstant{Val: ret})
			last = max(last, span[1])
		}
	}
	answer(allowed, retAllow)
	for _, r := range refusals {
		answer(r.names, retErrno|r.errno)
	}
	// Like runc: calls newer than the profile are absent, not forbidden.
	return append(p,
		bpf.JumpIf{Cond: bpf.JumpGreaterThan, Val: last, SkipFalse: 1},
		bpf.RetConstant{Val: retErrno | errnoNoSys},
		bpf.RetConstant{Val: retErrno | errnoPerm}), nil
}

// alternatives returns the block of a call that is allowed by its arguments.
func alternatives(rules [][]condition) []bpf.Instruction {
	var p []bpf.Instruction
	for _, all := range rules {
		p = append(p, alternative(all)...)
	}
	return append(p, bpf.RetConstant{Val: retErrno | errnoPerm})
}

// alternative returns instructions that allow the call if all conditions hold, and fall
// through otherwise.
func alternative(all []condition) []bpf.Instruction {
	p := []bpf.Instruction{bpf.RetConstant{Val: retAllow}}
	for _, c := range slices.Backward(all) {
		check := []bpf.Instruction{bpf.LoadAbsolute{Off: lowHalf(c.arg), Size: 4}}
		if c.mask != whole {
			check = append(check, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: c.mask})
		}
		check = append(check, bpf.JumpIf{Cond: bpf.JumpEqual, Val: c.value, SkipFalse: uint8(len(p))})
		p = append(check, p...)
	}
	return p
}

// lowHalf returns the offset of an argument's low 32 bits; both architectures of the
// profile are little-endian.
func lowHalf(arg int) uint32 { return uint32(offArgs + 8*arg) }

// numbers returns the calls' numbers, sorted; an architecture lacks some calls.
func numbers(info *arch.Info, names []string) []uint32 {
	var out []uint32
	for _, name := range names {
		if nr, ok := info.SyscallNames[name]; ok {
			out = append(out, uint32(nr))
		}
	}
	slices.Sort(out)
	return out
}

// spans joins sorted numbers into ranges, including the first and last number.
func spans(numbers []uint32) [][2]uint32 {
	var out [][2]uint32
	for _, n := range numbers {
		if k := len(out) - 1; k >= 0 && out[k][1]+1 == n {
			out[k][1] = n
		} else {
			out = append(out, [2]uint32{n, n})
		}
	}
	return out
}
