package operator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"integrityledger/domain/audit"
)

// partBuffer is what a part keeps in memory before it goes to the disk.
const partBuffer = 32 << 10

// partsFile is audit.Parts in one temporary file, which has no name any more and so
// is gone with the process. Of a small history nothing is written.
type partsFile struct {
	f      *os.File // nil until something is written
	size   int64
	memory [audit.PartCount][]byte
	chunks [audit.PartCount][]chunk
}

type chunk struct{ from, length int64 }

// Append implements audit.Parts.
func (p *partsFile) Append(part int, more []byte) error {
	p.memory[part] = append(p.memory[part], more...)
	if len(p.memory[part]) < partBuffer {
		return nil
	}
	if p.f == nil {
		f, err := os.CreateTemp("", "integrity-audit-*")
		if err != nil {
			return fmt.Errorf("space for the audit: %w", err)
		}
		if p.f = f; os.Remove(f.Name()) != nil {
			return errors.New("space for the audit: the temporary file cannot be removed")
		}
	}
	n, err := p.f.WriteAt(p.memory[part], p.size)
	if err != nil {
		return fmt.Errorf("space for the audit (set TMPDIR to a directory that has as much as the events take): %w", err)
	}
	p.chunks[part] = append(p.chunks[part], chunk{p.size, int64(n)})
	p.size += int64(n)
	p.memory[part] = p.memory[part][:0]
	return nil
}

// Open implements audit.Parts.
func (p *partsFile) Open(part int) io.Reader {
	readers := make([]io.Reader, 0, len(p.chunks[part])+1)
	for _, c := range p.chunks[part] {
		readers = append(readers, io.NewSectionReader(p.f, c.from, c.length))
	}
	return io.MultiReader(append(readers, bytes.NewReader(p.memory[part]))...)
}

// Close gives the space back.
func (p *partsFile) Close() {
	if p.f != nil {
		p.f.Close()
	}
}
