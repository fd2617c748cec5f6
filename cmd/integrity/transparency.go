package main

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/cmd/integrity/ledger"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
)

// tree is the process's part of the transparency log; all of it is nil without a log.
type tree struct {
	write, read *pgxpool.Pool
	keeper      *transparency.Keeper
	reader      *transparency.Reader
	signer      atomic.Pointer[transparency.Signer] // nil: this process leaves the tree to others
}

// openTree makes what keeps the transparency log and what answers from it.
func (s *service) openTree(ctx context.Context) error {
	if !s.cfg.Transparency {
		return nil
	}
	witnesses, err := s.cfg.WitnessList()
	if err != nil {
		return err
	}
	if s.database != nil {
		if err := s.ensureLogKey(); err != nil {
			return err
		}
	}
	s.loadLogKey()
	if s.tree.write, err = s.primary.ConsumerPool(ctx, ledger.LogConns); err != nil {
		return err
	}
	if s.tree.read, err = s.primary.ReadPool(ctx, ledger.ProofConns); err != nil {
		return err
	}
	s.tree.reader = &transparency.Reader{Pool: s.tree.read}
	s.tree.keeper, err = transparency.New(transparency.Config{
		Pool: s.tree.write, Signer: s.tree.signer.Load, Witnesses: witnesses, Now: s.Now, Log: s.log,
	})
	return err
}

// ensureLogKey makes the log's key for an embedded ledger whose trusted keys name none yet. The caller holds the data
// directory's lock, so two starts cannot both make one. What a crash leaves, a key that is not trusted, is taken up again.
func (s *service) ensureLogKey() error {
	if s.cfg.TransparencyKey != "" || s.cfg.TrustedKeys != "" || len(s.keys.Load().Trusted.LogKeys()) > 0 {
		return nil
	}
	path := s.cfg.InDataDir(keyfiles.LogKeyFile)
	private, err := keyfiles.ReadSigner(path)
	if err != nil {
		return err
	}
	if private == nil {
		private = evidence.GenerateSigner()
		if err := keyfiles.WriteSigningKey(path, private); err != nil {
			return err
		}
	}
	signer, err := transparency.NewSigner(transparency.LogName(s.installed.Issuer), private)
	if err != nil {
		return err
	}
	if err := s.cfg.SigningSource().Change(func(_ keyfiles.Files, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
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
	if !s.cfg.Transparency {
		return
	}
	signer, err := s.cfg.LogSource().LogSigner(transparency.LogName(s.installed.Issuer), s.keys.Load().Trusted)
	s.tree.signer.Store(signer)
	if err != nil {
		s.log.Warn("this process does not work on the transparency log", "reason", err)
	}
}
