package analyzer

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spareThreads is how many threads the runtime finds idle behind the filter, where it can start none. With one processor
// (GOMAXPROCS) it needs one that computes and one for each system call that takes its time.
const spareThreads = 8

// confine puts the whole process behind the filter, for ever and for all threads, and checks that it holds. On an
// architecture without a filter it refuses, so nothing is analysed.
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
	// Without new privileges the kernel takes a filter from anybody; the flag goes to the other threads with it.
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no new privileges: %w", err)
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	//nolint:gosec // the kernel takes the program's address, and copies it
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return confined()
}

// startThreads has the runtime start n threads, which it keeps.
func startThreads(n int) {
	var started, ended sync.WaitGroup
	release := make(chan struct{})
	started.Add(n)
	for range n {
		ended.Go(func() {
			runtime.LockOSThread() // a thread that is waited on cannot serve the next one
			defer runtime.UnlockOSThread()
			started.Done()
			<-release
		})
	}
	started.Wait()
	close(release)
	ended.Wait()
}

// confined tries what must no longer be possible.
func confined() error {
	_, socket := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	_, open := unix.Open("/", unix.O_RDONLY, 0)
	_, owner := unix.FcntlInt(1, unix.F_SETOWN, os.Getpid())
	_, shared := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_ANON)
	for what, err := range map[string]error{"a socket is made": socket, "a file is opened": open, "the owner of a pipe is changed": owner, "memory is shared": shared} {
		if !errors.Is(err, unix.EPERM) {
			return errors.Join(fmt.Errorf("%s behind the filter", what), err)
		}
	}
	return nil
}
