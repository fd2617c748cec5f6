package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/timestamp"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/domain/evidence"
	"integrityledger/handlers/client/monitor"
	"integrityledger/handlers/client/monitor/monitortest"
	"integrityledger/handlers/wire"
)

// cosigner is a witness that signs anything a test requests.
type cosigner struct {
	evidence.WitnessKey
	private ed25519.PrivateKey
}

func newCosigner(t *testing.T, name string) cosigner {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := evidence.NewWitnessKey(name, public)
	if err != nil {
		t.Fatal(err)
	}
	return cosigner{key, private}
}

func (c cosigner) line(note string, at time.Time) string {
	text, _, _ := strings.Cut(note, "\n\n")
	line, _ := hex.DecodeString(c.KeyHash) // as in evidence
	line = binary.BigEndian.AppendUint64(line, uint64(at.Unix()))
	line = append(line, ed25519.Sign(c.private, fmt.Appendf(nil, "cosignature/v1\ntime %d\n%s\n", at.Unix(), text))...)
	return "— " + c.Name + " " + base64.StdEncoding.EncodeToString(line) + "\n"
}

// stamps is a timestamp authority with a pinned certificate.
type stamps struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newStamps(t *testing.T) *stamps {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	usage, err := asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}})
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tsa"}, NotBefore: time.Now().Add(-24 * time.Hour),
		NotAfter: time.Now().Add(24 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &stamps{t, key, cert}
}

// over returns an entry of the service's list of tokens.
func (s *stamps) over(authority string, size int64, note string, at time.Time) wire.LogTimestamp {
	s.t.Helper()
	imprint := sha256.Sum256([]byte(note))
	der, err := (&timestamp.Timestamp{
		HashAlgorithm: crypto.SHA256, HashedMessage: imprint[:], Time: at, Policy: asn1.ObjectIdentifier{1, 2, 3},
		AddTSACertificate: true,
	}).CreateResponseWithOpts(s.cert, s.key, crypto.SHA256)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := timestamp.ParseResponse(der)
	if err != nil {
		s.t.Fatal(err)
	}
	return wire.LogTimestamp{
		TreeSize: size, Authority: authority, GenTime: evidence.FormatTime(response.Time), Checkpoint: note,
		Token: response.RawToken,
	}
}

// trusts adds pins with add.
func (w *watchedLog) trusts(add func(*evidence.TrustedKeys) (*evidence.TrustedKeys, error)) {
	w.t.Helper()
	var err error
	if w.trusted, err = add(w.trusted); err != nil {
		w.t.Fatal(err)
	}
	text, err := w.trusted.Marshal()
	if err != nil {
		w.t.Fatal(err)
	}
	write(w.t, w.args[3], string(text))
}

// TestMonitorCountsWitnesses: only valid cosignatures of pinned witnesses count. Too few are a separate answer, and no
// alarm.
func TestMonitorCountsWitnesses(t *testing.T) {
	w := newWatchedLog(t, 3)
	a, b, stranger := newCosigner(t, "w.example/a"), newCosigner(t, "w.example/b"), newCosigner(t, "w.example/x")
	for _, c := range []cosigner{a, b} {
		w.trusts(func(k *evidence.TrustedKeys) (*evidence.TrustedKeys, error) { return k.AddWitnessKey(c.WitnessKey) })
	}
	now := time.Now()
	old := w.Checkpoint()
	w.Grow(5)
	note := w.Checkpoint()
	forged := a
	forged.private = stranger.private
	for _, step := range []struct {
		name  string
		lines string
		want  []string
	}{
		{"none", "", nil},
		{"one", a.line(note, now), []string{a.Name}},
		{"a stranger", a.line(note, now) + stranger.line(note, now), []string{a.Name}},
		{"one twice", a.line(note, now) + a.line(note, now), []string{a.Name}},
		{"both", b.line(note, now) + a.line(note, now), []string{a.Name, b.Name}},
		{"a stale size", a.line(old, now) + b.line(note, now), []string{b.Name}},
		{"another's key", forged.line(note, now) + b.line(note, now), []string{b.Name}},
		{"a day ahead", a.line(note, now.Add(24*time.Hour)), nil},
	} {
		asked := 0
		w.Answer(func(rw http.ResponseWriter, r *http.Request) {
			if !strings.HasSuffix(r.URL.Path, "/checkpoint") {
				w.Serve(rw, r)
				return
			}
			asked++
			_, _ = rw.Write([]byte(note + step.lines))
		})
		var printed struct {
			Witnessed   []string
			WitnessKeys int
		}
		r := w.run("--json")
		if err := json.Unmarshal([]byte(r.out), &printed); err != nil || r.code != cli.ExitOK || printed.WitnessKeys != 2 ||
			fmt.Sprint(printed.Witnessed) != fmt.Sprint(append([]string{}, step.want...)) {
			t.Errorf("%s: %v, %+v", step.name, err, r)
		}
		if asked != 1 {
			t.Errorf("%s: asked %d times, where nothing is required", step.name, asked)
		}
		if len(step.want) != 1 {
			continue
		}
		if r := w.run("--require-witnesses", "1"); r.code != cli.ExitOK || !strings.Contains(r.out, "witnessed: 1 of 2") {
			t.Errorf("%s: %+v", step.name, r)
		}
	}
	if r := w.run("--require-witnesses", "1"); r.code != cli.ExitNegative ||
		!strings.Contains(r.errs, "TOO FEW WITNESSES: only 0 of the 1") || strings.Contains(r.errs, "ALARM") ||
		len(w.alarms()) != 0 {
		t.Errorf("%+v", r)
	}
	asked := 0 // a witness cosigns the checkpoint later
	w.Answer(func(rw http.ResponseWriter, r *http.Request) {
		if asked++; asked < 2 {
			w.Serve(rw, r)
			return
		}
		_, _ = rw.Write([]byte(note + a.line(note, now)))
	})
	if r := w.run("--require-witnesses", "1"); r.code != cli.ExitOK {
		t.Errorf("%+v", r)
	}
	if r := w.run("--require-witnesses", "3"); r.code != cli.ExitFailed || !strings.Contains(r.errs, "from 0 to 2") {
		t.Errorf("%+v", r)
	}
}

