// Package integritytest holds helpers shared by the tests of several commands.
package integritytest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// Patient is how long a test waits for something that must happen, on a busy machine with two cores.
const Patient = 4 * time.Minute

// Eventually calls check until it returns nil.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(Patient)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, Patient, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// FreeAddress returns a loopback address reserved for the test until it ends, however often a service that listens
// there is killed and restarted. The port is below Linux's ephemeral range. An abstract socket with its name keeps
// other tests from using it.
func FreeAddress(t testing.TB) string {
	t.Helper()
	const first, last = 20_000, 32_000
	for range 1000 {
		address := fmt.Sprintf("127.0.0.1:%d", first+rand.IntN(last-first))
		ours, err := net.Listen("unix", "@integrity-test-"+address)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			ours.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() { ours.Close() })
		return address
	}
	t.Fatalf("no port from %d to %d is free", first, last)
	return ""
}

// Write writes a file and returns its path.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
