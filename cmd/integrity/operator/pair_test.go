package operator

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers/wire"
)

// home is the installation that pairs: a data directory with keys, and the settings.
type home struct {
	*testing.T
	dir     string
	witness evidence.WitnessKey
	log     evidence.LogKey
	env     []string
}

const (
	homeWitness = "home.example/witness"
	homeLog     = "home.example/log"
)

func newHome(t *testing.T) *home {
	t.Helper()
	h := &home{T: t, dir: t.TempDir(), log: newLogKey(t, homeLog)}
	_, err := keyfiles.Ensure(h.dir, time.Now())
	h.check(err)
	h.trust(func(trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) { return trusted.AddLogKey(h.log) })
	source := keyfiles.Source{DataDir: h.dir, Name: keyfiles.WitnessKeyFile}
	h.check(source.EnsureWitnessKey(h.dir))
	signer, err := source.WitnessSigner(homeWitness)
	h.check(err)
	h.witness = signer.WitnessKey
	h.env = []string{
		"INTEGRITY_DATA_DIR=" + h.dir, "INTEGRITY_WITNESS_NAME=" + homeWitness,
		"INTEGRITY_WITNESS_URL=https://witness.home.example",
	}
	return h
}

func (h *home) check(err error) {
	h.Helper()
	if err != nil {
		h.Fatal(err)
	}
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }

// trust changes the trusted-keys file.
func (h *home) trust(change func(*evidence.TrustedKeys) (*evidence.TrustedKeys, error)) {
	h.Helper()
	trusted, err := keyfiles.ReadTrusted(h.path(keyfiles.TrustedKeysFile))
	h.check(err)
	trusted, err = change(trusted)
	h.check(err)
	h.check(keyfiles.WriteTrusted(h.path(keyfiles.TrustedKeysFile), trusted))
}

func (h *home) write(name, text string) {
	h.Helper()
	h.check(os.WriteFile(h.path(name), []byte(text), 0o600))
}

// read returns a file, or an empty string if it does not exist.
func (h *home) read(name string) string {
	h.Helper()
	text, err := os.ReadFile(h.path(name))
	if err != nil && !os.IsNotExist(err) {
		h.Fatal(err)
	}
	return string(text)
}

// state returns everything that pairing may change.
func (h *home) state() string {
	h.Helper()
	return h.read(config.WitnessesFile) + "\x00" + h.read(config.WitnessLogsFile) + "\x00" + h.read(keyfiles.TrustedKeysFile)
}

type paired struct {
	code      int
	out, errs string
}

// pair runs integrity witness pair with an answer to its question.
func (h *home) pair(answer string, args ...string) paired {
	h.Helper()
	var out, errs bytes.Buffer
	shared := &cli.App{Out: &out, Errs: &errs, Environ: h.env, Now: time.Now}
	root := &cobra.Command{Use: "integrity", SilenceErrors: true, SilenceUsage: true}
	group := &cobra.Command{Use: "witness"}
	group.AddCommand(WitnessPairCommand(shared))
	root.AddCommand(group)
	root.SetIn(strings.NewReader(answer))
	code := shared.Run(h.Context(), root, append([]string{"witness", "pair"}, args...))
	return paired{code, out.String(), errs.String()}
}

// paired pairs, and requires that the service and the witness can start afterwards.
func (h *home) paired(with *stranger, args ...string) PairView {
	h.Helper()
	r := h.pair("yes\n", append([]string{with.URL, "--json"}, args...)...)
	var view PairView
	if err := json.Unmarshal([]byte(r.out), &view); err != nil || r.code != cli.ExitOK {
		h.Fatalf("%+v: %v", r, err)
	}
	h.lists()
	return view
}

// lists returns the configured witnesses with their addresses, and the keys of the logs to cosign.
func (h *home) lists() (witnesses, logs []string) {
	h.Helper()
	text := h.read(config.WitnessesFile)
	_, err := transparency.ParseWitnesses(text)
	h.check(err)
	for entry := range transparency.Entries(text) {
		witnesses = append(witnesses, entry)
	}
	text = h.read(config.WitnessLogsFile)
	_, err = witness.ParseLogs(text)
	h.check(err)
	for entry := range transparency.Entries(text) {
		logs = append(logs, entry)
	}
	return witnesses, logs
}

