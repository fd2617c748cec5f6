package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
)

const logKeyFile = "log-key.pem"

// tree is the process's part of the transparency log; all of it is nil where there is none.
type tree struct {
	write, read *pgxpool.Pool
	log         *transparency.Log
	reader      *transparency.Reader
	signer      atomic.Pointer[transparency.Signer] // nil: this process leaves the tree to others
}

func (c *Config) keepsLog() bool { return c.TransparencyLog == "on" }

// forLog is the configuration as it would be if the log's key were the signing key: the same files under other names.
func (c *Config) forLog() *Config {
	l := *c
	l.SigningKey, l.signingKeyFile, l.ofLog = c.LogKey, c.logKeyFile, true
	return &l
}

// keyName is the file of the signing key in the data directory.
func (c *Config) keyName() string {
	if c.ofLog {
		return logKeyFile
	}
	return signingKeyFile
}

// witnesses are those of a file, where the text is not itself a list.
func (c *Config) witnesses() ([]*transparency.Witness, error) {
	text := c.Witnesses
	if text != "" && !strings.Contains(text, "+") {
		read, err := os.ReadFile(text)
		if err != nil {
			return nil, fmt.Errorf("%sWITNESSES: %w", variablePrefix, err)
		}
		text = string(read)
	}
	witnesses, err := transparency.ParseWitnesses(text)
	if err != nil {
		return nil, fmt.Errorf("%sWITNESSES: %w", variablePrefix, err)
	}
	return witnesses, nil
}

// openTree makes what keeps the transparency log and what answers from it.
func (s *service) openTree(ctx context.Context) error {
	if !s.cfg.keepsLog() {
		return nil
	}
	witnesses, err := s.cfg.witnesses()
	if err != nil {
		return err
	}
	if s.database != nil {
		if err := s.ensureLogKey(); err != nil {
			return err
		}
	}
	s.loadLogKey()
	if s.tree.write, err = s.primary.QueuePool(ctx, logConns); err != nil {
		return err
	}
	if s.tree.read, err = s.primary.ReadPool(ctx, proofConns); err != nil {
		return err
	}
	s.tree.reader = &transparency.Reader{Pool: s.tree.read}
	s.tree.log, err = transparency.New(transparency.Config{
		Pool: s.tree.write, Signer: s.tree.signer.Load, Witnesses: witnesses, Now: s.now, Log: s.log,
	})
	return err
}

// ensureLogKey makes the log's key for an embedded ledger whose trusted keys name none yet. The caller holds the data
// directory's lock, so two starts cannot both make one. What a crash leaves, a key that is not trusted, is taken up again.
func (s *service) ensureLogKey() error {
	if s.cfg.LogKey != "" || s.cfg.TrustedKeys != "" || len(s.keys.Load().Trusted.LogKeys()) > 0 {
		return nil
	}
	path := s.cfg.inDataDir(logKeyFile)
	private, err := readSigner(path)
	if err != nil {
		return err
	}
	if private == nil {
		if private, err = evidence.GenerateSigner(s.random); err != nil {
			return err
		}
		if err := writeSigningKey(path, private); err != nil {
			return err
		}
	}
	signer, err := transparency.NewSigner(transparency.LogName(s.installed.Issuer), private)
	if err != nil {
		return err
	}
	if err := s.changeKeys(&s.cfg, func(_ keyFiles, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		return trusted.AddLogKey(signer.LogKey)
	}); err != nil {
		return err
	}
	s.log.Info("made a key for the transparency log, and added it to the trusted keys; keep a copy", "file", path, "name", signer.Name)
	return s.loadKeys()
}

// loadLogKey reads the log's key. Without one that the trusted keys name, this process leaves the tree to others, and says so;
// nothing else depends on it.
func (s *service) loadLogKey() {
	if !s.cfg.keepsLog() {
		return
	}
	signer, err := s.cfg.logSigner(transparency.LogName(s.installed.Issuer), s.keys.Load().Trusted)
	s.tree.signer.Store(signer)
	if err != nil {
		s.log.Warn("this process does not work on the transparency log", "reason", err)
	}
}

// logSigner is the log's key, which the trusted keys must name.
func (c *Config) logSigner(name string, trusted *evidence.TrustedKeys) (*transparency.Signer, error) {
	text := []byte(c.LogKey)
	if path := c.forLog().signingKeyPath(); path != "" { // anew each time: it may have been rotated
		var err error
		if text, err = os.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no log key: set %sLOG_KEY or %sLOG_KEY_FILE, or make %s with: integrity keys rotate --transparency-log --stage, and --activate", variablePrefix, variablePrefix, path)
		}
		if err != nil {
			return nil, fmt.Errorf("log key: %w", err)
		}
	}
	private, err := evidence.ParseSignerPEM(text)
	if err != nil {
		return nil, fmt.Errorf("log key: %w", err)
	}
	signer, err := transparency.NewSigner(name, private)
	if err != nil {
		return nil, err
	}
	if !trusted.TrustsLogKey(signer.LogKey) {
		return nil, fmt.Errorf("the log key %s+%s is not among the logKeys of %s", signer.Name, signer.KeyHash, c.trustedKeysPath())
	}
	return signer, nil
}

