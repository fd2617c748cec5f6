package analyzer

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const probeCommand = "analyzer-test-probe"

// attempt is one thing that a confined process tries, and what became of it.
type attempt struct {
	Name   string
	Denied bool
	Said   string
}

// probe confines itself and tries what the parsers must not be able to do, from several threads.
func probe() int {
	file := os.NewFile(3, "file")
	if err := confine(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitUnconfined
	}
	var list []attempt
	try := func(name string, err error) {
		list = append(list, attempt{name, errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS), fmt.Sprint(err)})
	}
	raw := func(name string, number uintptr, args ...uintptr) {
		var a [6]uintptr
		copy(a[:], args)
		pid, _, errno := unix.RawSyscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
		if name == "fork" && errno == 0 && pid == 0 {
			unix.Exit(0) // the new process, which there should not be
		}
		if errno == 0 {
			try(name, nil)
			return
		}
		try(name, errno)
	}
	var mu sync.Mutex
	var threads sync.WaitGroup
	for range 4 {
		threads.Go(func() {
			runtime.LockOSThread()
			_, err := net.Dial("tcp", "127.0.0.1:9")
			_, lookup := net.Dial("udp", "192.0.2.1:53")
			mu.Lock()
			defer mu.Unlock()
			try("dial", err)
			try("dial udp", lookup)
		})
	}
	threads.Wait()
	_, err := net.Listen("tcp", "127.0.0.1:0")
	try("listen", err)
	_, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	try("socketpair", err)
	_, err = net.Dial("unix", "/run/x")
	try("unix socket", err)
	_, err = os.Open("/etc/passwd")
	try("open", err)
	try("create", os.WriteFile(os.Args[2], nil, 0o600))
	try("exec", exec.Command("/bin/true").Run())
	raw("fork", unix.SYS_CLONE, uintptr(unix.SIGCHLD))
	raw("clone3", unix.SYS_CLONE3, 0, 0)
	raw("execve", unix.SYS_EXECVE, 0, 0, 0)
	try("kill the parent", unix.Kill(os.Getppid(), 0))
	try("tgkill the parent", unix.Tgkill(os.Getppid(), os.Getppid(), 0))
	raw("ptrace", unix.SYS_PTRACE, unix.PTRACE_ATTACH, 1<<30)
	raw("io_uring", unix.SYS_IO_URING_SETUP, 1, 0)
	raw("process_vm_readv", unix.SYS_PROCESS_VM_READV, uintptr(os.Getppid()))
	raw("pidfd_open", unix.SYS_PIDFD_OPEN, uintptr(os.Getppid()))
	raw("bpf", unix.SYS_BPF, 0)
	raw("mount", unix.SYS_MOUNT, 0)
	raw("unshare", unix.SYS_UNSHARE, uintptr(unix.CLONE_NEWUSER))
	raw("ftruncate", unix.SYS_FTRUNCATE, 3, 0)
	raw("prlimit", unix.SYS_PRLIMIT64, uintptr(os.Getppid()), unix.RLIMIT_CPU)
	_, err = file.WriteAt([]byte("x"), 0)
	list = append(list, attempt{"write to the file", err != nil, fmt.Sprint(err)})

	// What must go on working.
	content := make([]byte, 4)
	_, err = file.ReadAt(content, 0)
	list = append(list, attempt{"read the file", err == nil && string(content) == "file", fmt.Sprint(err)})
	runtime.GC()
	if json.NewEncoder(os.Stdout).Encode(list) != nil {
		return 1
	}
	return 0
}

// TestConfined: a confined process has no network, opens nothing, starts nothing and signals nobody, as root and as
// somebody else.
func TestConfined(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(path, []byte("file"), 0o600))
	writable, err := os.MkdirTemp("", "analyzer") // by everybody
	check(t, err)
	t.Cleanup(func() { os.RemoveAll(writable) })
	check(t, os.Chmod(writable, 0o777))
	accounts := map[string]*syscall.Credential{"this user": nil}
	if os.Getuid() == 0 {
		accounts["nobody"] = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	for name, account := range accounts {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(path)
			check(t, err)
			defer f.Close()
			c := exec.Command("/proc/self/exe", probeCommand, filepath.Join(writable, name))
			c.ExtraFiles, c.Stderr = []*os.File{f}, os.Stderr
			c.SysProcAttr = &syscall.SysProcAttr{Credential: account}
			out, err := c.Output()
			check(t, err)
			var list []attempt
			check(t, json.Unmarshal(out, &list))
			if len(list) < 30 {
				t.Fatalf("only %d attempts: %s", len(list), out)
			}
			for _, a := range list {
				if !a.Denied {
					t.Errorf("%s: %s", a.Name, a.Said)
				}
			}
		})
	}
	if made, err := os.ReadDir(writable); err != nil || len(made) > 0 {
		t.Errorf("a confined process made %v (%v)", made, err)
	}
}