// TestMonitorChecksTimestamps: the log must contain each checkpoint that a pinned authority has stamped. An invalid
// token is an alarm; a token that no pinned authority vouches for is skipped.
func TestMonitorChecksTimestamps(t *testing.T) {
	w := newWatchedLog(t, 3)
	tsa, other := newStamps(t), newStamps(t)
	w.trusts(func(k *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		text, err := k.Marshal()
		if err != nil {
			return nil, err
		}
		var members map[string]any
		if err := json.Unmarshal(text, &members); err != nil {
			return nil, err
		}
		members["timestampAuthorities"] = []any{map[string]any{"name": "TSA", "certificates": [][]byte{tsa.cert.Raw}}}
		if text, err = json.Marshal(members); err != nil {
			return nil, err
		}
		return evidence.ParseTrustedKeys(text)
	})
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	var tokens []wire.LogTimestamp
	asked := []string{}
	w.Answer(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/timestamps") {
			w.Serve(rw, r)
			return
		}
		after := r.URL.Query().Get("after")
		asked = append(asked, after)
		page := wire.LogTimestamps{Timestamps: []wire.LogTimestamp{}}
		for i, token := range tokens { // one token per page
			var least int64
			_, _ = fmt.Sscan(after, &least)
			if token.TreeSize > least {
				page.Timestamps, page.HasMore = tokens[i:i+1], i+1 < len(tokens)
				break
			}
		}
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(page)
	})
	if r := w.run(); r.code != cli.ExitOK || !strings.Contains(r.out, "0 more stamped checkpoints") {
		t.Fatalf("%+v", r)
	}
	first := w.Checkpoint()
	w.Grow(5)
	second := w.Checkpoint()
	w.Grow(9)
	third := w.Checkpoint()
	tokens = []wire.LogTimestamp{
		tsa.over("TSA", 3, first, at.Add(-time.Minute)), tsa.over("TSA", 5, second, at),
		other.over("TSA", 9, third, at.Add(time.Minute)),
	}
	var printed struct {
		Timestamps struct {
			Checked, Passed int
			StampedSize     int64
			Newest          map[string]string
		}
	}
	r := w.run("--json")
	if err := json.Unmarshal([]byte(r.out), &printed); err != nil || r.code != cli.ExitOK ||
		printed.Timestamps.Checked != 2 || printed.Timestamps.Passed != 1 ||
		printed.Timestamps.StampedSize != 9 || printed.Timestamps.Newest["TSA"] != evidence.FormatTime(at) {
		t.Fatalf("%v, %+v", err, r)
	}
	asked = nil
	if r := w.run(); r.code != cli.ExitOK || !strings.Contains(r.out, "0 more stamped checkpoints, the newest 1h") ||
		!strings.Contains(r.out, "old according to TSA") || fmt.Sprint(asked) != "[9]" {
		t.Errorf("%+v, asked after %v", r, asked)
	}

	// The log lacks a checkpoint that a pinned authority has stamped: history was rewritten, and the token is kept as
	// proof.
	w.Edit(func(entries []string) []string {
		for len(entries) < 12 {
			entries = append(entries, "elsewhere")
		}
		return entries
	})
	stamped := w.Checkpoint()
	w.Edit(func(entries []string) []string { return entries[:9] })
	w.Grow(14)
	tokens = append(tokens, tsa.over("TSA", 12, stamped, at.Add(2*time.Minute)))
	if r := w.run("--json"); r.code != cli.ExitNegative || !strings.Contains(r.errs, "ALARM: rewritten") {
		t.Errorf("%+v", r)
	}
	var alarm monitor.AlarmError
	if files := w.alarms(); len(files) != 1 {
		t.Fatalf("alarms: %v", files)
	} else if err := json.Unmarshal([]byte(w.file(files[0])), &alarm); err != nil || alarm.Known != stamped ||
		string(alarm.Token) != string(tokens[3].Token) || !strings.Contains(alarm.KnownFrom, "existed before") {
		t.Errorf("%v, %+v", err, alarm)
	}
	// A stamped checkpoint is larger than the log: the log was set back.
	w.Edit(func(entries []string) []string { return append(entries, "a", "b") })
	ahead := w.Checkpoint()
	w.Edit(func(entries []string) []string { return entries[:14] })
	good := w.Checkpoint()
	for _, step := range []struct {
		name  string
		token wire.LogTimestamp
		code  int
		says  string
	}{
		{"shrunk", tsa.over("TSA", 16, ahead, at), cli.ExitNegative, "ALARM: shrunk"},
		{"another imprint", func() wire.LogTimestamp {
			token := tsa.over("TSA", 14, good, at)
			token.Token = tsa.over("TSA", 14, second, at).Token
			return token
		}(), cli.ExitNegative, "ALARM: bad-timestamp"},
		{"another size", tsa.over("TSA", 13, good, at), cli.ExitNegative, "ALARM: bad-timestamp"},
		{"the future", tsa.over("TSA", 14, good, time.Now().Add(time.Hour)), cli.ExitNegative, "ALARM: bad-timestamp"},
		{"nobody pinned", tsa.over("Another", 14, good, at), cli.ExitOK, ""},
		{"good", tsa.over("TSA", 14, good, at), cli.ExitOK, ""},
	} {
		tokens = append(tokens[:3:3], step.token)
		if r := w.run(); r.code != step.code || !strings.Contains(r.errs, step.says) {
			t.Errorf("%s: %+v", step.name, r)
		}
	}
}

