//go:build linux

package main

import (
	"sync/atomic"

	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers"
	"integrityledger/handlers/wire"
)

// independence is what the service says about its own keys. It is read again with the keys.
type independence struct {
	custody atomic.Pointer[wire.KeyCustody]
	witness atomic.Pointer[wire.OwnWitness] // nil: this installation is not a witness
	ownKey  atomic.Pointer[string]          // fingerprint of its key as a witness, under any name; empty if it has none
}

// loadCustody notes where the private keys are kept, and this installation's key as a witness.
func (s *service) loadCustody() {
	custody := wire.KeyCustody{SigningKey: s.cfg.SigningSource().Custody(), LogKey: wire.CustodyNone}
	if s.cfg.Transparency {
		custody.LogKey = s.cfg.LogSource().Custody()
	}
	s.custody.Store(&custody)
	var own *wire.OwnWitness
	if s.cfg.WitnessName != "" {
		var err error
		if s.database != nil {
			err = s.cfg.WitnessSource().EnsureWitnessKey(s.cfg.DataDir)
		}
		var signer *witness.Signer
		if err == nil {
			signer, err = s.cfg.WitnessSource().WitnessSigner(s.cfg.WitnessName)
		}
		if err != nil {
			s.log.Warn("the key of this installation as a witness is not published", "reason", err)
		} else {
			own = &wire.OwnWitness{
				Name: signer.Name, VerifierKey: signer.VerifierKey, FingerprintSHA256: signer.FingerprintSHA256(),
				Address: wire.OrNull(s.cfg.WitnessURL),
			}
		}
	}
	s.witness.Store(own)
	fingerprint, err := s.cfg.WitnessSource().WitnessFingerprint()
	if err != nil {
		s.log.Warn("a witness with this installation's own key cannot be told from others", "reason", err)
	}
	s.ownKey.Store(&fingerprint)
}

// parties are shown at /trust. The custody must be loaded.
func (s *service) parties() handlers.Parties {
	return handlers.Parties{
		Witnesses: s.tree.witnesses, Authorities: s.tree.authorities,
		Custody: func() wire.KeyCustody { return *s.custody.Load() },
		Witness: s.witness.Load,
		OwnKey:  func() string { return *s.ownKey.Load() },
	}
}

// warnOfIndependence warns at startup if no other party vouches for the records.
func (s *service) warnOfIndependence() {
	if s.cfg.Transparency && s.parties().Alone(s.keys.Load().Trusted) {
		s.log.Warn("only this service vouches for its records: no witness other than itself and no timestamp authority is " +
			"both configured and pinned; see " + s.cfg.BaseURL + "/en/developers/operating/independence")
	}
}
