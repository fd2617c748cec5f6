package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh/agent"

	"integrityledger/cmd/integrity/keyfiles/sshagent"
	"integrityledger/domain/evidence"
)

// startAgent starts OpenSSH's ssh-agent with the signing key, and returns what INTEGRITY_SIGNING_KEY says of it.
func (r *run) startAgent(ctx context.Context) (address string, err error) {
	socket := r.file("agent")
	c := exec.CommandContext(context.WithoutCancel(ctx), "ssh-agent", "-D", "-a", socket) //nolint:gosec // ours
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := c.Start(); err != nil {
		return "", fmt.Errorf("start OpenSSH's agent (Debian package openssh-client): %w", err)
	}
	r.closers = append(r.closers, func() error {
		_ = c.Process.Kill() // it has nothing to save
		_ = c.Wait()         // it was killed
		return nil
	})
	var conn net.Conn
	if err := poll(ctx, 10*time.Millisecond, func() (bool, error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", socket)
		return err == nil, nil
	}); err != nil {
		return "", err
	}
	text, err := evidence.MarshalSignerPEM(r.signer)
	if err != nil {
		return "", err
	}
	block, _ := pem.Decode(text)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err == nil {
		err = agent.NewClient(conn).Add(agent.AddedKey{PrivateKey: private})
	}
	at := sshagent.Address{Socket: socket, Fingerprint: sshagent.Fingerprint(r.signer.Key())}
	return at.String(), errors.Join(err, conn.Close())
}

// keepInAgent makes the file of the signing key name the agent's key.
func (r *run) keepInAgent(ctx context.Context, file string) error {
	address, err := r.startAgent(ctx)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(address+"\n"), 0o600)
}