// TestMonitorWithEndlessTimestamps: a log that always has another page of tokens does not block the monitor, and the
// checked tokens are remembered.
func TestMonitorWithEndlessTimestamps(t *testing.T) {
	w := newWatchedLog(t, 3)
	tsa := newStamps(t)
	w.trusts(func(k *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		authority, err := evidence.NewAuthority("TSA", [][]byte{tsa.cert.Raw})
		if err != nil {
			return nil, err
		}
		return k.PutAuthority(authority)
	})
	asked := 0
	var after int64
	w.Answer(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/timestamps") {
			w.Serve(rw, r)
			return
		}
		asked++
		_, _ = fmt.Sscan(r.URL.Query().Get("after"), &after)
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(wire.LogTimestamps{
			HasMore: true, Timestamps: []wire.LogTimestamp{{TreeSize: after + 1, Authority: "Another"}},
		})
	})
	for run := 1; run <= 2; run++ {
		asked = 0
		if r := w.run(); r.code != cli.ExitOK || !strings.Contains(r.out, "more tokens remain for the next check") ||
			asked != 100 || after != int64(100*run-1) {
			t.Fatalf("run %d: %+v, asked %d times, at last after %d", run, r, asked, after)
		}
	}
}

// TestMonitorAfterALogKeyWasRevoked: the log must be consistent with the checkpoint under its former key, now more than
// ever.
func TestMonitorAfterALogKeyWasRevoked(t *testing.T) {
	w := newWatchedLog(t, 3)
	if r := w.run(); r.code != cli.ExitOK {
		t.Fatalf("%+v", r)
	}
	next := monitortest.New("ledger.example/log", 2)
	next.Grow(5)
	w.Answer(next.Serve)
	w.trusts(func(k *evidence.TrustedKeys) (*evidence.TrustedKeys, error) { return k.AddLogKey(next.Key()) })
	w.trusts(func(k *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		return k.Revoke(w.Key().KeyID(), evidence.ReasonCompromised, evidence.FormatTime(time.Now().Add(-time.Hour)))
	})
	if r := w.run(); r.code != cli.ExitOK || !strings.Contains(r.out, "consistent with the last checkpoint") {
		t.Errorf("%+v", r)
	}
	w.keeps(next.Checkpoint())

	// A thief of the key cannot recreate an earlier stamp by a pinned authority.
	tsa := newStamps(t)
	authority, err := evidence.NewAuthority("TSA", [][]byte{tsa.cert.Raw})
	if err != nil {
		t.Fatal(err)
	}
	w.trusts(func(k *evidence.TrustedKeys) (*evidence.TrustedKeys, error) { return k.PutAuthority(authority) })
	w.Edit(func(entries []string) []string { return append(entries[:3], "elsewhere") })
	stamped := tsa.over("TSA", 4, w.Checkpoint(), time.Now().Add(-2*time.Hour))
	w.Answer(func(rw http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/timestamps") {
			next.Serve(rw, r)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(wire.LogTimestamps{Timestamps: []wire.LogTimestamp{stamped}})
	})
	if r := w.run(); r.code != cli.ExitNegative || !strings.Contains(r.errs, "ALARM: rewritten") {
		t.Errorf("%+v", r)
	}
}
