package analyzer

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

const probeCommand = "analyzer-test-probe"

// attempt is an operation that a confined process tries, and its result.
type attempt struct {
	Name   string
	Denied bool
	Said   string
}

// probe confines itself and tries, from several threads, what the parsers must not be able to do.
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
			unix.Exit(0) // a new process, which must not exist
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
			defer runtime.UnlockOSThread() // a goroutine that ends while locked destroys its thread
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
	// Signals to other processes through a shared descriptor.
	raw("F_SETOWN", unix.SYS_FCNTL, 1, unix.F_SETOWN, uintptr(os.Getpid()))
	raw("F_SETOWN_EX", unix.SYS_FCNTL, 1, unix.F_SETOWN_EX, 0)
	raw("F_SETSIG", unix.SYS_FCNTL, 1, unix.F_SETSIG, uintptr(unix.SIGCHLD))
	raw("F_SETFL", unix.SYS_FCNTL, 1, unix.F_SETFL, unix.O_ASYNC)
	raw("F_SETLEASE", unix.SYS_FCNTL, 3, unix.F_SETLEASE, unix.F_RDLCK)
	raw("F_NOTIFY", unix.SYS_FCNTL, 3, unix.F_NOTIFY, 0)
	raw("F_DUPFD", unix.SYS_FCNTL, 3, unix.F_DUPFD, 0)
	raw("F_SETPIPE_SZ", unix.SYS_FCNTL, 1, unix.F_SETPIPE_SZ, 1<<20)
	raw("F_ADD_SEALS", unix.SYS_FCNTL, 3, unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	raw("FIOASYNC", unix.SYS_IOCTL, 1, 0x5452)
	raw("TIOCSTI", unix.SYS_IOCTL, 0, unix.TIOCSTI)
	raw("pidfd_send_signal", unix.SYS_PIDFD_SEND_SIGNAL, 3, 0, 0, 0)
	raw("rt_sigqueueinfo", unix.SYS_RT_SIGQUEUEINFO, uintptr(os.Getppid()), 0, 0)
	raw("rt_tgsigqueueinfo", unix.SYS_RT_TGSIGQUEUEINFO, uintptr(os.Getppid()), uintptr(os.Getppid()), 0, 0)
	raw("tkill", unix.SYS_TKILL, uintptr(os.Getppid()), 0)
	raw("timer_create", unix.SYS_TIMER_CREATE, 0, 0, 0)
	raw("setitimer", unix.SYS_SETITIMER, 0, 0, 0)
	// Memory that RLIMIT_DATA does not count, and operations on memory.
	raw(
		"shared memory", unix.SYS_MMAP, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON, ^uintptr(0),
		0,
	)
	raw(
		"validated shared memory", unix.SYS_MMAP, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED_VALIDATE|unix.MAP_ANON, ^uintptr(0), 0,
	)
	raw(
		"a stack that grows", unix.SYS_MMAP, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_GROWSDOWN, ^uintptr(0), 0,
	)
	raw(
		"locked memory", unix.SYS_MMAP, 0, 1<<12, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_LOCKED, ^uintptr(0), 0,
	)
	raw(
		"huge pages", unix.SYS_MMAP, 0, 1<<21, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_HUGETLB, ^uintptr(0), 0,
	)
	raw("memory of a file", unix.SYS_MMAP, 0, 1<<12, unix.PROT_READ, unix.MAP_PRIVATE, 3, 0)
	raw(
		"executable memory", unix.SYS_MMAP, 0, 1<<12, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON,
		^uintptr(0), 0,
	)
	raw("mprotect to execute", unix.SYS_MPROTECT, 0, 0, unix.PROT_EXEC)
	raw("poisoned memory", unix.SYS_MADVISE, 0, 0, unix.MADV_HWPOISON)
	raw("merged memory", unix.SYS_MADVISE, 0, 0, unix.MADV_MERGEABLE)
	raw("mremap", unix.SYS_MREMAP, 0, 0, 0)
	raw("memfd_create", unix.SYS_MEMFD_CREATE, 0, 0)
	raw("memfd_secret", unix.SYS_MEMFD_SECRET, 0)
	raw("shmget", unix.SYS_SHMGET, unix.IPC_PRIVATE, 4096, 0o600)
	raw("msgget", unix.SYS_MSGGET, unix.IPC_PRIVATE, 0o600)
	raw("mlockall", unix.SYS_MLOCKALL, 0)
	raw("userfaultfd", unix.SYS_USERFAULTFD, 0)
	raw("pipe2", unix.SYS_PIPE2, 0, 0)
	raw("add_key", unix.SYS_ADD_KEY, 0)
	raw("keyctl", unix.SYS_KEYCTL, 0)
	// Other processes' share of the machine.
	raw("setpriority", unix.SYS_SETPRIORITY, 0, 0, 0)
	raw("sched_setaffinity", unix.SYS_SCHED_SETAFFINITY, uintptr(os.Getppid()), 0, 0)
	raw("sched_getaffinity of the parent", unix.SYS_SCHED_GETAFFINITY, uintptr(os.Getppid()), 0, 0)
	raw("ioprio_set", unix.SYS_IOPRIO_SET, 1, 0, 0)
	raw("prctl", unix.SYS_PRCTL, unix.PR_SET_PDEATHSIG, 0)
	raw("seccomp", unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, 0)
	raw("kcmp", unix.SYS_KCMP, 0)
	raw("a futex that lends priority", unix.SYS_FUTEX, 0, 6)
	raw("process_vm_writev", unix.SYS_PROCESS_VM_WRITEV, uintptr(os.Getppid()))
	raw("pidfd_getfd", unix.SYS_PIDFD_GETFD, 0, 0, 0)
	raw("setns", unix.SYS_SETNS, 3, 0)
	raw("openat2", unix.SYS_OPENAT2, 0, 0, 0, 0)
	raw("open_by_handle_at", unix.SYS_OPEN_BY_HANDLE_AT, 3, 0, 0)
	raw(
		"thread", unix.SYS_CLONE, uintptr(unix.CLONE_VM|unix.CLONE_FS|unix.CLONE_FILES|unix.CLONE_SIGHAND|unix.CLONE_THREAD),
		0, 0, 0,
	)
	_, err = file.WriteAt([]byte("x"), 0)
	list = append(list, attempt{"write to the file", err != nil, fmt.Sprint(err)})

	// Operations that must still work.
	content := make([]byte, 4)
	_, err = file.ReadAt(content, 0)
	list = append(list, attempt{"read the file", err == nil && string(content) == "file", fmt.Sprint(err)})
	runtime.GC()
	if json.NewEncoder(os.Stdout).Encode(list) != nil {
		return 1
	}
	return 0
}

