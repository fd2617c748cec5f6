package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// child is this very program, started once more with other arguments. Its log goes to a file, as an operator's would.
type child struct {
	name, base, log, metrics string
	cmd                      *exec.Cmd
	exited                   chan struct{}
	err                      error // how it ended; may be read once exited is closed
}

// startChild starts the program with --listen and a free port of this machine, and returns when it answers. None of our
// INTEGRITY_ variables reaches it, but for the level of its log.
func startChild(ctx context.Context, program, dir, name string, environ []string, args ...string) (_ *child, err error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	c := &child{name: name, base: "http://" + address, log: filepath.Join(dir, name+".log"), exited: make(chan struct{})}
	logFile, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	//nolint:gosec,noctx // the program is ourselves; it is ended by a signal, and waited for
	c.cmd = exec.Command(program, append(args, "--listen", address)...)
	c.cmd.Dir, c.cmd.Env, c.cmd.Stderr = dir, append(foreignEnviron(), environ...), logFile
	// A group of its own: a ^C at the terminal is for us. The kernel ends it when we die.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	started := make(chan error)
	go func() {
		// The signal comes when the thread that forked ends, so that thread lives as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := c.cmd.Start()
		started <- err
		if err == nil {
			c.err = c.cmd.Wait()
			close(c.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := c.ready(ctx); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return c, nil
}

func foreignEnviron() []string {
	var environ []string
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "INTEGRITY_") || strings.HasPrefix(entry, "INTEGRITY_LOG_LEVEL=") {
			environ = append(environ, entry)
		}
	}
	return environ
}

func (c *child) pid() int { return c.cmd.Process.Pid }

func (c *child) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/readyz", nil)
		if err != nil {
			return err
		}
		resp, err := client.Do(r)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-c.exited:
			return errors.Join(fmt.Errorf("%s ended: %s", c.name, c.lastWords()), c.err)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %s", c.name, ctx.Err(), c.lastWords())
		}
	}
}

// lastWords are the end of its log.
func (c *child) lastWords() string {
	text, err := os.ReadFile(c.log)
	if err != nil {
		return ""
	}
	return string(text[max(0, len(text)-1000):])
}

// forget empties its log, which would fill the disk in a long run.
func (c *child) forget() error { return os.Truncate(c.log, 0) }

// stop asks it to finish, and waits until it is gone.
func (c *child) stop() error {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // one that is gone already needs none
	select {
	case <-c.exited:
	case <-time.After(45 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.exited
	}
	if c.err != nil {
		return fmt.Errorf("%s: %w: %s", c.name, c.err, c.lastWords())
	}
	return nil
}

func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
