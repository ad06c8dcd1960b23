package pdftext

import (
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero/experimental"
	"golang.org/x/sys/unix"
)

// memorySize is the memory of the sandbox, in bytes.
const memorySize = 256 << 20

// memory is the memory of the sandbox, which is used by one document at a time. It is address
// space that only takes what is written to it, and it grows in place: with memory of Go's heap, each
// growth would leave a copy for the garbage collector. It is never unmapped, so late access
// to it is no fault.
type memory struct {
	buf  []byte
	used int
}

var reserved = sync.OnceValues(func() (*memory, error) {
	b, err := unix.Mmap(-1, 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("reserving memory for the PDF reader: %w", err)
	}
	return &memory{buf: b}, nil
})

// Allocate implements experimental.MemoryAllocator.
func (m *memory) Allocate(_, _ uint64) experimental.LinearMemory { return m }

// Reallocate implements experimental.LinearMemory.
func (m *memory) Reallocate(size uint64) []byte {
	if size > uint64(len(m.buf)) {
		return nil
	}
	m.used = max(m.used, int(size))
	return m.buf[:size:size]
}

// Free implements experimental.LinearMemory: it clears the memory for the next document, and
// gives it back to the system.
func (m *memory) Free() {
	clear(m.buf[:m.used])
	m.used = 0
	_ = unix.Madvise(m.buf, unix.MADV_DONTNEED) // otherwise it stays resident
}
