package postgres

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"integrityledger/domain/say"
)

type spawnConfig struct {
	program, dir string
	args         []string
	account      account
	output       io.Writer
	whenWeDie    syscall.Signal
}

// child is a running program. err may be read once exited is closed.
type child struct {
	pid    int
	exited chan struct{}
	err    error
	cmd    *exec.Cmd
}

// spawn starts a program. If this process dies in any way, the kernel sends the program whenWeDie.
//
// The program gets its own process group, so that ^C at the terminal reaches only this process, which first finishes
// its work that needs the server.
func spawn(cfg spawnConfig) (*child, error) {
	//nolint:gosec,noctx // the program is one we looked up; its end is asked for by signals in an order that a context cannot express
	cmd := exec.Command(cfg.program, cfg.args...)
	cmd.Dir = cfg.dir
	// Do not pass on the environment: it holds secrets, and PG* variables would change the server's behaviour.
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	if path := os.Getenv("LD_LIBRARY_PATH"); path != "" {
		cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+path)
	}
	cmd.Stdout, cmd.Stderr = cfg.output, cfg.output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: cfg.whenWeDie, Credential: cfg.account.credential()}

	c := &child{cmd: cmd, exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the parent-death signal when the thread that forked ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return nil, say.Errorf("start %s as user %s: %w", cfg.program, userName(cfg.account.uid), err)
	}
	c.pid = cmd.Process.Pid
	return c, nil
}

// signal sends a signal to the child. It does nothing if the child has exited.
func (c *child) signal(s syscall.Signal) {
	_ = c.cmd.Process.Signal(s) // fails only if the child changed its user; its exit is awaited anyway
}

func (c *child) gone() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// recordedPID returns the process number in the first line of postmaster.pid, 0 without that file. Standalone backends
// record a negative number.
func recordedPID(l layout) (int, error) {
	pid, _, err := recorded(l)
	return pid, err
}

// recorded returns recordedPID and the lines after the first.
func recorded(l layout) (pid int, rest []byte, err error) {
	raw, err := os.ReadFile(filepath.Join(l.data, "postmaster.pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil, nil
	}
	if err != nil {
		return 0, nil, say.Errorf("postmaster.pid: %w", err)
	}
	first, rest, _ := bytes.Cut(raw, []byte("\n"))
	pid, err = strconv.Atoi(string(bytes.TrimSpace(first)))
	if err != nil {
		return 0, nil, nil //nolint:nilerr // partly written: PostgreSQL itself handles it
	}
	return max(pid, -pid), rest, nil
}

// worksIn reports whether pid is a PostgreSQL process of the data directory, which all of them have as working
// directory.
func worksIn(pid int, l layout) bool {
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
	if err != nil || cwd != l.data {
		return false
	}
	exe, err := os.Readlink(filepath.Join(proc, "exe"))
	return err == nil && filepath.Base(strings.TrimSuffix(exe, " (deleted)")) == "postgres"
}

// disownRecycledPID allows a start if the process number in postmaster.pid now belongs to another program, as after a
// reboot or in a container. PostgreSQL would refuse to start while that program runs. It writes this process's number
// to the file, because a postmaster knows that its parent is not its predecessor. The file is not removed, so that
// PostgreSQL still checks whether the recorded shared memory is in use. The caller must hold the lock.
func disownRecycledPID(l layout) error {
	pid, rest, err := recorded(l)
	if err != nil {
		return err
	}
	if pid != 0 && worksIn(pid, l) {
		return nil
	}
	// The directory is private to our server, which does not run, so its files are left over.
	for _, name := range []string{socketFile, socketFile + ".lock"} {
		if err := os.Remove(filepath.Join(l.socket, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return say.Errorf("remove a left-over socket: %w", err)
		}
	}
	if pid == 0 || pid == os.Getpid() {
		return nil
	}
	// Write in place, so that the file keeps its owner and is not created again if its exiting postmaster has removed it.
	file, err := os.OpenFile(filepath.Join(l.data, "postmaster.pid"), os.O_WRONLY|os.O_TRUNC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		_, err = fmt.Fprintf(file, "%d\n%s", os.Getpid(), rest)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return say.Errorf("postmaster.pid: %w", err)
	}
	return nil
}

// endOrphans ends the processes of a killed postmaster at once (SIGQUIT). A busy process would notice the death much
// later, and no new postmaster can start before. endOrphans does nothing while a postmaster lives. The caller must hold
// the lock.
func endOrphans(l layout) (ended int, err error) {
	pid, err := recordedPID(l)
	if err != nil {
		return 0, err
	}
	if pid != 0 && worksIn(pid, l) {
		return 0, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, say.Errorf("look for left-over processes: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || !worksIn(pid, l) {
			continue
		}
		if err := syscall.Kill(pid, syscall.SIGQUIT); err == nil {
			ended++
		}
	}
	return ended, nil
}
