package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
)

// drill implements testing.TB for a run, so that the drill can use pgtest and other test helpers of the product. It has
// only the methods that they use; the others panic.
type drill struct {
	testing.TB
	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

// run returns whether nothing failed. It returns after f has returned or has called Fatal, and after all cleanups.
func (d *drill) run(f func(testing.TB)) (ok bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer d.cleanUp()
		f(d)
	}()
	<-done
	return !d.Failed()
}

func (d *drill) cleanUp() {
	for _, f := range slices.Backward(d.cleanups) {
		f()
	}
}

func (d *drill) Helper()                  {}
func (d *drill) Name() string             { return "weather" }
func (d *drill) Context() context.Context { return context.Background() }

func (d *drill) Failed() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.failed
}

func (d *drill) Log(args ...any)                 { fmt.Println(args...) }
func (d *drill) Logf(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (d *drill) Error(args ...any) {
	d.mu.Lock()
	d.failed = true
	d.mu.Unlock()
	d.Log(args...)
}

func (d *drill) Errorf(format string, args ...any) { d.Error(fmt.Sprintf(format, args...)) }

func (d *drill) Fatal(args ...any) {
	d.Error(args...)
	runtime.Goexit()
}

func (d *drill) Fatalf(format string, args ...any) { d.Fatal(fmt.Sprintf(format, args...)) }

func (d *drill) Cleanup(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cleanups = append(d.cleanups, f)
}

func (d *drill) TempDir() string {
	dir, err := os.MkdirTemp("", "weather")
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Setenv sets a variable until the process ends.
func (d *drill) Setenv(name, value string) {
	if err := os.Setenv(name, value); err != nil {
		d.Fatal(err)
	}
}
