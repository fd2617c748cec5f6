package evidence

import (
	"testing"
	"time"
)

// TestPublisherPayloadsAreWhole: a name stands beside its date and a domain, and a domain stands once.
func TestPublisherPayloadsAreWhole(t *testing.T) {
	name, at := "García", time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	one := PublisherDomain{Domain: "transportes.example", Method: "dns", CheckedAt: at}
	other := PublisherDomain{Domain: "garcia.example", Method: "dns", CheckedAt: at}
	again := PublisherDomain{Domain: "transportes.example", Method: "https", CheckedAt: at}
	for what, c := range map[string]struct {
		name    *string
		stated  *time.Time
		domains []PublisherDomain
		good    bool
	}{
		"nothing":               {nil, nil, []PublisherDomain{}, true},
		"domains":               {nil, nil, []PublisherDomain{one, other}, true},
		"a name":                {&name, &at, []PublisherDomain{one}, true},
		"a name without a date": {&name, nil, []PublisherDomain{one}, false},
		"a date without a name": {nil, &at, []PublisherDomain{one}, false},
		"no domain":             {&name, &at, []PublisherDomain{}, false},
		"a domain twice":        {nil, nil, []PublisherDomain{one, other, again}, false},
	} {
		_, err := ParsePublisherPayload(PublisherPayload{
			Issuer: "https://ledger.example", PublicID: "k3v7q2mzt5h4nw6cjd2ray3xpa", Domains: c.domains,
			Name: c.name, StatedAt: c.stated, ObservedAt: at,
		}.AppendCanonical(nil))
		if (err == nil) != c.good {
			t.Errorf("%s: %v", what, err)
		}
	}
}
