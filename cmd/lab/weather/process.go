package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// process is a supervised program: it is restarted when it ends by itself, and can be killed and frozen.
type process struct {
	w       *world
	name    string
	program string
	args    []string
	env     []string
	uid     *syscall.Credential   // nil: our own
	final   func(how string) bool // called when it ended by itself: whether to leave it; may be nil

	mu     sync.Mutex
	pid    int
	wanted bool
	exited chan struct{} // closed when the running process has ended
}

// logPath returns the path of a log in the run's directory.
func (p *process) logPath() string { return filepath.Join(p.w.dir, "logs", p.name+".log") }

// start starts the program, which runs until stop or kill. It returns at once.
func (p *process) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wanted {
		return
	}
	p.wanted = true
	p.launch()
}

// launch must be called with the lock held.
func (p *process) launch() {
	exited := make(chan struct{})
	p.exited = exited
	log, err := os.OpenFile(p.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.w.t.Error(err)
		return
	}
	cmd := exec.Command(p.program, p.args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = p.env, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: p.uid}
	started := make(chan error)
	p.w.running.Go(func() {
		// The kernel sends the parent-death signal when the thread that forked ends.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err != nil {
			close(exited)
			return
		}
		_ = cmd.Wait() // the result is in ProcessState
		p.mu.Lock()
		if p.pid == cmd.Process.Pid {
			p.pid = 0 // another process may get the number
		}
		p.mu.Unlock()
		close(exited)
		p.over(exited, cmd.ProcessState.String())
	})
	if err := <-started; err != nil {
		p.w.t.Errorf("start %s: %v", p.name, err)
		return
	}
	p.pid = cmd.Process.Pid
}

// over restarts a process that ended by itself. exited belongs to the process that ended; another may be running since.
func (p *process) over(exited chan struct{}, how string) {
	ours := func() bool { return p.wanted && p.exited == exited }
	p.mu.Lock()
	wanted := ours()
	if wanted && p.final != nil && p.final(how) {
		p.wanted, wanted = false, false
	}
	p.mu.Unlock()
	if !wanted {
		return
	}
	p.w.note("%s ended by itself (%s); the supervisor starts it again", p.name, how)
	time.Sleep(time.Second) // as a supervisor waits between restarts
	p.mu.Lock()
	defer p.mu.Unlock()
	if ours() {
		p.launch()
	}
}

// signal signals the process and its children.
func (p *process) signal(s syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid != 0 {
		_ = syscall.Kill(-p.pid, s) // it may have ended
	}
}

// kill ends the process at once, and waits until it is gone.
func (p *process) kill() { p.end(syscall.SIGKILL, time.Minute) }

// stop ends the process as an operator does.
func (p *process) stop() {
	if !p.end(syscall.SIGTERM, 60*time.Second) {
		p.w.note("%s did not stop within a minute of SIGTERM and was killed", p.name)
		p.kill()
	}
}

func (p *process) end(s syscall.Signal, patience time.Duration) bool {
	p.mu.Lock()
	p.wanted = false
	exited := p.exited
	p.mu.Unlock()
	p.signal(s)
	if exited == nil {
		return true
	}
	select {
	case <-exited:
		return true
	case <-time.After(patience):
		return false
	}
}

func (p *process) String() string { return fmt.Sprintf("%s (process %d)", p.name, p.pid) }
