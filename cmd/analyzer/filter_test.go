package analyzer

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// systemCalls reads the numbers of an architecture from the source of golang.org/x/sys.
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

// judge is what the filter of an architecture says, run by an interpreter on whatever machine this is.
func judge(t *testing.T, m machine, audit, number uint32, arguments ...uint64) uint32 {
	t.Helper()
	vm, err := bpf.NewVM(m.filter(testPID))
	check(t, err)
	// struct seccomp_data on a little-endian machine; the interpreter loads words as big-endian ones.
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

// TestFilter holds the filters of both architectures against their own tables: every call that is not in the list is
// denied, and of those in the list what its rules do not name.
func TestFilter(t *testing.T) {
	const readWrite, private, shared = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_PRIVATE | unix.MAP_ANON, unix.MAP_SHARED | unix.MAP_ANON
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
				"clone", "clone3", "execve", "execveat", "kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_send_signal", "ioctl", "prctl", "prlimit64",
				"setpriority", "sched_setaffinity", "ptrace", "process_vm_readv", "process_vm_writev", "io_uring_setup", "userfaultfd", "keyctl", "socket", "openat",
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
				{allow, "tgkill", []uint64{1<<32 | testPID, 1, 23}}, // the kernel looks at the low half, too
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

// hostile is a child whose parser was taken over: it is confined as every child, and then reaches for its parent and for
// the machine. It says what it got on descriptor 7.
func hostile() int {
	told := os.NewFile(7, "told")
	if err := confine(); err != nil {
		fmt.Fprintln(told, "unconfined", err)
		return exitUnconfined
	}
	// The pipes' other ends are the parent's: what makes them ready would kill it.
	owned := false
	for fd := range uintptr(4) {
		for _, c := range [][2]uintptr{{unix.F_SETSIG, uintptr(unix.SIGKILL)}, {unix.F_SETOWN, uintptr(os.Getppid())}, {unix.F_SETFL, unix.O_ASYNC | unix.O_NONBLOCK}} {
			_, _, errno := unix.RawSyscall(unix.SYS_FCNTL, fd, c[0], c[1])
			owned = owned || errno == 0
		}
	}
	shared, threads := 0, 0
	for range 64 {
		at, _, errno := unix.RawSyscall6(unix.SYS_MMAP, 0, 16<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON, ^uintptr(0), 0)
		if errno == 0 && at != 0 {
			shared++
		}
		// A thread without a stack would crash: what matters is whether there is one.
		if _, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.CLONE_THREAD|unix.CLONE_VM|unix.CLONE_SIGHAND|unix.CLONE_VFORK), 0, 0, 0, 0, 0); errno == 0 {
			threads++
		}
	}
	fmt.Fprintf(told, "owned %v, shared %d, threads %d\n", owned, shared, threads)
	fmt.Println("{}") // wakes the parent, and whoever owns the pipe
	return 0
}

// TestHostileChild: a child that was taken over kills no parent, and gets neither memory that is not counted nor threads.
func TestHostileChild(t *testing.T) {
	self, err := os.Executable()
	check(t, err)
	h := hold(t)
	program := script(t, "exec 7>"+h.path+"\nexec "+self+" "+hostileCommand+"\n")
	// The parent is a process of its own, for it may be killed.
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
	_ = c.Wait() // its exit code tells
	if c.ProcessState.ExitCode() != 1 {
		t.Errorf("the parent: %s %s", c.ProcessState, said.String())
	}
}
