package operator

import (
	"slices"

	"integrityledger/cmd/integrity/config"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/handlers/action"
)

// parties reads the parties that the service is configured with, as /trust shows them. ownKey is not nil if this
// installation's key as a witness cannot be read, so that no witness is known to be itself.
func parties(cfg *config.Config) (p action.Parties, ownKey, err error) {
	own, ownKey := cfg.WitnessSource().WitnessFingerprint()
	p.OwnKey = func() string { return own }
	if p.Witnesses, err = cfg.WitnessList(); err != nil {
		return p, ownKey, err
	}
	p.Authorities, err = cfg.TimestampAuthorityList()
	return p, ownKey, err
}

// onlyOperator reports whether the service keeps a transparency log for which no other party counts.
func onlyOperator(cfg *config.Config) (bool, error) {
	if !cfg.Transparency {
		return false, nil
	}
	p, _, err := parties(cfg)
	if err != nil {
		return false, err
	}
	trusted, err := trustedOrNone(cfg)
	return err == nil && p.Alone(trusted), err
}

// witnesses checks that a party besides the operator vouches for the log, and that verifiers count the witnesses.
func (d *doctor) witnesses() {
	const check = "witnesses"
	if !d.cfg.Transparency {
		return
	}
	p, ownKey, err := parties(&d.cfg)
	if err != nil {
		d.fail(check, said(err), say.Sentencef("correct the variable or the file"))
		return
	}
	if ownKey != nil {
		d.warn(check, said(ownKey), say.Sentencef("correct the variable"))
	}
	trusted, err := trustedOrNone(&d.cfg)
	if err != nil {
		return // the check of the keys reports this
	}
	if p.Alone(trusted) {
		d.warn(
			check,
			say.Sentencef("only this service vouches for its records: no witness other than itself and no timestamp authority "+
				"is both configured and pinned"),
			say.Sentencef("see the operators' manual, Independence: both take ten minutes"),
		)
	}
	for _, w := range p.Witnesses {
		found := say.Sentencef("%s is asked for cosignatures", w.Name())
		d.first(check, found, verdict{
			w.Key().FingerprintSHA256() == p.OwnKey(), stateWarn,
			say.Sentencef("%s is asked for cosignatures, but does not count: its key is this installation's own", w.Name()),
			say.Sentencef("ask the witness of another operator"),
		}, verdict{
			!slices.ContainsFunc(trusted.WitnessKeys(), func(k evidence.WitnessKey) bool { return k == w.Key() }), stateWarn,
			say.Sentencef("%s is asked for cosignatures, but verifiers do not count it: its key is not pinned", w.Name()),
			say.Sentencef("integrity keys add-witness %s, then SIGHUP", w.Key().VerifierKey),
		})
	}
}
