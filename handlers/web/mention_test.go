package web

import (
	"encoding/hex"
	"strings"
	"testing"
)

// People write links, codes and hashes in many ways. A text that only looks like one of them names nothing.
func TestReadMention(t *testing.T) {
	const id, sum = "c4uu6pim7jxrnpflt7zn56prji", "2c624232cdd221771294dfbb310aca000a0df6ac8b66b696d90ef06fdefb64a3"
	upper := strings.ToUpper
	groups := func(text, between string) string {
		var parts []string
		for ; len(text) > 4; text = text[4:] {
			parts = append(parts, text[:4])
		}
		return strings.Join(append(parts, text), between)
	}
	for text, want := range map[string]struct {
		kind Kind
		id   bool
		sum  bool
	}{
		"https://ledger.example/integrity/" + id:                                                 {Record, true, false},
		"HTTPS://LEDGER.EXAMPLE/INTEGRITY/" + upper(id) + ".":                                    {Record, true, false},
		"  ledger.example/en/certificates/" + id + "?lang=es ":                                   {Certificate, true, false},
		"(see https://ledger.example/integrity/" + id + "). Thanks, Ana":                         {Record, true, false},
		"Hola:\r\nhttps://ledger.example/integrity/" + id + "\r\nSaludos":                        {Record, true, false},
		"https://ledger.example/integrity/" + id[:9] + "=\n" + id[9:]:                            {"", false, false},
		"https://ledger.example/integrity/" + id[:9] + "\n" + id[9:] + "\n":                      {Record, true, false},
		"https://ledger.example/integrity/ " + groups(id, " ") + " gracias":                      {Record, true, false},
		"https://mail.example/?url=https%3A%2F%2Fledger.example%2Fintegrity%2F" + id + "&data=1": {Record, true, false},
		"https://ledger.example/integrity/" + id[:5] + "\u00ad\u200b" + id[5:]:                   {Record, true, false},
		id: {"", true, false}, upper(id) + ".": {"", true, false}, groups(upper(id), " "): {"", true, false},
		groups(id, "-"): {"", true, false}, "The code is " + id + ", I think.": {"", true, false},
		sum: {"", false, true}, upper(sum): {"", false, true}, sum + "  invoice.pdf": {"", false, true},
		"SHA256 (invoice.pdf) = " + sum: {"", false, true}, "sha256:" + sum: {"", false, true},
		groups(sum, " "): {"", false, true},
		"https://ledger.example/integrity/" + id + " SHA-256: " + sum: {Record, true, true},
		"": {}, "invoice.pdf": {}, id[:25]: {}, id + "a": {}, sum[1:]: {}, sum + "0": {}, sum + id: {},
		"https://ledger.example/integrity/" + id[:25]: {}, "https://ledger.example/integrity/" + id[:25] + "1": {},
		id[:25] + "b":               {}, // its last character is not canonical
		strings.Repeat("a/", 15000): {},
	} {
		m := ReadMention(text)
		if m.Kind != want.kind || (m.PublicID != nil) != want.id || (m.SHA256 != nil) != want.sum ||
			want.id && m.PublicID.String() != id || want.sum && hex.EncodeToString(m.SHA256[:]) != sum {
			t.Errorf("%.80q: %v", text, m)
		}
	}
}

// The host is that of the link, however people write it, and not that of a link around it. A link on several lines may
// have lost a part of it.
func TestHostOfAMention(t *testing.T) {
	const id = "c4uu6pim7jxrnpflt7zn56prji"
	for text, want := range map[string]string{
		"https://ledger.example/integrity/" + id:                                       "ledger.example",
		"HTTP://LEDGER.Example.:8443/EN/certificates/" + id:                            "ledger.example:8443",
		"(siehe:ledger.example/integrity/" + id:                                        "ledger.example",
		"https://ledger.example@other.example/integrity/" + id:                         "other.example",
		"https://mail.example/?u=https%3A%2F%2Fother.example%3A81%2Fintegrity%2F" + id: "other.example:81",
		"https://transportés.example/integrity/" + id:                                  "transportés.example",
		"https://ledger.example/integrity/" + id[:9] + "\n" + id[9:]:                   "", "/integrity/" + id: "", id: "",
	} {
		if m := ReadMention(text); m.PublicID == nil || m.Host != want {
			t.Errorf("%q names the host %q, not %q", text, m.Host, want)
		}
	}
}

func FuzzReadMention(f *testing.F) {
	f.Add("https://ledger.example/integrity/c4uu6pim7jxrnpflt7zn56prji.")
	f.Fuzz(func(t *testing.T, text string) {
		if m := ReadMention(text); m.PublicID == nil && m.Kind != "" {
			t.Errorf("%q has the kind %s of nothing", text, m.Kind)
		}
	})
}
