package analyzer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"integrityledger/cmd/analyzer/detect"
	"integrityledger/domain/analysis"
)

// request is the child's standard input. The file is its descriptor 3.
type request struct {
	Size         int64  `json:"size"`
	DeclaredType string `json:"declaredType"`
	FileName     string `json:"fileName"`
	Memory       int64  `json:"memory"`
	Attachments  bool   `json:"attachments"` // read the attached files of a PDF instead
}

// Exit codes of the child.
const (
	exitNoRequest  = 2 // the Go runtime's fatal errors also use 2
	exitUnconfined = 3
)

// niceness lowers the child's priority below the service's.
const niceness = 10

// Limits on the output read from a child.
const (
	maxAnswer = 1 << 20
	maxErrors = 64 << 10
)

// run analyses a file in a child and reads its answer.
func (a *Analyzer) run(ctx context.Context, file *os.File, r request) (analysis.Report, error) {
	out, reason, err := a.child(ctx, file, r, maxAnswer)
	if err != nil {
		return analysis.Report{}, err
	}
	if reason != "" {
		return analysis.Undecided(reason), nil
	}
	report, ok := read(out)
	if !ok {
		return analysis.Undecided(analysis.ReasonAnswer), nil
	}
	return report, nil
}

// child starts a child and waits for its end. It returns the child's answer, of which at most most bytes are kept, or
// the reason for its failure.
func (a *Analyzer) child(
	ctx context.Context, file *os.File, r request, most int,
) (out *bounded, reason analysis.Reason, err error) {
	own, err := os.Open("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
	if err != nil {
		return nil, "", fmt.Errorf("open the file for reading: %w", err)
	}
	defer own.Close()
	text, err := json.Marshal(r)
	if err != nil {
		return nil, "", err
	}
	wall, cancel := context.WithTimeout(ctx, a.cfg.Wall)
	defer cancel()

	out, errs := &bounded{most: most}, &bounded{most: maxErrors}
	cmd := exec.CommandContext(wall, a.cfg.Program, Command) //nolint:gosec // the program is this one or the operator's
	cmd.Args[0] = "integrity"
	cmd.Env = []string{"GOMAXPROCS=1", "GOTRACEBACK=none", "TZ=UTC"}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, errs
	cmd.ExtraFiles = []*os.File{own}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second // for pipes that another process still holds
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, "", err
	}
	defer stdin.Close()

	// The kernel sends the parent-death signal when the thread that forked ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	if err := a.limit(cmd.Process.Pid); err != nil && !errors.Is(err, unix.ESRCH) {
		cancel()
		_ = cmd.Wait() // it was killed
		return nil, analysis.ReasonIsolation, nil
	}
	// A child that does not read its request will not answer either.
	_, _ = stdin.Write(text)
	_ = stdin.Close()
	err = cmd.Wait()
	if wall.Err() != nil {
		return nil, analysis.ReasonTime, nil // if the caller went away, it knows the reason
	}
	if err != nil {
		return nil, a.reason(cmd.ProcessState, string(errs.kept)), nil
	}
	return out, "", nil
}

// reserved is the address space that the Go runtime reserves and never touches.
const reserved = 8 << 30

// limit sets the child's resource limits and priority.
func (a *Analyzer) limit(pid int) error {
	cpu, memory := uint64((a.cfg.CPU+time.Second-1)/time.Second), uint64(a.cfg.Memory)
	limits := map[int]unix.Rlimit{
		unix.RLIMIT_CPU: {Cur: cpu, Max: cpu + 1}, unix.RLIMIT_FSIZE: {}, unix.RLIMIT_CORE: {}, unix.RLIMIT_MEMLOCK: {},
		unix.RLIMIT_NOFILE: {Cur: 32, Max: 32}, unix.RLIMIT_STACK: {Cur: 8 << 20, Max: 8 << 20},
	}
	if !raceDetector || a.cfg.Program != thisProgram {
		limits[unix.RLIMIT_AS] = unix.Rlimit{Cur: 2*memory + reserved, Max: 2*memory + reserved}
		limits[unix.RLIMIT_DATA] = unix.Rlimit{Cur: memory, Max: memory}
	}
	for resource, limit := range limits {
		if err := unix.Prlimit(pid, resource, &limit, nil); err != nil {
			return err
		}
	}
	// Registrations have priority over analyses.
	return unix.Setpriority(unix.PRIO_PGRP, pid, niceness)
}

