package analyzer

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// spareThreads is how many idle threads the runtime has when the filter is installed, because it cannot start any
// afterwards. With one processor (GOMAXPROCS) it needs one thread to compute and one for each slow system call.
const spareThreads = 8

// confine installs the filter for all threads of the process, irrevocably, and checks that it works. On an architecture
// without a filter it returns an error, so nothing is analysed.
func confine() error {
	m, ok := machines[runtime.GOARCH]
	if !ok {
		return errors.New("there is no filter for this architecture")
	}
	program, err := assemble(m.filter(uint32(os.Getpid())))
	if err != nil {
		return err
	}
	startThreads(spareThreads)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// With no_new_privs the kernel accepts a filter from an unprivileged process. The flag reaches the other threads
	// together with the filter.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	//nolint:gosec // the kernel copies the program at this address
	_, _, errno := unix.Syscall(
		unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)),
	)
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return confined()
}

// startThreads makes the runtime start n threads, which it keeps.
func startThreads(n int) {
	var started, ended sync.WaitGroup
	release := make(chan struct{})
	started.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // a locked thread cannot serve the next goroutine
			defer runtime.UnlockOSThread()
			started.Done()
			<-release
		})
	}
	started.Wait()
	close(release)
	ended.Wait()
}

// confined tries operations that must now fail.
func confined() error {
	_, socket := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	_, open := unix.Open("/", unix.O_RDONLY, 0)
	_, owner := unix.FcntlInt(1, unix.F_SETOWN, os.Getpid())
	_, shared := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANON)
	for what, err := range map[string]error{
		"a socket is created": socket, "a file is opened": open, "the owner of a pipe is changed": owner,
		"memory is shared": shared,
	} {
		if !errors.Is(err, unix.EPERM) {
			return errors.Join(fmt.Errorf("%s behind the filter", what), err)
		}
	}
	return nil
}

// call is a system call that the filter allows if all its rules hold.
type call struct {
	name         string
	amd64, arm64 uint32
	rules        []rule
}

// rule limits the low 32 bits of an argument: apart from the free bits they must equal one of values.
type rule struct {
	argument int
	free     uint32
	values   []uint32
}

// Only private anonymous memory is allowed, because RLIMIT_DATA counts it. It does not count shared memory, or memory
// that grows downwards like a stack.
const (
	countedMemory = unix.MAP_PRIVATE | unix.MAP_ANON
	freeMemory    = unix.MAP_FIXED | unix.MAP_NORESERVE | unix.MAP_STACK | unix.MAP_FIXED_NOREPLACE
	freeAccess    = unix.PROT_READ | unix.PROT_WRITE // no new code
)

// Operations of futex(2), except those that lend priority.
const (
	futexWait, futexWake, futexWaitBitset, futexWakeBitset = 0, 1, 9, 10
	futexFree                                              = 128 | 256 // private, and the clock
)