// TestConfined: a confined process has no network, opens no files, starts no processes and sends no signals, as root
// and as another user.
func TestConfined(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(path, []byte("file"), 0o600))
	writable, err := os.MkdirTemp("", "analyzer") // writable by all users
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
			c.Env = append(os.Environ(), "GOMAXPROCS=1") // as the parent starts a child; spareThreads assumes it
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

// systemCalls reads an architecture's system call numbers from the source of golang.org/x/sys.
func systemCalls(t *testing.T, architecture string) map[string]uint32 {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	check(t, err)
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+architecture+".go"))
	check(t, err)
	numbers := map[string]uint32{}
	for _, m := range regexp.MustCompile(`SYS_(\w+)\s+= (\d+)`).FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.ParseUint(m[2], 10, 32)
		check(t, err)
		numbers[strings.ToLower(m[1])] = uint32(n)
	}
	if len(numbers) < 300 {
		t.Fatalf("%s has only %d system calls", architecture, len(numbers))
	}
	return numbers
}

const testPID = 4711

// judge returns the action of an architecture's filter, from an interpreter that runs on any machine.
func judge(t *testing.T, m machine, audit, number uint32, arguments ...uint64) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(m.filter(testPID))
	check(t, err)
	// struct seccomp_data as on a little-endian machine; the interpreter loads words as big-endian.
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetNumber:], number)
	binary.BigEndian.PutUint32(data[offsetArchitecture:], audit)
	for i, a := range arguments {
		binary.BigEndian.PutUint32(data[16+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[16+8*i+4:], uint32(a>>32))
	}
	said, err := vm.Run(data)
	check(t, err)
	return uint32(said)
}

