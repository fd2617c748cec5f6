package operator

import (
	"slices"

	"integrityledger/cmd/integrity/config"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// onlyOperator reports whether the service keeps a transparency log for which no other party vouches.
func onlyOperator(cfg *config.Config) (bool, error) {
	witnesses, err := cfg.WitnessList()
	if err != nil {
		return false, err
	}
	authorities, err := cfg.TimestampAuthorityList()
	return cfg.Transparency && len(witnesses) == 0 && len(authorities) == 0, err
}

// witnesses checks that a party besides the operator vouches for the log, and that verifiers count the witnesses.
func (d *doctor) witnesses() {
	const check = "witnesses"
	if !d.cfg.Transparency {
		return
	}
	alone, err := onlyOperator(&d.cfg)
	if err != nil {
		d.fail(check, said(err), say.Sentencef("correct the variable or the file"))
		return
	}
	if alone {
		d.warn(
			check,
			say.Sentencef("only this service vouches for its records: no witness and no timestamp authority is configured"),
			say.Sentencef("see the operators' manual, Independence: both take ten minutes"),
		)
		return
	}
	trusted, err := trustedOrNone(&d.cfg)
	list, listErr := d.cfg.WitnessList()
	if err != nil || listErr != nil {
		return // the check of the keys reports the first, and the second was read above
	}
	for _, w := range list {
		found := say.Sentencef("%s is asked for cosignatures", w.Name())
		d.first(check, found, verdict{
			!slices.ContainsFunc(trusted.WitnessKeys(), func(k evidence.WitnessKey) bool { return k == w.Key() }), stateWarn,
			say.Sentencef("%s is asked for cosignatures, but verifiers do not count it: its key is not pinned", w.Name()),
			say.Sentencef("integrity keys add-witness %s, then SIGHUP", w.Key().VerifierKey),
		})
	}
}
