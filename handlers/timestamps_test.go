package handlers_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/stamptest"
)

const timestamps = "/api/public/log/timestamps"

// trusting pins log keys and authorities in addition to the service's keys.
func (s *service) trusting(signers []*transparency.Signer, authorities ...*stamptest.Authority) *evidence.TrustedKeys {
	s.t.Helper()
	trusted := s.Trusted
	for _, signer := range signers {
		key, err := evidence.ParseLogKey(signer.VerifierKey)
		check(s.t, err)
		trusted, err = trusted.AddLogKey(key)
		check(s.t, err)
	}
	for _, a := range authorities {
		var err error
		trusted, err = trusted.PutAuthority(a.Pinned())
		check(s.t, err)
	}
	return trusted
}

// stamped returns the evidence of a record with its timestamps, raw and parsed.
func (s *service) stamped(id, query string) (raw []byte, e evidence.Envelope) {
	s.t.Helper()
	a := s.get(integrity + "/records/" + id + "/evidence?timestamps=true" + query)
	if a.status != http.StatusOK {
		s.t.Fatalf("evidence with timestamps: %d %s", a.status, a.body)
	}
	e, err := evidence.ParseEnvelope(a.body)
	check(s.t, err)
	return a.body, e
}

// existed requires that OpenSSL and Verify accept every token of evidence.
func existed(
	t *testing.T, raw []byte, trusted *evidence.TrustedKeys, options evidence.Options,
	authorities ...*stamptest.Authority,
) evidence.Findings {
	t.Helper()
	options.RequireTimestamp = true
	f := evidence.Verify(raw, trusted, options)
	if f.Time != evidence.Valid || f.ExistedBefore == nil || f.ExitCode() != 0 {
		t.Fatalf("evidence with timestamps: %+v", f)
	}
	e, err := evidence.ParseEnvelope(raw)
	check(t, err)
	for _, of := range e.Timestamps {
		for _, token := range of.Tokens {
			der, err := base64.StdEncoding.DecodeString(token.Token)
			check(t, err)
			i := slices.IndexFunc(authorities, func(a *stamptest.Authority) bool { return a.Name == token.Authority })
			authorities[i].Verify([]byte(of.Checkpoint), der)
		}
	}
	return f
}