// TestFilter checks the filters of both architectures against their system call tables: every call not in the list is
// denied, and so are the arguments that the rules do not allow.
func TestFilter(t *testing.T) {
	const readWrite, private, shared = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE |
		unix.MAP_ANON, unix.MAP_SHARED | unix.MAP_ANON
	none := ^uint64(0)
	for architecture, m := range machines {
		t.Run(architecture, func(t *testing.T) {
			numbers := systemCalls(t, architecture)
			listed := map[string]call{}
			for _, c := range calls(testPID) {
				if number, ok := numbers[c.name]; !ok || number != m.number(c) {
					t.Errorf("%s has number %d, not %d", c.name, number, m.number(c))
				}
				listed[c.name] = c
			}
			for name, number := range numbers {
				c, ok := listed[name]
				if ok && c.rules != nil {
					continue
				}
				if want := map[bool]uint32{true: allow, false: deny}[ok]; judge(t, m, m.audit, number) != want {
					t.Errorf("%s without arguments: %#x, not %#x", name, judge(t, m, m.audit, number), want)
				}
			}
			for _, name := range []string{
				"clone", "clone3", "execve", "execveat", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo",
				"pidfd_send_signal", "ioctl", "prctl", "prlimit64",
				"setpriority", "sched_setaffinity", "ptrace", "process_vm_readv", "process_vm_writev", "io_uring_setup",
				"userfaultfd", "keyctl", "socket", "openat",
				"timer_create", "memfd_create", "shmget", "mremap", "seccomp", "bpf", "unshare", "setns",
			} {
				number, ok := numbers[name]
				if !ok || judge(t, m, m.audit, number, 0, 0, 0, private) != deny {
					t.Errorf("%s is allowed, or has no number (%v)", name, ok)
				}
			}
			for _, c := range []struct {
				want      uint32
				name      string
				arguments []uint64
			}{
				{allow, "fcntl", []uint64{1, unix.F_GETFL}},
				{deny, "fcntl", []uint64{1, unix.F_SETFL, unix.O_ASYNC}},
				{deny, "fcntl", []uint64{1, unix.F_SETOWN, testPID}},
				{deny, "fcntl", []uint64{1, unix.F_SETOWN_EX}},
				{deny, "fcntl", []uint64{1, unix.F_SETSIG, uint64(unix.SIGKILL)}},
				{deny, "fcntl", []uint64{1, unix.F_DUPFD}},
				{deny, "fcntl", []uint64{1, unix.F_SETLK}},
				{allow, "mmap", []uint64{0, 1, unix.PROT_NONE, private, none}},
				{allow, "mmap", []uint64{0, 1, readWrite, private | unix.MAP_FIXED, none}},
				{allow, "mmap", []uint64{0, 1, readWrite, private | unix.MAP_NORESERVE | unix.MAP_STACK, none}},
				{deny, "mmap", []uint64{0, 1, readWrite, shared, none}},
				{deny, "mmap", []uint64{0, 1, readWrite, unix.MAP_SHARED_VALIDATE | unix.MAP_ANON, none}},
				{deny, "mmap", []uint64{0, 1, readWrite, 0x08 | unix.MAP_ANON, none}}, // MAP_DROPPABLE
				{deny, "mmap", []uint64{0, 1, readWrite, unix.MAP_PRIVATE, 3}},
				{deny, "mmap", []uint64{0, 1, readWrite, private | unix.MAP_GROWSDOWN, none}},
				{deny, "mmap", []uint64{0, 1, readWrite, private | unix.MAP_LOCKED, none}},
				{deny, "mmap", []uint64{0, 1, readWrite, private | unix.MAP_POPULATE, none}},
				{deny, "mmap", []uint64{0, 1, readWrite, private | unix.MAP_HUGETLB, none}},
				{deny, "mmap", []uint64{0, 1, unix.PROT_EXEC, private, none}},
				{allow, "mprotect", []uint64{0, 1, readWrite}},
				{deny, "mprotect", []uint64{0, 1, unix.PROT_READ | unix.PROT_EXEC}},
				{deny, "mprotect", []uint64{0, 1, readWrite | unix.PROT_GROWSDOWN}},
				{allow, "madvise", []uint64{0, 1, unix.MADV_DONTNEED}},
				{deny, "madvise", []uint64{0, 1, unix.MADV_HWPOISON}},
				{deny, "madvise", []uint64{0, 1, 101}}, // MADV_SOFT_OFFLINE
				{deny, "madvise", []uint64{0, 1, unix.MADV_MERGEABLE}},
				{allow, "futex", []uint64{0, 128 | futexWake}},
				{allow, "futex", []uint64{0, 128 | 256 | futexWaitBitset}},
				{deny, "futex", []uint64{0, 6}},  // FUTEX_LOCK_PI
				{deny, "futex", []uint64{0, 11}}, // FUTEX_WAIT_REQUEUE_PI
				{allow, "tgkill", []uint64{testPID, 1, 23}},
				{allow, "tgkill", []uint64{1<<32 | testPID, 1, 23}}, // the kernel too reads only the low half
				{deny, "tgkill", []uint64{1, 1, 9}},
				{deny, "tgkill", []uint64{none, 1, 9}},
				{deny, "tgkill", []uint64{testPID << 32, 1, 9}},
			} {
				if said := judge(t, m, m.audit, numbers[c.name], c.arguments...); said != c.want {
					t.Errorf("%s%x: %#x, not %#x", c.name, c.arguments, said, c.want)
				}
			}
			for other, o := range machines {
				if other != architecture && judge(t, m, o.audit, numbers["read"]) != kill {
					t.Errorf("a call of %s does not end the process", other)
				}
			}
			if judge(t, m, m.audit, 0x40000000|numbers["read"]) != kill {
				t.Error("a call of the x32 table does not end the process")
			}
			if program, err := assemble(m.filter(testPID)); err != nil || len(program) > 4096 {
				t.Errorf("%d instructions, %v", len(program), err)
			}
		})
	}
}

