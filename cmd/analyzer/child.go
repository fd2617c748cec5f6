package analyzer

import (
	"encoding/json"
	"io"
	"os"
	"runtime/debug"
	"time"

	"integrityledger/domain/analysis"
)

// Child is what the hidden subcommand does: it reads the request from standard input, confines this process, analyses the
// file that is open as descriptor 3 and writes the answer to standard output. It returns the exit code. It trusts its
// parent, not the file.
func Child() int {
	text, err := io.ReadAll(io.LimitReader(os.Stdin, maxErrors))
	if err != nil {
		return exitNoRequest
	}
	var r request
	if json.Unmarshal(text, &r) != nil {
		return exitNoRequest
	}
	if r.Memory > 0 {
		// The collector works harder from here on; the kernel's limit ends the process.
		debug.SetMemoryLimit(r.Memory * 3 / 4)
	}
	file := os.NewFile(3, "file")
	if file == nil {
		return exitNoRequest
	}
	if err := confine(); err != nil {
		return exitUnconfined
	}
	var a analysis.Report
	last := time.Now()
	analysis.Analyze(analysis.Input{Content: file, Size: r.Size, DeclaredType: r.DeclaredType, FileName: r.FileName}, func(result analysis.Result) {
		now := time.Now()
		a.Results, a.Elapsed = append(a.Results, result), append(a.Elapsed, now.Sub(last))
		last = now
	})
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		return 1
	}
	return 0
}