// calls are the system calls of a Go program that only computes: memory, time, the open descriptors, its own end. None
// starts a thread or process: the runtime's threads exist before the filter.
func calls(pid uint32) []call {
	return []call{
		{"read", 0, 63, nil},
		{"pread64", 17, 67, nil},
		{"write", 1, 64, nil},
		{"close", 3, 57, nil},
		{"fstat", 5, 80, nil},
		{"lseek", 8, 62, nil},
		// The other commands affect other processes: the owner of a descriptor's signals, its flags, leases, a pipe's size.
		{"fcntl", 72, 25, []rule{{1, 0, []uint32{unix.F_GETFD, unix.F_GETFL}}}},
		{"mmap", 9, 222, []rule{{2, freeAccess, []uint32{0}}, {3, freeMemory, []uint32{countedMemory}}}},
		{"munmap", 11, 215, nil},
		{"mprotect", 10, 226, []rule{{2, freeAccess, []uint32{0}}}},
		{"madvise", 28, 233, []rule{{2, 0, []uint32{
			unix.MADV_DONTNEED, unix.MADV_FREE, unix.MADV_DONTDUMP, unix.MADV_HUGEPAGE, unix.MADV_NOHUGEPAGE, unix.MADV_COLLAPSE,
		}}}},
		{"brk", 12, 214, nil},
		{"futex", 202, 98, []rule{{1, futexFree, []uint32{futexWait, futexWake, futexWaitBitset, futexWakeBitset}}}},
		{"sched_yield", 24, 124, nil},
		// A new thread of the C library registers itself; if it cannot, it ends the process.
		{"set_robust_list", 273, 99, nil},
		{"rseq", 334, 293, nil},
		{"nanosleep", 35, 101, nil},
		{"clock_nanosleep", 230, 115, nil},
		{"clock_gettime", 228, 113, nil},
		{"clock_getres", 229, 114, nil},
		{"gettimeofday", 96, 169, nil},
		{"restart_syscall", 219, 128, nil},
		{"rt_sigaction", 13, 134, nil},
		{"rt_sigprocmask", 14, 135, nil},
		{"rt_sigreturn", 15, 139, nil},
		{"sigaltstack", 131, 132, nil},
		{"getpid", 39, 172, nil},
		{"gettid", 186, 178, nil},
		// The runtime's signals to its own threads.
		{"tgkill", 234, 131, []rule{{0, 0, []uint32{pid}}}},
		{"getrandom", 318, 278, nil},
		{"exit", 60, 93, nil},
		{"exit_group", 231, 94, nil},
		// The runtime's poller, which waits for timers.
		{"epoll_create1", 291, 20, nil},
		{"epoll_ctl", 233, 21, nil},
		{"epoll_pwait", 281, 22, nil},
		{"eventfd2", 290, 19, nil},
	}
}

// machine is an architecture with a filter.
type machine struct {
	audit  uint32 // AUDIT_ARCH_…
	number func(call) uint32
}

var machines = map[string]machine{
	"amd64": {unix.AUDIT_ARCH_X86_64, func(c call) uint32 { return c.amd64 }},
	"arm64": {unix.AUDIT_ARCH_AARCH64, func(c call) uint32 { return c.arm64 }},
}

// Offsets in struct seccomp_data; for an argument, its low half on little-endian machines.
const (
	offsetNumber       = 0
	offsetArchitecture = 4
	offsetArgument0    = 16
	argumentSize       = 8
)

// Actions of the filter.
const (
	allow = unix.SECCOMP_RET_ALLOW
	kill  = unix.SECCOMP_RET_KILL_PROCESS
	deny  = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// filter returns the program that the kernel runs at every system call. A call in another architecture's numbering ends
// the process; a call that is not in the list fails with EPERM.
func (m machine) filter(pid uint32) []bpf.Instruction {
	const x32 = 0x40000000 // on amd64, numbers from here on belong to the x32 table
	list := []bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetArchitecture, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: m.audit, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
		bpf.LoadAbsolute{Off: offsetNumber, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: x32, SkipTrue: 1},
		bpf.RetConstant{Val: kill},
	}
	for _, c := range calls(pid) {
		var checks []bpf.Instruction
		for _, r := range c.rules {
			checks = append(checks, bpf.LoadAbsolute{Off: uint32(offsetArgument0 + argumentSize*r.argument), Size: 4},
				bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: ^r.free})
			for i, value := range r.values {
				checks = append(checks, bpf.JumpIf{Cond: bpf.JumpEqual, Val: value, SkipTrue: uint8(len(r.values) - i)})
			}
			checks = append(checks, bpf.RetConstant{Val: deny})
		}
		checks = append(checks, bpf.RetConstant{Val: allow})
		list = append(list, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: m.number(c), SkipTrue: uint8(len(checks))})
		list = append(list, checks...)
	}
	return append(list, bpf.RetConstant{Val: deny})
}

// assemble converts the program to the kernel's format.
func assemble(list []bpf.Instruction) ([]unix.SockFilter, error) {
	raw, err := bpf.Assemble(list)
	if err != nil {
		return nil, fmt.Errorf("seccomp filter: %w", err)
	}
	program := make([]unix.SockFilter, len(raw))
	for i, r := range raw {
		program[i] = unix.SockFilter{Code: r.Op, Jt: r.Jt, Jf: r.Jf, K: r.K}
	}
	return program, nil
}