// reason returns why a child ended.
func (a *Analyzer) reason(state *os.ProcessState, errs string) analysis.Reason {
	status, _ := state.Sys().(syscall.WaitStatus)
	switch {
	case state.ExitCode() == exitUnconfined:
		return analysis.ReasonIsolation
	case status.Signaled() && status.Signal() == syscall.SIGXCPU,
		// The Go runtime ignores the first signal; at the hard limit the kernel kills the process.
		status.Signaled() && status.Signal() == syscall.SIGKILL && state.UserTime()+state.SystemTime() >= a.cfg.CPU*3/4:
		return analysis.ReasonCPU
	case strings.Contains(errs, "out of memory") || strings.Contains(errs, "cannot allocate memory") ||
		strings.Contains(errs, "pthread_create failed"),
		// Go's garbage collector uses its span queue without checking that allocating it succeeded.
		strings.Contains(errs, "SIGSEGV") && strings.Contains(errs, "runtime.(*spanQueue)"):
		return analysis.ReasonMemory
	}
	return analysis.ReasonCrash
}

// read accepts an answer only if it is well formed: every detector once, in order, with known words. A compromised
// parser could at most lie about its own file.
func read(out *bounded) (said analysis.Report, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(out.kept))
	decoder.DisallowUnknownFields()
	if out.cut || decoder.Decode(&said) != nil {
		return said, false
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return said, false
	}
	known := analysis.Detectors()
	if len(said.Results) != len(known) || len(said.Elapsed) != len(known) {
		return said, false
	}
	for i, r := range said.Results {
		if r.ID != known[i].ID || r.Version != known[i].Version || !slices.Equal(r.Limitations, known[i].Limitations) ||
			!slices.Contains(analysis.Outcomes(), r.Outcome) || !slices.Contains(analysis.Severities(), r.Severity) ||
			!plausible(r) || said.Elapsed[i] < 0 {
			return said, false
		}
	}
	return said, true
}

// plausible limits the length of a result's texts to the length of ours.
func plausible(r analysis.Result) bool {
	const text, structures = 300, 200
	if len(r.Summary) > text || len(r.Evidence) > structures || r.Evidence == nil {
		return false
	}
	for _, e := range r.Evidence {
		if len(e.Structure) > text || e.Count < 0 || e.Positions == nil || len(e.Positions) > analysis.MaxPositions {
			return false
		}
	}
	return true
}

// bounded keeps the first bytes and then returns errors, which ends a writer that never stops.
type bounded struct {
	kept []byte // not a bytes.Buffer: io.Copy would fill it with ReadFrom, bypassing Write
	most int
	cut  bool
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.most-len(b.kept))
	b.kept = append(b.kept, p[:n]...)
	if n < len(p) {
		b.cut = true
		return n, io.ErrShortWrite
	}
	return n, nil
}

// Child runs the hidden subcommand: it reads the request from standard input, confines this process, analyses the file
// open as descriptor 3 and writes the answer to standard output. It returns the exit code. It trusts its parent, not
// the file.
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
		// Near this limit the collector works harder; at the kernel's limit the process ends.
		debug.SetMemoryLimit(r.Memory * 3 / 4)
	}
	file := os.NewFile(3, "file")
	if file == nil {
		return exitNoRequest
	}
	if err := confine(); err != nil {
		return exitUnconfined
	}
	if r.Attachments {
		return readAttachments(file, r.Size)
	}
	var a analysis.Report
	last := time.Now()
	detect.Analyze(detect.Input{Content: file, Size: r.Size, DeclaredType: r.DeclaredType, FileName: r.FileName},
		func(result analysis.Result) {
			now := time.Now()
			a.Results, a.Elapsed = append(a.Results, result), append(a.Elapsed, now.Sub(last))
			last = now
		})
	if err := json.NewEncoder(os.Stdout).Encode(a); err != nil {
		return 1
	}
	return 0
}
