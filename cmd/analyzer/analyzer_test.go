package analyzer

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"integrityledger/cmd/analyzer/detect"
	"integrityledger/domain"
	"integrityledger/domain/analysis"
)

// patient is how long a test waits for something that must happen.
const patient = 4 * time.Minute

// The test binary starts itself again as a child, as a prober of the confinement, and as a parent that is killed.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case Command:
			os.Exit(Child())
		case probeCommand:
			os.Exit(probe())
		case hostileCommand:
			os.Exit(hostile())
		case parentCommand:
			os.Exit(parent())
		}
	}
	os.Exit(m.Run())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, content []byte) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spooled")
	check(t, os.WriteFile(path, content, 0o600))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	check(t, err)
	t.Cleanup(func() { f.Close() })
	check(t, os.Remove(path))
	return f
}

func start(t testing.TB, cfg Config) *Analyzer {
	t.Helper()
	a, err := New(cfg)
	check(t, err)
	t.Cleanup(a.Close)
	return a
}

// script creates a program that misbehaves as a child.
func script(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "program")
	check(t, os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700))
	return path
}

// child builds the real child, without the race detector.
var child = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "analyzer")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "child")
	if out, err := exec.Command(
		"go", "build", "-buildvcs=false", "-o", program, "./testdata/child",
	).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w: %s", err, out)
	}
	return program, nil
})

func TestAnalyze(t *testing.T) {
	var zipped bytes.Buffer
	w := zip.NewWriter(&zipped)
	inner, err := w.Create("../zeros")
	check(t, err)
	_, err = inner.Write(make([]byte, 24<<20))
	check(t, err)
	check(t, w.Close())
	a := start(t, Config{Wall: patient, CPU: patient})
	for name, content := range map[string][]byte{
		"text": []byte("pay\u200bment"), "pdf": pdf(3), "bomb": zipped.Bytes(), "empty": {},
	} {
		f := open(t, content)
		_, err := f.Seek(2, io.SeekStart)
		check(t, err)
		got, err := a.Analyze(t.Context(), domain.OrganizationID{}, f, int64(len(content)), "text/plain", "name.txt")
		check(t, err)
		var want []analysis.Result
		in := detect.Input{
			Content: bytes.NewReader(content), Size: int64(len(content)), DeclaredType: "text/plain", FileName: "name.txt",
		}
		detect.Analyze(in, func(r analysis.Result) { want = append(want, r) })
		if !equal(t, got.Results, want) || got.Failure != "" || len(got.Elapsed) != len(want) {
			t.Errorf("%s: the child says %+v, this process %+v", name, got, want)
		}
		if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != 2 {
			t.Errorf("%s: the file is at %d now (%v)", name, at, err)
		}
	}
}

func equal(t *testing.T, a, b any) bool {
	t.Helper()
	x, err := json.Marshal(a)
	check(t, err)
	y, err := json.Marshal(b)
	check(t, err)
	return bytes.Equal(x, y)
}

// pdf returns a PDF with many objects, which need much more memory than their bytes in the file.
func pdf(objects int) []byte {
	var b bytes.Buffer
	b.WriteString("%PDF-1.7\n")
	offsets := make([]int, objects)
	for i := range objects {
		offsets[i] = b.Len()
		if i == 0 {
			b.WriteString("1 0 obj\n<< /Type /Catalog >>\nendobj\n")
			continue
		}
		fmt.Fprintf(&b, "%d 0 obj\n<< /A << /B [1 2 3 4 5 6 7 8] >> /C (x) >>\nendobj\n", i+1)
	}
	at := b.Len()
	fmt.Fprintf(&b, "xref\n0 %d\n0000000000 65535 f \n", objects+1)
	for _, offset := range offsets {
		fmt.Fprintf(&b, "%010d 00000 n \n", offset)
	}
	fmt.Fprintf(&b, "trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n", objects+1, at)
	return b.Bytes()
}

