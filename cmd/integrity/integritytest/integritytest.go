// Package integritytest holds helpers that the tests of several commands share.
package integritytest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"
)

// Patient is how long a test waits for what must happen, on a machine of two cores that does much else.
const Patient = 4 * time.Minute

// Eventually repeats check until it passes.
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

// FreeAddress is an address of the loopback that stays the test's own until it ends, however often a service that
// listens there is killed and started again: it is below the ports that Linux gives to whoever asks for any, and other
// tests see that it is taken by an abstract socket of its name.
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

// Write makes a file and returns its path.
func Write(t testing.TB, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}