// has fails unless exactly these witnesses and logs are configured, and exactly these witness keys pinned.
func (h *home) has(witnesses, logs []string, pinned ...evidence.WitnessKey) {
	h.Helper()
	w, l := h.lists()
	if !slices.Equal(w, witnesses) || !slices.Equal(l, logs) {
		h.Errorf("configured %q %q, not %q %q", w, l, witnesses, logs)
	}
	trusted, err := keyfiles.ReadTrusted(h.path(keyfiles.TrustedKeysFile))
	h.check(err)
	keys, byKey := trusted.WitnessKeys(), func(a, b evidence.WitnessKey) int {
		return strings.Compare(a.VerifierKey, b.VerifierKey)
	}
	slices.SortFunc(keys, byKey)
	slices.SortFunc(pinned, byKey)
	if !slices.Equal(keys, pinned) {
		h.Errorf("pinned %v, not %v", keys, pinned)
	}
}

// stranger is the service that is paired with. It publishes whatever the test wants.
type stranger struct {
	*httptest.Server
	says wire.Independence
}

func newStranger(t *testing.T, witness string, logs ...string) *stranger {
	t.Helper()
	s := &stranger{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/public/log/independence" {
			http.NotFound(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(s.says)
	}))
	t.Cleanup(s.Close)
	s.cosigns(newWitnessKey(t, witness), "http://127.0.0.1:1/"+witness)
	for _, name := range logs {
		s.logs(newLogKey(t, name))
	}
	return s
}

func (s *stranger) cosigns(key evidence.WitnessKey, address string) {
	s.says.Witness = &wire.OwnWitness{Name: key.Name, VerifierKey: key.VerifierKey, Address: &address}
}

func (s *stranger) logs(keys ...evidence.LogKey) {
	for _, k := range keys {
		s.says.LogKeys = append(s.says.LogKeys, wire.PublishedLogKey{Name: k.Name, VerifierKey: k.VerifierKey, Status: "trusted"})
	}
}

// entry is its line in the list of witnesses.
func (s *stranger) entry() string { return s.says.Witness.VerifierKey + " " + *s.says.Witness.Address }

// keys are its lines in the list of logs.
func (s *stranger) keys() (lines []string) {
	for _, k := range s.says.LogKeys {
		lines = append(lines, k.VerifierKey)
	}
	return lines
}

func (s *stranger) witnessKey() evidence.WitnessKey {
	key, err := evidence.ParseWitnessKey(s.says.Witness.VerifierKey)
	if err != nil {
		panic(err)
	}
	return key
}

