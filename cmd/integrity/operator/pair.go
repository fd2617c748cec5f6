package operator

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
	"integrityledger/eventstore/transparency"
	"integrityledger/eventstore/transparency/witness"
	"integrityledger/handlers/wire"
)

// peer is an installation that can be paired: its key as a witness, and the keys of its log.
type peer struct {
	witness evidence.WitnessKey
	address string // where it takes checkpoints
	logs    []evidence.LogKey
}

// fingerprint is the SHA-256 over the verifier keys, one per line: the witness key, then the sorted log keys. It is
// the same on both sides, so two people can compare it by telephone.
func (p peer) fingerprint() string {
	lines := []string{}
	for _, k := range p.logs {
		lines = append(lines, k.VerifierKey+"\n")
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(p.witness.VerifierKey + "\n" + strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

// spoken splits a fingerprint into groups that can be read out.
func spoken(fingerprint string) string {
	var b strings.Builder
	for i := range len(fingerprint) {
		if i > 0 && i%8 == 0 {
			b.WriteByte(' ')
		}
		b.WriteByte(fingerprint[i])
	}
	return b.String()
}

// PairView is the result of integrity witness pair.
type PairView struct {
	Witness        evidence.WitnessKey `json:"witness"`
	Address        string              `json:"address"`
	LogKeys        []evidence.LogKey   `json:"logKeys"`
	Fingerprint    string              `json:"fingerprint"`
	OwnFingerprint string              `json:"ownFingerprint"`
	Changed        []string            `json:"changed"` // files
}

// WitnessPairCommand returns integrity witness pair.
func WitnessPairCommand(shared *cli.App) *cobra.Command {
	a := signingKeys{&app{shared}}
	v := a.verb("witness pair", "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY", "WITNESSES", "WITNESS_LOGS", "WITNESS_NAME",
		"WITNESS_KEY")
	yes := v.Flags().String("yes", "", "the other installation's fingerprint, instead of the question")
	return v.onSettings(func(ctx context.Context, cfg *config.Config) error {
		own, err := a.ownPeer(cfg)
		if err != nil {
			return err
		}
		other, err := fetchPeer(ctx, v.args[0])
		if err != nil {
			return err
		}
		if other.witness.VerifierKey == own.witness.VerifierKey {
			return say.Errorf("%s is this installation itself", v.args[0])
		}
		view := PairView{
			Witness: other.witness, Address: other.address, LogKeys: other.logs, Fingerprint: other.fingerprint(),
			OwnFingerprint: own.fingerprint(), Changed: []string{},
		}
		if err := a.confirmed(v, view, *yes); err != nil {
			return err
		}
		if view.Changed, err = writePair(cfg, other); err != nil {
			return err
		}
		return v.print(view, pairText(view))
	})
}

// ownPeer returns this installation's keys. It creates the witness key if it does not exist.
func (a signingKeys) ownPeer(cfg *config.Config) (own peer, err error) {
	if cfg.WitnessName == "" {
		return own, say.Errorf(
			"set %sWITNESS_NAME and %sWITNESS_URL and restart the service first: the other installation reads both there",
			config.Prefix, config.Prefix,
		)
	}
	signer, err := witnessSigner(cfg)
	if err != nil {
		return own, err
	}
	trusted, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath())
	if err != nil {
		return own, err
	}
	own.witness = signer.WitnessKey
	for _, k := range trusted.LogKeys() {
		if _, revoked := trusted.LogKeyRevocation(k); !revoked {
			own.logs = append(own.logs, k)
		}
	}
	if len(own.logs) == 0 {
		return own, say.Errorf(
			"%s has no log key: start the service once with the transparency log on", cfg.TrustedKeysPath(),
		)
	}
	return own, nil
}

// witnessSigner reads the witness key, and creates it in the data directory if it does not exist there.
func witnessSigner(cfg *config.Config) (*witness.Signer, error) {
	source := cfg.WitnessSource()
	if err := source.EnsureWitnessKey(cfg.DataDir); err != nil {
		return nil, err
	}
	return source.WitnessSigner(cfg.WitnessName)
}

// fetchPeer reads what an installation publishes about itself. Nothing of it is trusted yet.
func fetchPeer(ctx context.Context, base string) (other peer, err error) {
	base = strings.TrimRight(base, "/")
	if err := transparency.CheckAddress(base); err != nil {
		return other, say.Errorf("%s: %w", base, err)
	}
	const path = "/api/public/log/independence"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return other, err
	}
	request.Header.Set("Accept", "application/json")
	answer, err := outbound.New(outbound.Config{Timeout: doctorTimeout}).Do(request)
	if err != nil {
		return other, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(answer.Body)
	if err != nil {
		return other, err
	}
	var published wire.Independence
	if answer.StatusCode != http.StatusOK || json.Unmarshal(raw, &published) != nil {
		return other, say.Errorf("%s answers %d without the keys of an installation", base+path, answer.StatusCode)
	}
	if published.Witness == nil || published.Witness.Address == nil {
		return other, say.Errorf(
			"%s is not a witness of other logs yet: its operator must set %sWITNESS_NAME and %sWITNESS_URL and restart it", base,
			config.Prefix, config.Prefix,
		)
	}
	if other.witness, err = evidence.ParseWitnessKey(published.Witness.VerifierKey); err != nil {
		return other, say.Errorf("%s: %w", base, err)
	}
	other.address = *published.Witness.Address
	if _, err := transparency.NewWitness(other.witness.VerifierKey, other.address); err != nil {
		return other, err
	}
	if strings.HasPrefix(base, "https:") && !strings.HasPrefix(other.address, "https:") {
		return other, say.Errorf("%s: the address of its witness must be https too, but it is %q", base, other.address)
	}
	for _, k := range published.LogKeys {
		if k.Status != "trusted" {
			continue
		}
		key, err := evidence.ParseLogKey(k.VerifierKey)
		if err != nil {
			return other, say.Errorf("%s: %w", base, err)
		}
		other.logs = append(other.logs, key)
	}
	if len(other.logs) == 0 {
		return other, say.Errorf("%s publishes no log key", base)
	}
	return other, nil
}

// confirmed asks whether the fingerprints are the same on both sides, unless --yes has the other one.
func (a signingKeys) confirmed(v *verb, view PairView, yes string) error {
	if yes != "" {
		if strings.ToLower(strings.Join(strings.Fields(yes), "")) != view.Fingerprint {
			return cli.Negativef(
				"the other installation's fingerprint is %s, and not the one of --yes: nothing was written", spoken(view.Fingerprint),
			)
		}
		return nil
	}
	a.tell("the other installation: %s, %s", view.Witness.Name, view.Address)
	a.tell("  its fingerprint        %s", spoken(view.Fingerprint))
	a.tell("  our own fingerprint    %s", spoken(view.OwnFingerprint))
	a.tell("Call its operator. Let them read out both, as their own command shows them.")
	input := v.InOrStdin()
	if f, ok := input.(*os.File); ok && !cli.IsTerminal(f) {
		return say.Errorf("there is no terminal to ask on: give the other installation's fingerprint with --yes")
	}
	a.tell("Are both the same? Type yes:")
	line, err := bufio.NewReader(input).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if answer := strings.ToLower(strings.TrimSpace(line)); answer != "yes" && answer != "sí" && answer != "si" {
		return cli.Negativef("nothing was written")
	}
	return nil
}

// writePair lets the service ask the other witness, lets this witness cosign the other log, and pins the other's key.
// It returns the changed files. A file that has the entry already is not changed.
func writePair(cfg *config.Config, other peer) (changed []string, err error) {
	changed = []string{}
	witnesses, err := listFile("WITNESSES", cfg.Witnesses, "+", cfg.InDataDir(config.WitnessesFile))
	if err != nil {
		return nil, err
	}
	logs, err := listFile("WITNESS_LOGS", cfg.WitnessLogs, "+", cfg.InDataDir(config.WitnessLogsFile))
	if err != nil {
		return nil, err
	}
	source := cfg.SigningSource()
	if err := source.Change(func(
		_ keyfiles.Files, trusted *evidence.TrustedKeys,
	) (*evidence.TrustedKeys, error) {
		if slices.Contains(trusted.WitnessKeys(), other.witness) {
			return trusted, nil
		}
		changed = append(changed, source.Trusted)
		return trusted.AddWitnessKey(other.witness)
	}); err != nil {
		return nil, keyRefusal(err)
	}
	unlock, err := keyfiles.LockKeys(keyfiles.Absolute(cfg.DataDir))
	if err != nil {
		return changed, err
	}
	defer unlock()
	lines := []string{}
	for _, key := range other.logs {
		lines = append(lines, key.VerifierKey)
	}
	wrote, err := addLines(logs, lines)
	if err != nil {
		return changed, err
	}
	if wrote {
		changed = append(changed, logs)
	}
	if wrote, err = addLines(witnesses, []string{other.witness.VerifierKey + " " + other.address}); wrote {
		changed = append(changed, witnesses)
	}
	return changed, err
}

// listFile returns the file of a setting that may also be a list.
func listFile(setting, text, mark, standard string) (path string, err error) {
	switch {
	case text == "":
		return standard, nil
	case strings.Contains(text, mark):
		return "", say.Errorf(
			"%s%s is a list in the settings, which no command can change: write it to %s, one entry per line, and unset the "+
				"variable", config.Prefix, setting, standard,
		)
	}
	return text, nil
}

// addLines appends the lines that a file lacks. It creates the file.
func addLines(path string, lines []string) (wrote bool, err error) {
	text, err := keyfiles.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	created := err != nil
	had := strings.Split(string(text), "\n")
	for _, line := range lines {
		if !slices.Contains(had, line) {
			if len(text) > 0 && text[len(text)-1] != '\n' {
				text = append(text, '\n')
			}
			text, wrote = append(append(text, line...), '\n'), true
		}
	}
	switch {
	case !wrote:
		return false, nil
	case created:
		return true, keyfiles.WriteNew(path, text, 0o644)
	}
	return true, keyfiles.ReplaceKept(path, text, path)
}

func pairText(view PairView) say.Phrase {
	var lines text
	lines.Sayf("paired with %s\n", view.Witness.Name)
	lines.Sayf("its fingerprint      %s\n", spoken(view.Fingerprint))
	lines.Sayf("our own fingerprint  %s\n", spoken(view.OwnFingerprint))
	for _, path := range view.Changed {
		lines.Sayf("wrote %s\n", path)
	}
	if len(view.Changed) == 0 {
		lines.Sayf("nothing had to be written\n")
	}
	lines.Sayf("Now restart integrity serve, and start integrity witness or send it SIGHUP. The other operator runs " +
		"the same command with the address of this service. Then /trust shows the cosignatures.\n")
	return lines
}