// TestMemory: the kernel's limit ends a child whose file needs more, and no other.
func TestMemory(t *testing.T) {
	program, err := child()
	check(t, err)
	const limit = 208 << 20
	// 110,000 objects are 228 MiB, which is more than the limit however often the collector runs.
	for objects, want := range map[int]analysis.Reason{110_000: analysis.ReasonMemory, 3: ""} {
		content := pdf(objects)
		a := start(t, Config{Program: program, Memory: limit, CPU: patient, Wall: patient})
		report, err := a.Analyze(
			t.Context(), domain.OrganizationID{}, open(t, content), int64(len(content)), "application/pdf", "",
		)
		check(t, err)
		if report.Failure != want {
			t.Errorf("%d objects with %d MiB: %q, not %q", objects, limit>>20, report.Failure, want)
		}
		undecided(t, report)
	}
}

// undecided requires that every detector in the report is inconclusive.
func undecided(t *testing.T, report analysis.Report) {
	t.Helper()
	if len(report.Results) != len(analysis.Detectors()) || len(report.Elapsed) != len(report.Results) {
		t.Errorf(
			"%d results and %d times of %d detectors", len(report.Results), len(report.Elapsed), len(analysis.Detectors()),
		)
	}
	for _, r := range report.Results {
		if report.Failure != "" && (r.Outcome != analysis.Inconclusive || r.Summary != string(report.Failure)) {
			t.Errorf("%s: %s, %s; not inconclusive because of %q", r.ID, r.Outcome, r.Summary, report.Failure)
		}
	}
}

// TestBadChildren: whatever a child does, the report is inconclusive and gives the reason.
func TestBadChildren(t *testing.T) {
	forged, err := json.Marshal(analysis.Undecided(analysis.ReasonCrash))
	check(t, err)
	swapped := strings.Replace(string(forged), `"inconclusive"`, `"innocent"`, 1)
	for name, c := range map[string]struct {
		text string
		want analysis.Reason
	}{
		"silent":            {"exit 0", analysis.ReasonAnswer},
		"garbage":           {"echo '{\"results\": 7'", analysis.ReasonAnswer},
		"empty answer":      {"echo '{}'", analysis.ReasonAnswer},
		"other outcome":     {"cat <<'E'\n" + swapped + "\nE", analysis.ReasonAnswer},
		"two answers":       {"cat <<'E'\n" + string(forged) + string(forged) + "\nE", analysis.ReasonAnswer},
		"endless":           {"exec cat /dev/zero", analysis.ReasonCrash},
		"endless complaint": {"exec cat /dev/zero >&2", analysis.ReasonCrash},
		"failure":           {"exit 1", analysis.ReasonCrash},
		"crash":             {"kill -SEGV $$", analysis.ReasonCrash},
		"killed by another": {"kill -KILL $$", analysis.ReasonCrash},
		"unconfined":        {"exit 3", analysis.ReasonIsolation},
		"out of memory":     {"echo 'fatal error: runtime: out of memory' >&2; exit 2", analysis.ReasonMemory},
		"no memory for the collector": {
			"printf 'SIGSEGV: segmentation violation\\nPC=0x1 m=0 sigcode=1 " +
				"addr=0x0\\n\\nruntime.(*spanQueue).tryDrain(0x1)\\n' >&2; exit 2", analysis.ReasonMemory,
		},
		"fault": {"printf 'SIGSEGV: segmentation violation\\n\\nmain.main()\\n' >&2; exit 2", analysis.ReasonCrash},
		"busy":  {"while :; do :; done", analysis.ReasonCPU},
	} {
		t.Run(name, func(t *testing.T) {
			a := start(t, Config{Program: script(t, c.text), CPU: time.Second, Wall: patient})
			report, err := a.Analyze(t.Context(), domain.OrganizationID{}, open(t, nil), 0, "", "")
			check(t, err)
			if report.Failure != c.want {
				t.Errorf("%q, not %q", report.Failure, c.want)
			}
			undecided(t, report)
		})
	}
}