// A request for timestamps gets the earliest token of each authority. Other requests get the same evidence as always.
func TestEvidenceWithTimestamps(t *testing.T) {
	s := open(t, options{})
	alpha, beta := stamptest.New(t, "alpha"), stamptest.New(t, "beta")
	id := s.registered("a", 1, "one")
	sequence, _ := s.head()
	path := integrity + "/records/" + id + "/evidence"
	if raw, e := s.stamped(id, ""); e.Inclusion != nil || e.Timestamps != nil {
		t.Errorf("before the tree was begun: %s", raw)
	}
	signers := []*transparency.Signer{s.integrate(alpha)}
	newer := s.registered("b", 1, "two")
	if raw, e := s.stamped(newer, ""); e.Inclusion != nil || e.Timestamps != nil {
		t.Errorf("before the tree has taken it up: %s", raw)
	}

	trusted := s.trusting(signers, alpha, beta)
	s.hold()
	raw, e := s.stamped(id, "")
	f := existed(t, raw, trusted, evidence.Options{Now: s.Now(), RequireCurrent: true, RequireInclusion: true}, alpha)
	if len(e.Timestamps) != 1 || len(e.Timestamps[0].Tokens) != 1 || *f.TimeAuthority != "alpha" ||
		e.Timestamps[0].LeafIndex != e.Inclusion.LeafIndex {
		t.Errorf("timestamps: %+v", e.Timestamps)
	}
	without := s.get(path).body
	for _, spelled := range []string{"?timestamps=false", "?at=" + sequence + "&timestamps=false"} {
		want := s.get(path + strings.TrimSuffix(strings.ReplaceAll(spelled, "timestamps=false", ""), "&")).body
		if got := s.get(path + spelled).body; !bytes.Equal(got, want) || bytes.Contains(got, []byte(`"timestamps"`)) {
			t.Errorf("%s: %s\nmust be\n%s", spelled, got, want)
		}
	}
	at := bytes.Index(raw, []byte(`,"timestamps":`))
	if got := string(raw[:at]) + "}\n"; got != string(without) {
		t.Errorf("but for its timestamps it is\n%s\nand must be\n%s", got, without)
	}
	// The published file also pins them, for readers who trust the channel, and the console's download contains the
	// timestamps.
	keys := *s.keys.Load()
	keys.Trusted = trusted
	s.keys.Store(&keys)
	published, err := evidence.ParseTrustedKeys(s.public("/.well-known/integrity-trusted-keys.json").body)
	check(t, err)
	existed(t, raw, published, evidence.Options{Now: s.Now()}, alpha)
	if len(published.Authorities()) != 2 || len(published.LogKeys()) != 1 {
		t.Errorf("the published file has %d authorities", len(published.Authorities()))
	}
	history, _ := s.stamped(id, "&at="+sequence)
	if f := existed(t, history, trusted, evidence.Options{Now: s.Now()}, alpha); f.StatusAsOf != evidence.Valid {
		t.Errorf("the state as of a moment, with timestamps: %+v", f)
	}
	for _, wrong := range []string{
		"timestamps=", "timestamps=1", "timestamps=TRUE", "timestamps=yes", "timestamps=true&timestamps=true",
		"timestamps=true&timestamps=false",
	} {
		if e := s.get(path+"?"+wrong).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		); !strings.HasPrefix(pointers(e), "/timestamps ") {
			t.Errorf("%s: %v", wrong, e)
		}
	}

	// The tool gives the same answer.
	got, isError := s.tool(integrityMCP, s.org.Secret, "integrity_export", body{"publicId": id, "timestamps": true})
	text, err := json.Marshal(got)
	check(t, err)
	if f := evidence.Verify(text, trusted, evidence.Options{Now: s.Now()}); isError || f.Time != evidence.Valid {
		t.Errorf("the tool answers %s", text)
	}
	if got, isError := s.tool(
		integrityMCP, s.org.Secret, "integrity_export", body{"publicId": id, "timestamps": false},
	); isError || got["timestamps"] != nil {
		t.Errorf("the tool answers timestamps that were not asked for: %v", got)
	}
	s.toolRefuses(integrityMCP, s.org.Secret, "integrity_export", body{"publicId": id, "timestamps": "true"},
		domain.InvalidData)

	// The newer record is in a tree without timestamps; then another authority stamps it.
	signers = append(signers, s.integrate())
	if raw, e := s.stamped(newer, ""); e.Inclusion == nil || e.Timestamps != nil {
		t.Errorf("newer than the last token: %s", raw)
	}
	s.registered("c", 1, "three")
	trusted = s.trusting(append(signers, s.integrate(beta)), beta)
	raw, _ = s.stamped(newer, "")
	if f := existed(t, raw, trusted, evidence.Options{Now: s.Now()}, beta); *f.TimeAuthority != "beta" {
		t.Errorf("the newer record: %+v", f)
	}
	_, both := s.stamped(id, "")
	if len(both.Timestamps) != 2 || both.Timestamps[0].Checkpoint != e.Timestamps[0].Checkpoint ||
		both.Timestamps[0].TreeSize >= both.Timestamps[1].TreeSize ||
		both.Timestamps[1].Tokens[0].Authority != "beta" {
		t.Errorf("the earliest of both authorities: %+v", both.Timestamps)
	}

	// Evidence does not include tokens of another history, and keeps its proof.
	s.owner(
		`UPDATE log_timestamps SET checkpoint = (SELECT checkpoint FROM log_timestamps WHERE authority = 'beta' ORDER BY tree_size DESC LIMIT 1) WHERE authority = 'alpha'`,
	)
	if raw, e := s.stamped(id, ""); e.Inclusion == nil || e.Timestamps != nil {
		t.Errorf("with tokens of another tree: %s", raw)
	}
	s.logged("evidence made without timestamps")
}

// The newest tokens are left out if evidence would be too long for verifiers.
func TestEvidenceFitsVerifiers(t *testing.T) {
	s := open(t, options{})
	id := s.registered("a", 1, "one")
	for i := range 4 {
		s.batch(i)
		s.integrate() // so that no smaller tree is stamped
		s.integrate(stamptest.New(t, fmt.Sprint("authority-", i)))
	}
	s.hold()
	const token = 8 << 10
	s.owner(fmt.Sprintf(`UPDATE log_timestamps SET token = decode(repeat('00', %d), 'hex')`, token))
	raw, e := s.stamped(id, "")
	if len(e.Timestamps) != 4 {
		t.Fatalf("%d tokens of 8 KiB", len(e.Timestamps))
	}
	// Witnesses make the evidence longer: up to the limit, and by one byte more.
	room := evidence.MaxReceiptBytes - len(raw)
	for more, want := range map[int]int{
		room: 4, room + 1: 3, room + base64.StdEncoding.EncodedLen(2*token): 2,
		room + base64.StdEncoding.EncodedLen(4*token): 0,
	} {
		s.owner(`DELETE FROM transparency_cosignatures`,
			fmt.Sprintf(
				`INSERT INTO transparency_cosignatures SELECT 'w', size, repeat('w', %d) FROM transparency_checkpoint`, more,
			))
		raw, e := s.stamped(id, "")
		if len(e.Timestamps) != want || len(raw) > evidence.MaxReceiptBytes || e.Inclusion == nil {
			t.Errorf("%d bytes more: %d bytes with %d tokens, must be %d", more, len(raw), len(e.Timestamps), want)
		}
		for i, of := range e.Timestamps {
			if of.Tokens[0].Authority != fmt.Sprint("authority-", i) {
				t.Errorf("token %d is of %s", i, of.Tokens[0].Authority)
			}
		}
	}
}

