package sshagent_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh/agent"

	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/domain/evidence"
)

// BenchmarkOpenSSH measures signatures by OpenSSH's agent, by 64 callers at once.
func BenchmarkOpenSSH(b *testing.B) {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	c := exec.Command("ssh-agent", "-D", "-a", socket)
	if err := c.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	var conn net.Conn
	for range 500 {
		if conn, err = net.Dial("unix", socket); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err != nil {
		b.Fatal(err)
	}
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	if err := agent.NewClient(conn).Add(agent.AddedKey{PrivateKey: private}); err != nil {
		b.Fatal(err)
	}
	key, _ := evidence.NewPublicKey(public)
	at := sshagent.Address{Socket: socket, Fingerprint: sshagent.Fingerprint(key)}
	kept, err := new(sshagent.Agents).Signer(at, nil)
	if err != nil {
		b.Fatal(err)
	}
	own, _ := evidence.NewSigner(private)
	for name, signer := range map[string]*evidence.Signer{"agent": kept, "process": own} {
		b.Run(name, func(b *testing.B) {
			payload := make([]byte, 500)
			todo := make(chan struct{}, b.N)
			for range b.N {
				todo <- struct{}{}
			}
			close(todo)
			var all sync.WaitGroup
			b.ResetTimer()
			for range 64 {
				all.Go(func() {
					for range todo {
						if _, err := signer.Sign(payload); err != nil {
							b.Error(err)
						}
					}
				})
			}
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "signatures/s")
		})
	}
}