func newWitnessKey(t *testing.T, name string) evidence.WitnessKey {
	t.Helper()
	key, err := evidence.NewWitnessKey(name, evidence.GenerateSigner().Key().Ed25519())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newLogKey(t *testing.T, name string) evidence.LogKey {
	t.Helper()
	key, err := evidence.NewLogKey(name, evidence.GenerateSigner().Key().Ed25519())
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestPairAsks: the question shows everything that will be configured, and only a yes confirms.
func TestPairAsks(t *testing.T) {
	t.Parallel()
	h, s := newHome(t), newStranger(t, "b.example/witness", "b.example/log", "second.example/log")
	before := h.state()
	for _, answer := range []string{"", "\n", "no\n", "y\n", "yes please\n", "yess\n", "true\n", "0\n"} {
		r := h.pair(answer, s.URL)
		if r.code != cli.ExitNegative || h.state() != before {
			t.Errorf("%q: %+v %s", answer, r, h.state())
		}
		for _, shown := range []string{s.URL, "b.example/witness", *s.says.Witness.Address, "b.example/log", "second.example/log"} {
			if !strings.Contains(r.errs, shown) {
				t.Errorf("the question does not show %s: %s", shown, r.errs)
			}
		}
	}
	wrong := h.pair("", s.URL, "--yes", strings.Repeat("0", 64))
	if wrong.code != cli.ExitNegative || h.state() != before || !strings.Contains(wrong.errs, *s.says.Witness.Address) {
		t.Errorf("another fingerprint: %+v", wrong)
	}
	for _, answer := range []string{"yes\n", "YES", " sí \n", "si\n"} {
		h := newHome(t)
		if r := h.pair(answer, s.URL); r.code != cli.ExitOK {
			t.Errorf("%q: %+v", answer, r)
		}
		h.has([]string{s.entry()}, s.keys(), s.witnessKey())
	}
	_, fingerprint, _ := strings.Cut(wrong.errs, "fingerprint is ")
	fingerprint, _, _ = strings.Cut(fingerprint, ",")
	address := *s.says.Witness.Address + "/elsewhere"
	s.says.Witness.Address = &address
	if r := h.pair("", s.URL, "--yes", fingerprint); r.code != cli.ExitNegative || h.state() != before {
		t.Errorf("the fingerprint does not include the address: %+v", r)
	}
	address = strings.TrimSuffix(address, "/elsewhere") + "/" // a slash at its end changes nothing
	if r := h.pair("", s.URL, "--yes", fingerprint); r.code != cli.ExitOK || !strings.Contains(r.errs, s.URL) {
		t.Errorf("--yes: %+v", r)
	}
}

// TestPairSkipsRevokedKeys: neither side counts revoked log keys.
func TestPairSkipsRevokedKeys(t *testing.T) {
	t.Parallel()
	h, s := newHome(t), newStranger(t, "b.example/witness", "b.example/log")
	first := h.paired(s)
	s.logs(newLogKey(t, "b.example/log"))
	s.says.LogKeys[1].Status = "revoked"
	former := newLogKey(t, homeLog)
	h.trust(func(trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, error) {
		trusted, err := trusted.AddLogKey(former)
		h.check(err)
		return trusted.Revoke(former.KeyID(), "compromised", "2026-01-01T00:00:00Z")
	})
	again := h.paired(s)
	if again.Fingerprint != first.Fingerprint || again.OwnFingerprint != first.OwnFingerprint || len(again.LogKeys) != 1 ||
		len(again.Changed) != 0 {
		t.Errorf("%+v, and before %+v", again, first)
	}
	h.has([]string{s.entry()}, s.keys()[:1], s.witnessKey())
}

// TestPairRefuses: nothing is written if a peer publishes something that would configure more, or other, than it seems.
func TestPairRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		given func(h *home, s *stranger)
		says  string
	}{
		"a base address on another machine without https": {func(_ *home, s *stranger) { s.URL = "http://b.example" }, "must be https"},
		"a base address with a user":                      {func(_ *home, s *stranger) { s.URL = "https://u:p@b.example" }, "must be https"},
		"a service that is no ledger":                     {func(_ *home, s *stranger) { s.URL += "/other" }, "answers 404"},
		"no witness":                                      {func(_ *home, s *stranger) { s.says.Witness = nil }, "integrity keys witness"},
		"no address":                                      {func(_ *home, s *stranger) { s.says.Witness.Address = nil }, "INTEGRITY_WITNESS_URL"},
		"another kind of key": {func(_ *home, s *stranger) {
			s.says.Witness.VerifierKey = s.says.LogKeys[0].VerifierKey
		}, "type 0x04"},
		"itself":                    {func(h *home, s *stranger) { s.cosigns(h.witness, "http://127.0.0.1:1") }, "this installation itself"},
		"its own witness's name":    {func(h *home, s *stranger) { s.cosigns(newWitnessKey(h.T, homeWitness), "http://127.0.0.1:1") }, homeWitness},
		"its own log's name":        {func(h *home, s *stranger) { s.logs(newLogKey(h.T, homeLog)) }, homeLog},
		"no log key":                {func(_ *home, s *stranger) { s.says.LogKeys = nil }, "no log key"},
		"only revoked log keys":     {func(_ *home, s *stranger) { s.says.LogKeys[0].Status = "revoked" }, "no log key"},
		"a broken log key":          {func(_ *home, s *stranger) { s.says.LogKeys[0].VerifierKey += "A" }, "verifierKey"},
		"a log name with a comma":   {func(h *home, s *stranger) { s.logs(newLogKey(h.T, "b,example/log")) }, "comma"},
		"a log name like a comment": {func(h *home, s *stranger) { s.logs(newLogKey(h.T, "#b.example/log")) }, "comma"},
		"a witness name with comma": {func(h *home, s *stranger) { s.cosigns(newWitnessKey(h.T, "b,example/w"), "http://127.0.0.1:1") }, "comma"},
		"a witness name as comment": {func(h *home, s *stranger) { s.cosigns(newWitnessKey(h.T, "#b.example/w"), "http://127.0.0.1:1") }, "comma"},
		"a list in INTEGRITY_WITNESSES": {func(h *home, s *stranger) {
			h.env = append(h.env, "INTEGRITY_WITNESSES="+newWitnessKey(h.T, "c.example/w").VerifierKey+" https://c.example")
		}, "INTEGRITY_WITNESSES is a list"},
		"a list in INTEGRITY_WITNESS_LOGS": {func(h *home, s *stranger) {
			h.env = append(h.env, "INTEGRITY_WITNESS_LOGS="+newLogKey(h.T, "c.example/log").VerifierKey)
		}, "INTEGRITY_WITNESS_LOGS is a list"},
		"no name of our own":    {func(h *home, _ *stranger) { h.env = h.env[:1] }, "INTEGRITY_WITNESS_NAME"},
		"no address of our own": {func(h *home, _ *stranger) { h.env = h.env[:2] }, "INTEGRITY_WITNESS_URL"},
		"no witness key of our own": {func(h *home, _ *stranger) {
			h.check(os.Remove(h.path(keyfiles.WitnessKeyFile)))
		}, "integrity keys witness"},
		"no log key of our own": {func(h *home, _ *stranger) {
			h.check(os.Remove(h.path(keyfiles.TrustedKeysFile)))
			h.check(keyfiles.WriteFirstTrusted(
				h.path(keyfiles.TrustedKeysFile), evidence.GenerateSigner().Key(), time.Now(),
			))
		}, "no log key"},
		"a log that another installation has": {func(h *home, s *stranger) {
			other := newStranger(h.T, "c.example/witness", "c.example/log")
			h.paired(other)
			s.logs(newLogKey(h.T, "c.example/log"))
		}, "c.example/log"},
		"the same key of another installation's log": {func(h *home, s *stranger) {
			other := newStranger(h.T, "c.example/witness", "c.example/log")
			h.paired(other)
			s.says.LogKeys = append(s.says.LogKeys, other.says.LogKeys...)
		}, "c.example/log"},
		"another key of a log that somebody wrote by hand": {func(h *home, s *stranger) {
			h.write(config.WitnessLogsFile, newLogKey(h.T, "c.example/log").VerifierKey+"\n")
			s.logs(newLogKey(h.T, "c.example/log"))
		}, "c.example/log"},
		"the origin of a log that somebody wrote by hand": {func(h *home, s *stranger) {
			h.write(config.WitnessLogsFile, newLogKey(h.T, "c.example/key").VerifierKey+" c.example/log\n")
			s.logs(newLogKey(h.T, "c.example/log"))
		}, "c.example/log"},
		"the witness name of another installation": {func(h *home, s *stranger) {
			h.paired(newStranger(h.T, "c.example/witness", "c.example/log"))
			s.cosigns(newWitnessKey(h.T, "c.example/witness"), "http://127.0.0.1:1")
		}, "c.example/witness"},
		"the witness key of another installation": {func(h *home, s *stranger) {
			other := newStranger(h.T, "c.example/witness", "c.example/log")
			h.paired(other)
			s.cosigns(other.witnessKey(), "http://127.0.0.1:1")
		}, "c.example/witness"},
		"a file of witnesses with a fault": {func(h *home, _ *stranger) { h.write(config.WitnessesFile, "x\n") }, config.WitnessesFile + ": "},
		"a file of logs with a fault":      {func(h *home, _ *stranger) { h.write(config.WitnessLogsFile, "x\n") }, config.WitnessLogsFile + ": "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h, s := newHome(t), newStranger(t, "b.example/witness", "b.example/log")
			c.given(h, s)
			before := h.state()
			r := h.pair("yes\n", s.URL)
			if r.code != cli.ExitFailed || !strings.Contains(r.errs, c.says) || strings.Contains(r.errs, "Type yes") {
				t.Errorf("%+v", r)
			}
			if now := h.state(); now != before {
				t.Errorf("written: %s", now)
			}
		})
	}
}