const hostileCommand = "analyzer-test-hostile"

// hostile acts as a child whose parser was taken over: it is confined like every child, then attacks its parent and the
// machine. It reports what it achieved on descriptor 7.
func hostile() int {
	told := os.NewFile(7, "told")
	if err := confine(); err != nil {
		fmt.Fprintln(told, "unconfined", err)
		return exitUnconfined
	}
	// The parent has the other ends of the pipes: a signal when they become ready would kill it.
	owned := false
	for fd := range uintptr(4) {
		for _, c := range [][2]uintptr{
			{unix.F_SETSIG, uintptr(unix.SIGKILL)}, {unix.F_SETOWN, uintptr(os.Getppid())},
			{unix.F_SETFL, unix.O_ASYNC | unix.O_NONBLOCK},
		} {
			_, _, errno := unix.RawSyscall(unix.SYS_FCNTL, fd, c[0], c[1])
			owned = owned || errno == 0
		}
	}
	shared, threads := 0, 0
	for range 64 {
		at, _, errno := unix.RawSyscall6(
			unix.SYS_MMAP, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON, ^uintptr(0), 0,
		)
		if errno == 0 && at != 0 {
			shared++
		}
		// A thread without a stack would crash; only its existence matters.
		if _, _, errno := unix.RawSyscall6(
			unix.SYS_CLONE, uintptr(unix.CLONE_THREAD|unix.CLONE_VM|unix.CLONE_SIGHAND|unix.CLONE_VFORK), 0, 0, 0, 0, 0,
		); errno == 0 {
			threads++
		}
	}
	fmt.Fprintf(told, "owned %v, shared %d, threads %d\n", owned, shared, threads)
	fmt.Println("{}") // wakes the parent and any owner of the pipe
	return 0
}

// TestHostileChild: a compromised child cannot kill its parent, and gets neither uncounted memory nor threads.
func TestHostileChild(t *testing.T) {
	self, err := os.Executable()
	check(t, err)
	h := hold(t)
	program := script(t, "exec 7>"+h.path+"\nexec "+self+" "+hostileCommand+"\n")
	// The parent is a separate process, because it may be killed.
	c := exec.Command(self, parentCommand, program)
	c.Stdin = open(t, nil)
	var said strings.Builder
	c.Stderr = &said
	check(t, c.Start())
	told := h.line(t)
	if told != "owned false, shared 0, threads 0" {
		t.Errorf("the child: %s", told)
	}
	h.gone(t)
	_ = c.Wait() // the exit code tells
	if c.ProcessState.ExitCode() != 1 {
		t.Errorf("the parent: %s %s", c.ProcessState, said.String())
	}
}