// TestInheritance: a child gets neither its parent's environment nor its descriptors, except the file, which it cannot
// write to. It cannot make any file grow.
func TestInheritance(t *testing.T) {
	t.Setenv("INTEGRITY_SIGNING_KEY", "secret")
	leaked, err := os.OpenFile(filepath.Join(t.TempDir(), "other"), os.O_RDWR|os.O_CREATE, 0o600)
	check(t, err)
	defer leaked.Close()
	grown := filepath.Join(t.TempDir(), "grown")
	h := hold(t)
	a := start(t, Config{Wall: patient, Program: script(t, `read request
exec 7>`+h.path+`
{ env; for d in /proc/self/fd/*; do echo "$(basename $d) $(readlink $d)"; done
grep flags /proc/self/fdinfo/3 | tail -c 2
(echo x > `+grown+`) 2>/dev/null
} > /dev/fd/7 7>&-
echo done >&7
exec 7>&-
`)})
	_, err = a.Analyze(t.Context(), domain.OrganizationID{}, open(t, []byte("file")), 4, "", "")
	check(t, err)
	check(t, h.r.SetReadDeadline(time.Now().Add(patient)))
	text, err := io.ReadAll(h.r)
	check(t, err)
	said := string(text)
	if !strings.Contains(said, "TZ=UTC") || !strings.Contains(said, "spooled") || !strings.HasSuffix(said, "done\n") {
		t.Fatalf("the child said %q", said)
	}
	if !regexp.MustCompile(`(?m)^0$`).MatchString(said) { // O_RDONLY
		t.Errorf("the file is not open for reading only: %s", said)
	}
	for _, wrong := range []string{"secret", "other", "PATH=/root"} {
		if strings.Contains(said, wrong) {
			t.Errorf("the child has %q: %s", wrong, said)
		}
	}
	if info, err := os.Stat(grown); err == nil && info.Size() > 0 {
		t.Error("the child's own file grew")
	}
}

// TestNoProgram: if the machine cannot start the child, that is an error, not a result.
func TestNoProgram(t *testing.T) {
	a := start(t, Config{Program: "/nowhere/at/all"})
	if _, err := a.Analyze(
		t.Context(), domain.OrganizationID{}, open(t, nil), 0, "", "",
	); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
}

// held is a named pipe. Its end of file shows that every process that held the pipe has ended.
type held struct {
	path string
	r    *os.File
}

func hold(t testing.TB) held {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pipe")
	check(t, syscall.Mkfifo(path, 0o600))
	// Open both ends here so that nothing blocks; close our writing end once another process has one.
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	check(t, err)
	t.Cleanup(func() { r.Close() })
	return held{path, r}
}

// program starts a grandchild and waits forever. It prints "here" once both processes hold the pipe.
func (h held) program(t testing.TB) string {
	return script(t, "exec 7>"+h.path+"\nsleep 1000 &\necho here >&7\nsleep 1000\n")
}

func (h held) started(t testing.TB) {
	t.Helper()
	check(t, h.r.SetReadDeadline(time.Now().Add(patient)))
	line := make([]byte, 5)
	for {
		_, err := io.ReadFull(h.r, line)
		if err == nil {
			return
		}
		if !errors.Is(err, io.EOF) { // no process has opened it for writing yet
			t.Fatal(err)
		}
	}
}

// line returns the first line that a process holding the pipe writes.
func (h held) line(t testing.TB) string {
	t.Helper()
	check(t, h.r.SetReadDeadline(time.Now().Add(patient)))
	var said []byte
	for one := make([]byte, 1); ; {
		switch _, err := h.r.Read(one); {
		case errors.Is(err, io.EOF) && said == nil: // no process has opened it for writing yet
		case err != nil:
			t.Fatalf("%q: %v", said, err)
		case one[0] == '\n':
			return string(said)
		default:
			said = append(said, one[0])
		}
	}
}

func (h held) gone(t testing.TB) {
	t.Helper()
	check(t, h.r.SetReadDeadline(time.Now().Add(patient)))
	if _, err := io.Copy(io.Discard, h.r); err != nil {
		t.Fatalf("a process of the child's still lives: %v", err)
	}
}