// TestPairRefusesAddresses: the address that a peer publishes is one address, which a terminal shows as it is.
func TestPairRefusesAddresses(t *testing.T) {
	t.Parallel()
	h, s := newHome(t), newStranger(t, "b.example/witness", "b.example/log")
	before := h.state()
	key := s.witnessKey()
	for _, address := range []string{
		"", "b.example", "http://b.example", "ftp://b.example", "https://u@b.example", "https://b.example/?q", "https://b.example/#f",
		"http://127.0.0.1:1/w," + newWitnessKey(t, "d.example/w").VerifierKey + " http://127.0.0.1:2",
		"http://127.0.0.1:1/w," + newWitnessKey(t, "d.example/w").VerifierKey, "https://b.example/a,b", "https://b.example/a b",
		"https://b.example/a\tb", "https://b.example/\u009b31m", "https://b.example/\u202ew", "https://b.example/\x7f",
		"https://b\u00e9.example", "https://b.example/\u2028", "https://b.example/\x1b[2J",
	} {
		s.cosigns(key, address)
		r := h.pair("yes\n", s.URL)
		if r.code != cli.ExitFailed || h.state() != before || strings.ContainsAny(r.errs, "\u009b\u202e\u2028\x1b\x7f") {
			t.Errorf("%q: %+v", address, r)
		}
	}
}