// Pages have whole tree sizes and each token once, and are cached only if others follow.
func TestLogTimestamps(t *testing.T) {
	s := open(t, options{})
	type page struct {
		Timestamps []struct {
			TreeSize                       int64
			Authority, GenTime, Checkpoint string
			Token                          []byte
		}
		HasMore bool
	}
	read := func(query string, header ...string) (p page, a answer) {
		t.Helper()
		a = s.send(http.MethodGet, timestamps+query, "", nil, header...)
		if a.status == http.StatusOK {
			check(t, json.Unmarshal(a.body, &p))
		}
		return p, a
	}
	if p, a := read(""); a.status != http.StatusOK || len(p.Timestamps) != 0 || p.HasMore ||
		string(a.body) != `{"timestamps":[],"hasMore":false}`+"\n" {
		t.Errorf("before the first token: %d %s", a.status, a.body)
	}
	alpha := stamptest.New(t, "alpha")
	s.registered("a", 1, "one")
	s.integrate(alpha)
	p, a := read("")
	if len(p.Timestamps) != 1 || p.HasMore || a.header.Get("Cache-Control") != "no-store" ||
		a.header.Get("Access-Control-Allow-Origin") != "*" || a.header.Get("RateLimit") == "" ||
		a.header.Get("Content-Type") != "application/json" {
		t.Fatalf("one token: %v %s", a.header, a.body)
	}
	one := p.Timestamps[0]
	alpha.Verify([]byte(one.Checkpoint), one.Token)
	stored, err := (&transparency.Reader{Pool: s.Pool}).Timestamps(context.Background(), 0, 1)
	check(t, err)
	if one.TreeSize != stored[0].TreeSize || one.Authority != "alpha" ||
		one.GenTime != evidence.FormatTime(stored[0].GenTime) {
		t.Errorf("%+v, stored as %+v", one, stored[0])
	}
	if _, again := read("", "If-None-Match", a.header.Get("Etag")); again.status != http.StatusNotModified ||
		len(again.body) != 0 {
		t.Errorf("the same page: %d", again.status)
	}

	// Three authorities that do not all stamp every size: a page of about twenty tokens ends with a complete size.
	s.owner(
		`INSERT INTO log_timestamps SELECT 1000 + n, a, gen_time, checkpoint, token FROM log_timestamps, generate_series(1, 23) n, unnest(ARRAY['alpha', 'b', 'c']) a WHERE n % 5 < 3 OR a = 'alpha'`,
	)
	var sizes, lengths []int64
	seen := map[string]bool{}
	for after, more := int64(0), true; more; {
		p, a := read(fmt.Sprint("?after=", after))
		lengths, more = append(lengths, int64(len(p.Timestamps))), p.HasMore
		if want := map[bool]string{true: "public, max-age=300", false: "no-store"}[more]; a.header.Get("Cache-Control") !=
			want {
			t.Errorf("after %d: %s, must be %s", after, a.header.Get("Cache-Control"), want)
		}
		for _, one := range p.Timestamps {
			key := fmt.Sprintf("%08d %s", one.TreeSize, one.Authority)
			if seen[key] || one.TreeSize <= after {
				t.Errorf("after %d: %s", after, key)
			}
			seen[key], sizes = true, append(sizes, one.TreeSize)
		}
		if last := p.Timestamps[len(p.Timestamps)-1].TreeSize; last > after {
			after = last
		} else {
			t.Fatalf("after %d the last is %d", after, last)
		}
	}
	stored, err = (&transparency.Reader{Pool: s.Pool}).Timestamps(context.Background(), 0, 1000)
	check(t, err)
	if n := len(stored); len(seen) != n || !slices.IsSorted(sizes) || slices.Max(lengths) > 22 || len(lengths) < 3 {
		t.Errorf("%d of %d tokens on pages of %v", len(seen), n, lengths)
	}
	if p, _ := read("?after=9007199254740991"); len(p.Timestamps) != 0 || p.HasMore {
		t.Errorf("after all: %+v", p)
	}
	// A full last page may still grow.
	s.owner(
		`DELETE FROM log_timestamps WHERE tree_size > 1000`,
		`INSERT INTO log_timestamps SELECT 1000 + n, authority, gen_time, checkpoint, token FROM log_timestamps, generate_series(1, 20) n`,
	)
	if p, a := read("?after=1000"); len(p.Timestamps) != 20 || p.HasMore || a.header.Get("Cache-Control") != "no-store" {
		t.Errorf("a full page, the newest: %d, %v, %v", len(p.Timestamps), p.HasMore, a.header)
	}

	for _, wrong := range []string{
		"after=", "after=-1", "after=01", "after=x", "after=9007199254740992", "after=1&after=2",
	} {
		if e := s.public(timestamps+"?"+wrong).refuses(
			http.StatusUnprocessableEntity, domain.InvalidData,
		); !strings.HasPrefix(pointers(e), "/after ") {
			t.Errorf("%s: %v", wrong, e)
		}
	}
	if e := s.public(timestamps+"?limit=5").refuses(
		http.StatusUnprocessableEntity, domain.InvalidData,
	); !strings.HasPrefix(pointers(e), "/limit ") {
		t.Errorf("limit: %v", e)
	}
	if head := s.send(http.MethodHead, timestamps, "", nil); head.status != http.StatusOK || len(head.body) != 0 {
		t.Errorf("HEAD: %d", head.status)
	}
	if preflight := s.send(http.MethodOptions, timestamps, "", nil); preflight.status != http.StatusNoContent ||
		preflight.header.Get("Allow") != "GET, HEAD, OPTIONS" {
		t.Errorf("OPTIONS: %d %v", preflight.status, preflight.header)
	}
}