func TestWall(t *testing.T) {
	h := hold(t)
	a := start(t, Config{Program: h.program(t), Wall: 300 * time.Millisecond})
	report, err := a.Analyze(t.Context(), domain.OrganizationID{}, open(t, nil), 0, "", "")
	check(t, err)
	if report.Failure != analysis.ReasonTime {
		t.Errorf("%q, not %q", report.Failure, analysis.ReasonTime)
	}
	undecided(t, report)
	h.gone(t)
}

func TestCancel(t *testing.T) {
	h := hold(t)
	a := start(t, Config{Program: h.program(t), Wall: patient})
	ctx, cancel := context.WithCancel(t.Context())
	f := open(t, nil)
	done := make(chan error)
	go func() {
		_, err := a.Analyze(ctx, domain.OrganizationID{}, f, 0, "", "")
		done <- err
	}()
	h.started(t)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	h.gone(t)
}

func unavailable(err error) bool {
	var refused *domain.Error
	return errors.As(err, &refused) && refused.Code == domain.TemporarilyUnavailable && refused.RetryAfter > 0
}

// TestQueue: one analysis runs, one waits, and the third is refused; a freed place is used again.
func TestQueue(t *testing.T) {
	h := hold(t)
	a := start(t, Config{Program: h.program(t), Workers: 1, Queue: 2, Wall: patient})
	f := open(t, nil)
	analyze := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			_, err := a.Analyze(ctx, domain.OrganizationID{}, f, 0, "", "")
			done <- err
		}()
		return done
	}
	first, stopFirst := context.WithCancel(t.Context())
	running := analyze(first)
	h.started(t)
	second, stopSecond := context.WithCancel(t.Context())
	waiting := analyze(second)
	until(t, func() bool { return a.queue.entered() == 2 })
	if _, err := a.Analyze(t.Context(), domain.OrganizationID{}, f, 0, "", ""); !unavailable(err) {
		t.Errorf("a third analysis: %v", err)
	}
	stopSecond()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that waited: %v", err)
	}
	next := analyze(t.Context())
	until(t, func() bool { return a.queue.entered() == 2 })
	stopFirst()
	if err := <-running; !errors.Is(err, context.Canceled) {
		t.Errorf("the one that ran: %v", err)
	}
	h.started(t) // the next one runs
	a.Close()
	if err := <-next; !unavailable(err) {
		t.Errorf("the one that ran at Close: %v", err)
	}
	h.gone(t)
	if _, err := a.Analyze(t.Context(), domain.OrganizationID{}, f, 0, "", ""); !unavailable(err) {
		t.Errorf("an analysis after Close: %v", err)
	}
}

// until waits for a condition that another goroutine will meet.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patient); !condition(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal("it did not happen")
		}
	}
}

const parentCommand = "analyzer-test-parent"

// parent runs an analysis with the program in its second argument until it is killed.
func parent() int {
	a, err := New(Config{Program: os.Args[2], Wall: patient, Memory: 1 << 46})
	if err != nil {
		return 1
	}
	_, _ = a.Analyze(context.Background(), domain.OrganizationID{}, os.Stdin, 0, "", "")
	return 1
}

// TestParentDies: a child does not outlive a killed parent.
func TestParentDies(t *testing.T) {
	h := hold(t)
	// Without a grandchild: the kernel signals only the child.
	c := exec.Command("/proc/self/exe", parentCommand, script(t, "exec 7>"+h.path+"\necho here >&7\nexec sleep 1000\n"))
	c.Stdin = open(t, nil)
	check(t, c.Start())
	h.started(t)
	check(t, c.Process.Kill())
	_ = c.Wait() // it was killed
	h.gone(t)
}

func TestConfig(t *testing.T) {
	if _, err := New(Config{Queue: -1}); err == nil {
		t.Error("a negative limit is taken")
	}
	a := start(t, Config{Workers: 1 << 20})
	if a.queue.free > 1<<10 {
		t.Errorf("%d analyses at once", a.queue.free)
	}
}
