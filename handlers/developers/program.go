package developers

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"runtime"
	"sync"
)

// Program is the executable of this process, which has the command line, the outbox and the offline verifier.
type Program struct {
	Name   string // with the operating system and the architecture that it is for
	Size   int64  // bytes
	SHA256 string // lower-case hexadecimal
	file   *os.File
}

// Running opens the executable once. It stays open, so that its bytes are the same after an upgrade has replaced the
// file. On Linux they are those that run, even if the file was replaced before.
var Running = sync.OnceValues(func() (p Program, err error) {
	p.Name = "integrity-" + runtime.GOOS + "-" + runtime.GOARCH
	path := "/proc/self/exe"
	if runtime.GOOS != "linux" {
		path, err = os.Executable()
	}
	if err == nil {
		p.file, err = os.Open(path)
	}
	if err != nil {
		return p, fmt.Errorf("developers: the program: %w", err)
	}
	hash := sha256.New()
	if p.Size, err = io.Copy(hash, p.file); err != nil {
		return p, errors.Join(fmt.Errorf("developers: the program: %w", err), p.file.Close())
	}
	p.SHA256 = hex.EncodeToString(hash.Sum(nil))
	return p, nil
})

// pieceSize is the number of bytes of a program that are in memory for each reader.
const pieceSize = 64 << 10

// Pieces reads the program from its beginning. Any number of callers may read at once.
func (p Program) Pieces() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		piece := make([]byte, pieceSize)
		for from := int64(0); from < p.Size; from += pieceSize {
			n, err := p.file.ReadAt(piece[:min(pieceSize, p.Size-from)], from)
			if !yield(piece[:n], err) || err != nil {
				return
			}
		}
	}
}
