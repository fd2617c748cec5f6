package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// child is this very program, started once more with other arguments. Its log goes to a file, as an operator's would.
type child struct {
	name, base, log, metrics string
	cmd                      *exec.Cmd
	end                      context.CancelFunc
	exited                   chan struct{}
}

// start starts the program with --listen and a free port of this machine, and returns when it answers. It is stopped at
// the end of the run. None of our INTEGRITY_ variables reaches it, but for the level of its log.
func (r *run) start(ctx context.Context, name string, environ []string, args ...string) (*child, error) {
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	c := &child{name: name, base: "http://" + address, log: filepath.Join(r.Dir, name+".log"), exited: make(chan struct{})}
	logFile, err := os.OpenFile(c.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer logFile.Close()
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	c.end, c.cmd = end, exec.CommandContext(life, r.Program, append(args, "--listen", address)...) //nolint:gosec // the program is ourselves
	c.cmd.Dir, c.cmd.Env, c.cmd.Stderr = r.Dir, append(foreignEnviron(), environ...), logFile
	c.cmd.Cancel, c.cmd.WaitDelay = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }, 45*time.Second
	// A group of its own: a ^C at the terminal is for us. The kernel ends it with the thread that forked, which is Run's.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = c.cmd.Wait() // how it ended stands in ProcessState
		close(c.exited)
	}()
	r.children, r.closers = append(r.children, c), append(r.closers, c.stop)
	return c, c.ready(ctx)
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

func (c *child) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		select {
		case <-c.exited:
			return false, errors.New("it ended")
		default:
			_, err := fetch(ctx, c.base+"/readyz")
			return err == nil, nil
		}
	})
	if err != nil {
		return fmt.Errorf("%s is not ready: %w: %s", c.name, err, c.lastWords())
	}
	return nil
}

// fetch gets a small answer 200.
func fetch(ctx context.Context, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answered %d: %.300s", url, resp.StatusCode, body)
	}
	return body, err
}

// lastWords are the end of its log.
func (c *child) lastWords() string {
	text, _ := os.ReadFile(c.log) // only to explain another error
	return string(text[max(0, len(text)-1000):])
}

// stop asks it to finish, and waits until it is gone.
func (c *child) stop() error {
	c.end()
	<-c.exited
	if state := c.cmd.ProcessState; !state.Success() {
		return fmt.Errorf("%s: %s: %s", c.name, state, c.lastWords())
	}
	return nil
}

// command runs the program on the lab's database and reads the last JSON value of its output.
func (r *run) command(ctx context.Context, to any, args ...string) error {
	c := exec.CommandContext(ctx, r.Program, args...) //nolint:gosec // the program is ourselves
	c.Env, c.Stderr = append(foreignEnviron(), r.environ()...), os.Stderr
	out, err := c.Output()
	for d := json.NewDecoder(bytes.NewReader(out)); err == nil && d.More(); {
		err = d.Decode(to)
	}
	if err != nil {
		return fmt.Errorf("integrity %s: %w: %.1000s", strings.Join(args, " "), err, out)
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