// A thousand records need one request to the authority, and every record is proved.
func TestAMinuteSharesAToken(t *testing.T) {
	t.Parallel()
	s := open(t, options{})
	alpha := stamptest.New(t, "alpha")
	var ids []string
	for i := range 2 {
		var declarations []any
		for version := range 500 {
			declarations = append(declarations, declaration(fmt.Sprint("minute-", i), version+1, "x"))
		}
		for _, result := range s.sendBatch(declarations...) {
			ids = append(ids, result.Data.PublicID)
		}
	}
	trusted, shared := s.trusting([]*transparency.Signer{s.integrate()}, alpha), ""
	s.integrate(alpha)
	for i, id := range ids {
		raw, e := s.stamped(id, "")
		if shared == "" {
			shared = e.Timestamps[0].Tokens[0].Token
		}
		if len(e.Timestamps) != 1 || e.Timestamps[0].Tokens[0].Token != shared {
			t.Fatalf("record %d has a token of its own", i)
		}
		if f := evidence.Verify(raw, trusted, evidence.Options{Now: s.Now(), RequireTimestamp: true}); f.ExitCode() != 0 {
			t.Fatalf("record %d: %+v", i, f)
		}
	}
	if alpha.Asked() != 1 {
		t.Errorf("the authority was asked %d times", alpha.Asked())
	}
	for _, id := range []string{ids[0], ids[499], ids[999]} {
		raw, _ := s.stamped(id, "")
		s.othersVerify(raw, trusted, *existed(t, raw, trusted, evidence.Options{Now: s.Now()}, alpha).ExistedBefore)
	}
}

// othersVerify requires that the JavaScript and Python verifiers reach the same findings as this program.
func (s *service) othersVerify(raw []byte, trusted *evidence.TrustedKeys, existedBefore string) {
	s.t.Helper()
	needsNPM(s.t, "the verifier in Node.js")
	keys, err := trusted.Marshal()
	check(s.t, err)
	file, err := json.Marshal(body{"trustedKeys": body{"k": string(keys)}, "vectors": []body{{
		"name": "stamped", "receipt": string(raw), "receiptBase64": nil, "documentBase64": nil, "trustedKeys": "k",
		"now": evidence.FormatTime(s.Now()), "requireTimestamp": true,
	}}})
	check(s.t, err)
	for _, v := range inNode(s.t, file) {
		if v.ExitCode != 0 || v.Findings["time"] != "valid" || v.Findings["existedBefore"] != existedBefore {
			s.t.Errorf("in Node.js: %d %v", v.ExitCode, v.Findings)
		}
	}
	evidenceFile, keysFile := filepath.Join(s.t.TempDir(), "evidence"), filepath.Join(s.t.TempDir(), "keys")
	check(s.t, errors.Join(os.WriteFile(evidenceFile, raw, 0o600), os.WriteFile(keysFile, keys, 0o600)))
	out, err := python(s.t, nil, "verify_integrity.py", evidenceFile, keysFile, "--require-timestamp").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "existed before "+existedBefore) {
		s.t.Errorf("in Python: %v\n%s", err, out)
	}
}