// TestPairAgain pairs twice: the second run replaces the lines that the peer has changed, and prints the removed ones.
func TestPairAgain(t *testing.T) {
	t.Parallel()
	h, s := newHome(t), newStranger(t, "b.example/witness", "b.example/log")
	other := newStranger(t, "c.example/witness", "c.example/log")
	byHand := newWitnessKey(t, "hand.example/w").VerifierKey + " https://hand.example"
	h.write(config.WitnessesFile, "# by hand, with care\n"+byHand+"\n")
	h.paired(s)
	h.paired(other)
	former := *s
	former.says.LogKeys = slices.Clone(s.says.LogKeys)
	entry, key := s.entry(), s.witnessKey()
	if view := h.paired(s); len(view.Changed) != 0 || len(view.Removed) != 0 {
		t.Errorf("nothing has changed: %+v", view)
	}
	removes := func(view PairView, lines ...string) {
		t.Helper()
		var removed []string
		for _, r := range view.Removed {
			removed = append(removed, r.Line)
		}
		if !slices.Equal(removed, lines) {
			t.Errorf("removed %q, not %q", removed, lines)
		}
	}

	moved := "http://127.0.0.1:2/moved"
	s.says.Witness.Address = &moved
	removes(h.paired(s), entry)
	h.has([]string{byHand, other.entry(), s.entry()}, append(former.keys(), other.keys()...), other.witnessKey(), key)

	entry = s.entry()
	s.cosigns(newWitnessKey(t, key.Name), moved)
	r := h.pair("no\n", s.URL)
	if r.code != cli.ExitNegative || !strings.Contains(r.errs, entry) || !strings.Contains(r.errs, h.path(config.WitnessesFile)) {
		t.Errorf("the question does not show what is removed: %+v", r)
	}
	removes(h.paired(s), entry, key.VerifierKey)
	h.has([]string{byHand, other.entry(), s.entry()}, append(former.keys(), other.keys()...), other.witnessKey(), s.witnessKey())

	entry, key = s.entry(), s.witnessKey()
	s.cosigns(newWitnessKey(t, "renamed.example/witness"), moved)
	removes(h.paired(s), entry, key.VerifierKey)
	h.has([]string{byHand, other.entry(), s.entry()}, append(former.keys(), other.keys()...), other.witnessKey(), s.witnessKey())

	s.logs(newLogKey(t, "b.example/log"))
	removes(h.paired(s))
	s.says.LogKeys[0].Status = "revoked"
	removes(h.paired(s), s.keys()[0])
	h.has([]string{byHand, other.entry(), s.entry()}, append(other.keys(), s.keys()[1]), other.witnessKey(), s.witnessKey())
	if text := h.read(config.WitnessesFile); !strings.HasPrefix(text, "# by hand, with care\n"+byHand+"\n") {
		t.Error(text)
	}
}

