package operator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/digitorus/timestamp"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
)

// lateStamp is how many intervals a published event may wait for a token.
const lateStamp = 10

// StampView is how far an authority has stamped the log.
type StampView struct {
	Authority  string   `json:"authority"`
	Configured bool     `json:"configured"` // it is asked for more
	TreeSize   *int64   `json:"treeSize"`
	GenTime    *string  `json:"genTime"`
	AgeSeconds *float64 `json:"ageSeconds"`
	// it is asked, and an event that was published has waited for more than ten intervals
	Late bool `json:"late"`
}

// stampViews is the newest token of every authority, and what is to be printed of them.
func (a *app) stampViews(ctx context.Context, l *ledger.Opened) (views []StampView, text string, err error) {
	list, err := l.Config.TimestampAuthorityList()
	if err != nil {
		return nil, "", err
	}
	asked := map[string]bool{}
	var names []string
	for _, one := range list {
		asked[one.Name()], names = true, append(names, one.Name())
	}
	states, err := transparency.ReadStamps(ctx, l.Read, names)
	if err != nil {
		return nil, "", err
	}
	var b strings.Builder
	views = []StampView{}
	for _, s := range states {
		v := StampView{
			Authority: s.Authority, Configured: asked[s.Authority],
			Late: asked[s.Authority] && s.Lag(a.Now()) > lateStamp*l.Config.TimestampInterval,
		}
		if s.TreeSize == 0 {
			fmt.Fprintf(&b, "stamped    never by %s\n", s.Authority)
		} else {
			at, age := cli.TimeText(s.GenTime), s.Age(a.Now())
			v.TreeSize, v.GenTime, v.AgeSeconds = &s.TreeSize, &at, new(age.Seconds())
			fmt.Fprintf(&b, "stamped    %d leaves by %s, %s ago (%s)\n", s.TreeSize, s.Authority, age.Round(time.Second), at)
		}
		if v.Late {
			fmt.Fprintf(
				&b,
				"           WARNING: an event that was published has waited for its token for %s: integrity doctor, and the "+
					"log of the service, say why\n",
				s.Lag(a.Now()).Round(time.Second),
			)
		}
		views = append(views, v)
	}
	return views, b.String(), nil
}

// trustedOrNone are the trusted keys, and an empty set where there is no file.
func trustedOrNone(cfg *config.Config) (*evidence.TrustedKeys, error) {
	trusted, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath())
	if errors.Is(err, fs.ErrNotExist) {
		return new(evidence.TrustedKeys), nil
	}
	return trusted, err
}

// timestamps asks each authority for a token of nothing in particular.
func (d *doctor) timestamps(ctx context.Context) {
	const check = "timestamps"
	if !d.cfg.Transparency || d.cfg.TimestampAuthorities == "" {
		return
	}
	list, err := d.cfg.TimestampAuthorityList()
	if err != nil {
		d.fail(check, err.Error(), "correct the variable")
		return
	}
	trusted, err := trustedOrNone(&d.cfg)
	if err != nil {
		return // the check of the keys says so
	}
	for _, a := range list {
		pinned, known := trusted.Authority(a.Name())
		if !known {
			d.warn(
				check, a.Name()+" is not asked: no certificate is pinned under its name",
				"add its certificates to timestampAuthorities of "+d.cfg.TrustedKeysPath()+", then SIGHUP",
			)
			continue
		}
		der, _, err := a.Stamp(ctx, pinned, [32]byte([]byte(rand.Text()+rand.Text())), d.Now)
		if err != nil {
			d.warn(
				check, a.Name()+": "+err.Error(),
				"registrations go on, and their evidence gets a token once it stamps; where its certificate has changed, pin "+
					"the new one beside the old",
			)
			continue
		}
		ends := certificateEnd(der, pinned)
		d.first(check, fmt.Sprintf("%s stamps; its certificates are valid until %s", a.Name(), cli.TimeText(ends)),
			verdict{
				ends.Sub(d.Now()) < endingCertificate, stateWarn,
				fmt.Sprintf("%s stamps; a certificate of it ends at %s", a.Name(), cli.TimeText(ends)),
				"ask the authority for the next one, and pin it beside the old",
			})
	}
}

// certificateEnd is when the first certificate of a token ends, or the last of those that are pinned, whichever is
// earlier. The token was checked.
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
