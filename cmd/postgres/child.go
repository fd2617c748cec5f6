package postgres

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
)

type spawnConfig struct {
	program   string
	args      []string
	account   account
	dir       string
	output    io.Writer
	whenWeDie syscall.Signal
}

// child is a running program. err may be read once exited is closed.
type child struct {
	pid    int
	exited chan struct{}
	err    error
	cmd    *exec.Cmd
}

// spawn starts a program that gets whenWeDie from the kernel when this process dies, however it dies.
//
// It has a process group of its own: a ^C at the terminal is for us, who first finish what needs the server.
func spawn(cfg spawnConfig) (*child, error) {
	//nolint:gosec,noctx // the program is one we looked up; its end is asked for by signals in an order that a context cannot express
	cmd := exec.Command(cfg.program, cfg.args...)
	cmd.Dir = cfg.dir
	// Nothing of our environment: it holds secrets, and PG* variables would change what the server does.
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
		return nil, fmt.Errorf("start %s as user %s: %w", cfg.program, userName(cfg.account.uid), err)
	}
	c.pid = cmd.Process.Pid
	return c, nil
}

// signal of a child that is gone already does nothing.
func (c *child) signal(s syscall.Signal) {
	if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		// Only a child that changed its identity could refuse; then its exit is waited for all the same.
		return
	}
}

func (c *child) gone() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}