// rotatedLogKey is the new key of the log and how far it has come.
type rotatedLogKey struct {
	evidence.LogKey
	Step string `json:"step"` // staged or activated
}

// rotateLogKey takes a step of bringing in another key of the log. Its name is that of the keys before it, or follows from the issuer.
func (a *app) rotateLogKey(cfg *Config, activate, asJSON bool) error {
	of := cfg.forLog()
	v := rotatedLogKey{Step: "staged"}
	if err := a.changeKeys(of, func(f keyFiles, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		name, err := cfg.logName(trusted)
		if err != nil {
			return nil, err
		}
		next, err := readSigner(f.next)
		switch {
		case err != nil:
			return nil, err
		case next == nil && activate:
			return nil, errors.New("no key is staged: integrity keys rotate --transparency-log --stage makes one")
		case next == nil:
			if next, err = evidence.GenerateSigner(a.random); err != nil {
				return nil, err
			}
			if err := f.writeNext(next); err != nil {
				return nil, err
			}
		}
		signer, err := transparency.NewSigner(name, next)
		if err != nil {
			return nil, err
		}
		v.LogKey = signer.LogKey
		if !activate {
			return trusted.AddLogKey(signer.LogKey)
		}
		v.Step = "activated"
		return trusted, of.activateLogKey(f, trusted, signer, next)
	}); err != nil {
		return err
	}
	next := "Send SIGHUP to every server, give the trusted-keys file to whoever pins it, and then: integrity keys rotate --transparency-log --activate\n"
	if activate {
		next = "Copy the key file to every server and send SIGHUP to each.\n"
	}
	return a.print(asJSON, v, fmt.Sprintf("%-10s    %s\n", v.Step, v.VerifierKey)+next)
}

// activateLogKey makes the staged key the log's. The private half of the one before is gone then: it has nothing more to sign.
func (c *Config) activateLogKey(f keyFiles, trusted *evidence.TrustedKeys, next *transparency.Signer, private *evidence.Signer) error {
	if !trusted.TrustsLogKey(next.LogKey) {
		return fmt.Errorf("the staged key %s is not among the logKeys of %s: integrity keys rotate --transparency-log --stage adds it", next.KeyHash, f.trusted)
	}
	if f.signing == "" {
		current, err := c.currentSigner()
		if err != nil {
			return err
		}
		if !named(current, private.Key().KeyID) {
			return fmt.Errorf("the log key comes from %sLOG_KEY: set that to the content of %s everywhere, restart the servers, and run this again", variablePrefix, f.next)
		}
		return removeKey(f.next)
	}
	if err := os.Rename(f.next, f.signing); err != nil {
		return fmt.Errorf("activate the staged key: %w", err)
	}
	return syncPath(filepath.Dir(f.signing))
}

// logName is that of the last of the log's keys, or else what the issuer gives.
func (c *Config) logName(trusted *evidence.TrustedKeys) (string, error) {
	if keys := trusted.LogKeys(); len(keys) > 0 {
		return keys[len(keys)-1].Name, nil
	}
	if c.Issuer == "" {
		return "", fmt.Errorf("%sISSUER (--issuer) is needed for the first key of the log: its name follows from the ledger's issuer, which integrity migrate prints", variablePrefix)
	}
	return transparency.LogName(c.Issuer), nil
}

// transparency looks at the log of a ledger.
func (d *doctor) transparency(ctx context.Context, pool *pgxpool.Pool, issuer string) {
	const check = "transparency"
	if !d.cfg.keepsLog() {
		d.ok(check, "no log is kept")
		return
	}
	status, err := transparency.ReadStatus(ctx, pool)
	if err != nil {
		d.fail(check, err.Error(), remedy(err))
		return
	}
	if trusted, err := readTrustedKeys(d.cfg.trustedKeysPath()); err == nil {
		signer, err := d.cfg.logSigner(transparency.LogName(issuer), trusted)
		if err == nil {
			var key transparency.KeyState
			if key, err = transparency.KnownKey(ctx, pool, signer.LogKey); err == nil && key.Barred {
				err = transparency.ErrBarred
			}
		}
		if err != nil {
			d.warn(check, err.Error(), "put the log key in place, and SIGHUP: nothing else depends on it")
		}
	}
	found := fmt.Sprintf("%d of %d events are published", status.Published, status.Events)
	switch {
	case status.Halted:
		d.warn(check, "the log stands still since the database was restored; "+found, "integrity log resume")
	case !status.Oldest.IsZero() && d.now().Sub(status.Oldest) > lateLog:
		d.warn(check, fmt.Sprintf("%s; the first of the others is %s old", found, d.now().Sub(status.Oldest).Round(time.Second)), "start the service, or look into its log")
	default:
		d.ok(check, "%s", found)
	}
}

// lateLog is how old an event may be that the transparency log lacks.
const lateLog = time.Minute