// TestPairKeepsFiles: files in other spellings, and files that earlier pairings broke, are read and kept.
func TestPairKeepsFiles(t *testing.T) {
	t.Parallel()
	for name, spell := range map[string]func(byHand, former string) string{
		"lines of Windows":   func(byHand, former string) string { return byHand + "\r\n" + former + "\r\n" },
		"one line":           func(byHand, former string) string { return byHand + ", " + former + "\n" },
		"one line, reversed": func(byHand, former string) string { return former + "," + byHand },
		"no end of line":     func(byHand, former string) string { return byHand + "\n" + former },
		"twice":              func(byHand, former string) string { return former + "\n" + byHand + "\n" + former + "\n" },
		"tabs and empty lines": func(byHand, former string) string {
			return "\n\t" + byHand + "\n\n" + strings.Replace(former, " ", "\t", 1)
		},
		"comments with commas": func(byHand, former string) string { return "# a, b\n" + byHand + "\n #c,d\n" + former },
	} {
		for changed, change := range map[string]func(s *stranger){
			"nothing": func(*stranger) {},
			"address": func(s *stranger) { s.cosigns(s.witnessKey(), "http://127.0.0.1:3") },
			"key":     func(s *stranger) { s.cosigns(newWitnessKey(t, "b.example/witness"), "http://127.0.0.1:1") },
		} {
			h, s := newHome(t), newStranger(t, "b.example/witness", "b.example/log")
			byHand := newWitnessKey(t, "hand.example/w").VerifierKey + " https://hand.example"
			h.write(config.WitnessesFile, spell(byHand, s.entry()))
			h.write(config.WitnessLogsFile, newLogKey(t, "hand.example/log").VerifierKey+"\r\n"+s.keys()[0])
			change(s)
			h.paired(s)
			w, l := h.lists()
			if len(w) != 2 || !slices.Contains(w, byHand) || !slices.ContainsFunc(w, func(entry string) bool {
				return strings.Join(strings.Fields(entry), " ") == s.entry()
			}) || len(l) != 2 || !slices.Contains(l, s.keys()[0]) {
				t.Errorf("%s, %s: %q %q", name, changed, w, l)
			}
			if view := h.paired(s); len(view.Changed) != 0 {
				t.Errorf("%s, %s: again: %+v", name, changed, view)
			}
		}
	}
	h, s := newHome(t), newStranger(t, "b.example/witness", "b.example/log")
	h.paired(s)
	byHand := newWitnessKey(t, "hand.example/w").VerifierKey + " https://hand.example"
	h.write(config.WitnessesFile, strings.TrimSuffix(h.read(config.WitnessesFile), "\n")+", "+byHand+"\n")
	for _, address := range []string{"http://127.0.0.1:4", "http://127.0.0.1:5"} {
		s.cosigns(s.witnessKey(), address)
		h.paired(s)
		h.has([]string{byHand, s.entry()}, s.keys(), s.witnessKey())
	}
	h, s = newHome(t), newStranger(t, "b.example/witness", "b.example/log")
	h.write("kept", "# nothing\n")
	h.check(os.Symlink("kept", h.path(config.WitnessesFile)))
	h.paired(s)
	if at, err := os.Readlink(h.path(config.WitnessesFile)); err != nil || !strings.Contains(h.read("kept"), s.entry()) {
		t.Errorf("%s %v %q: the link was replaced", at, err, h.read("kept"))
	}
}

// TestPairReach: a witness address may be anywhere behind https, but not on this machine or its link unless the service
// is there too.
func TestPairReach(t *testing.T) {
	t.Parallel()
	s := newStranger(t, "b.example/witness", "b.example/log")
	for _, c := range []struct {
		base, address string
		taken         bool
	}{
		{"https://b.example", "https://w.b.example/x", true},
		{"https://b.example", "https://10.1.2.3:8443", true},
		{"https://b.example", "http://127.0.0.1:1", false},
		{"https://b.example", "http://localhost:1", false},
		{"https://b.example", "https://localhost", false},
		{"https://b.example", "https://LocalHost.", false},
		{"https://b.example", "https://a.localhost", false},
		{"https://b.example", "https://127.0.0.2", false},
		{"https://b.example", "https://[::1]", false},
		{"https://b.example", "https://[::ffff:127.0.0.1]", false},
		{"https://b.example", "https://169.254.169.254", false},
		{"https://b.example", "https://[fe80::1]", false},
		{"https://b.example", "https://0.0.0.0", false},
		{"https://b.example", "https://[::]", false},
		{"https://b.example", "https://224.0.0.1", false},
		{"https://127.0.0.1:1", "https://127.0.0.1:2", true},
		{"https://127.0.0.1:1", "http://127.0.0.1:2", false},
		{"http://127.0.0.1:1", "http://127.0.0.1:2", true},
		{"http://127.0.0.1:1", "https://w.b.example", true},
	} {
		s.says.Witness.Address = &c.address
		if other, err := publishedPeer(c.base, s.says); (err == nil) != c.taken {
			t.Errorf("%s, %s: %v %v", c.base, c.address, other, err)
		}
	}
}
