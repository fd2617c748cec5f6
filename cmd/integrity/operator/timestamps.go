package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"time"

	"github.com/digitorus/timestamp"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
)

// lateStamp is how many intervals a published event may wait for a token.
const lateStamp = 10

// StampView is how far an authority has stamped the log.
type StampView struct {
	Authority  string   `json:"authority"`
	Configured bool     `json:"configured"` // the service requests tokens from this authority
	TreeSize   *int64   `json:"treeSize"`
	GenTime    *string  `json:"genTime"`
	AgeSeconds *float64 `json:"ageSeconds"`
	// Late means that the authority is configured, and that a published event has waited for more than ten intervals.
	Late bool `json:"late"`
}

// stampViews returns the newest token of every authority, and the same as text.
func (a *app) stampViews(ctx context.Context, l *ledger.Opened) (views []StampView, lines say.Phrase, err error) {
	list, err := l.Config.TimestampAuthorityList()
	if err != nil {
		return nil, nil, err
	}
	asked := map[string]bool{}
	var names []string
	for _, one := range list {
		asked[one.Name()], names = true, append(names, one.Name())
	}
	states, err := transparency.ReadStamps(ctx, l.Read, names)
	if err != nil {
		return nil, nil, err
	}
	var b text
	views = []StampView{}
	for _, s := range states {
		v := StampView{
			Authority: s.Authority, Configured: asked[s.Authority],
			Late: asked[s.Authority] && s.Lag(a.Now()) > lateStamp*l.Config.TimestampInterval,
		}
		if s.TreeSize == 0 {
			b.Sayf("stamped    never by %s\n", s.Authority)
		} else {
			at, age := cli.TimeText(s.GenTime), s.Age(a.Now())
			v.TreeSize, v.GenTime, v.AgeSeconds = &s.TreeSize, &at, new(age.Seconds())
			b.Sayf("stamped    %d leaves by %s, %s ago (%s)\n", s.TreeSize, s.Authority, age.Round(time.Second), at)
		}
		if v.Late {
			b.Sayf(
				"           WARNING: a published event has waited %s for its token: integrity doctor and the "+
					"service's log show why\n",
				s.Lag(a.Now()).Round(time.Second),
			)
		}
		views = append(views, v)
	}
	return views, b, nil
}

// trustedOrNone reads the trusted keys, or returns an empty set if the file does not exist.
func trustedOrNone(cfg *config.Config) (*evidence.TrustedKeys, error) {
	trusted, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath())
	if errors.Is(err, fs.ErrNotExist) {
		return new(evidence.TrustedKeys), nil
	}
	return trusted, err
}

// timestamps requests a test token from each authority.
func (d *doctor) timestamps(ctx context.Context) {
	const check = "timestamps"
	if !d.cfg.Transparency || d.cfg.TimestampAuthorities == "" {
		return
	}
	list, err := d.cfg.TimestampAuthorityList()
	if err != nil {
		d.fail(check, said(err), say.Sentencef("correct the variable"))
		return
	}
	trusted, err := trustedOrNone(&d.cfg)
	if err != nil {
		return // the check of the keys reports this
	}
	for _, a := range list {
		pinned, known := trusted.Authority(a.Name())
		if !known {
			d.warn(
				check, say.Sentencef("%s is not used: no certificate is pinned under its name", a.Name()),
				say.Sentencef("add its certificates to timestampAuthorities of %s, then SIGHUP", d.cfg.TrustedKeysPath()),
			)
			continue
		}
		der, _, err := a.Stamp(ctx, pinned, [32]byte([]byte(rand.Text()+rand.Text())), d.Now)
		if err != nil {
			d.warn(
				check, say.Sentencef("%s: %v", a.Name(), err),
				say.Sentencef(
					"registrations still work, and their evidence gets a token later; if the authority's certificate has changed, pin the new one in addition to the old",
				),
			)
			continue
		}
		ends := certificateEnd(der, pinned)
		d.first(check, say.Sentencef("%s stamps; its certificates are valid until %s", a.Name(), cli.TimeText(ends)),
			verdict{
				ends.Sub(d.Now()) < endingCertificate, stateWarn,
				say.Sentencef("%s stamps; one of its certificates expires at %s", a.Name(), cli.TimeText(ends)),
				say.Sentencef("get the next one from the authority, and pin it in addition to the old"),
			})
	}
}

// certificateEnd returns the earlier of two times: when the first certificate in a token expires, and when the last
// pinned certificate expires. The token must have been verified.
func certificateEnd(der []byte, pinned evidence.Authority) (ends time.Time) {
	for _, c := range pinned.Anchors() {
		if c.NotAfter.After(ends) {
			ends = c.NotAfter
		}
	}
	if token, err := timestamp.Parse(der); err == nil {
		for _, c := range token.Certificates {
			if c.NotAfter.Before(ends) {
				ends = c.NotAfter
			}
		}
	}
	return ends
}
