package operator

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/outbound"
	"integrityledger/eventstore/transparency"
	"integrityledger/handlers/wire"
)

// peer is an installation that can be paired: its key as a witness, and the keys of its log.
type peer struct {
	base    string // address of its service
	witness evidence.WitnessKey
	address string // where it takes checkpoints
	logs    []evidence.LogKey
}

// fingerprint is the SHA-256 over the address and the verifier keys, one per line: the witness key, then the sorted log
// keys. It is the same on both sides, so two people can compare it by telephone.
func (p peer) fingerprint() string {
	lines := []string{}
	for _, k := range p.logs {
		lines = append(lines, k.VerifierKey+"\n")
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(p.address + "\n" + p.witness.VerifierKey + "\n" + strings.Join(lines, "")))
	return hex.EncodeToString(sum[:])
}

// origins returns the names of the peer's log, usually one.
func (p peer) origins() (names []string) {
	for _, k := range p.logs {
		if !slices.Contains(names, k.Name) {
			names = append(names, k.Name)
		}
	}
	return names
}

// bare returns an address without the slashes at its end, which do not matter.
func bare(address string) string { return strings.TrimRight(address, "/") }

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
	Removed        []RemovedLine       `json:"removed"`
}

// RemovedLine is what a file named for the same installation before.
type RemovedLine struct {
	File string `json:"file"`
	Line string `json:"line"` // a line of a list, or the verifier key of a witness that is no longer pinned
}

// WitnessPairCommand returns integrity witness pair.
func WitnessPairCommand(shared *cli.App) *cobra.Command {
	a := signingKeys{&app{shared}}
	v := a.verb("witness pair", "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY", "WITNESSES", "WITNESS_LOGS", "WITNESS_NAME",
		"WITNESS_URL", "WITNESS_KEY")
	yes := v.Flags().String("yes", "", "the other installation's fingerprint, instead of the question")
	return v.onSettings(func(ctx context.Context, cfg *config.Config) error {
		own, err := ownPeer(cfg)
		if err != nil {
			return err
		}
		other, err := fetchPeer(ctx, v.args[0])
		if err != nil {
			return err
		}
		switch {
		case other.witness.VerifierKey == own.witness.VerifierKey:
			return say.Errorf("%s is this installation itself", other.base)
		case other.witness.Name == own.witness.Name:
			return say.Errorf("%s uses the witness name of this installation: %s", other.base, own.witness.Name)
		}
		plan, err := planPair(cfg, other)
		if err != nil {
			return err
		}
		view := PairView{
			Witness: other.witness, Address: other.address, LogKeys: other.logs, Fingerprint: other.fingerprint(),
			OwnFingerprint: own.fingerprint(), Changed: []string{}, Removed: plan.removed(),
		}
		a.describe(other, view)
		if err := a.confirmed(v, view, *yes); err != nil {
			return err
		}
		if view.Changed, err = plan.write(cfg); err != nil {
			return err
		}
		return v.print(view, pairText(view))
	})
}

// ownPeer returns this installation's keys.
func ownPeer(cfg *config.Config) (own peer, err error) {
	if cfg.WitnessName == "" || cfg.WitnessURL == "" {
		return own, say.Errorf(
			"set %sWITNESS_NAME and %sWITNESS_URL and restart the service first: the other installation reads both there",
			config.Prefix, config.Prefix,
		)
	}
	signer, err := cfg.WitnessSource().WitnessSigner(cfg.WitnessName)
	if err != nil {
		return own, err
	}
	trusted, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath())
	if err != nil {
		return own, err
	}
	own.witness, own.address = signer.WitnessKey, bare(cfg.WitnessURL)
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

// fetchPeer reads what an installation publishes about itself. Nothing of it is trusted yet.
func fetchPeer(ctx context.Context, base string) (other peer, err error) {
	if err := transparency.CheckAddress(base); err != nil {
		return other, say.Errorf("%s: %w", base, err)
	}
	at, err := url.Parse(base)
	if err != nil {
		return other, err
	}
	at.Host = strings.ToLower(at.Host) // the scheme is in lower case already
	base = bare(at.String())
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
	return publishedPeer(base, published)
}

// publishedPeer checks what an installation publishes. Its names and its address will be lines of our settings, so they
// must be what they seem.
func publishedPeer(base string, published wire.Independence) (other peer, err error) {
	other.base = base
	if published.Witness == nil {
		return other, say.Errorf(
			"%s publishes no witness key: its operator must set %sWITNESS_NAME, run integrity keys witness if the service does "+
				"not run its own database, and restart the service",
			base, config.Prefix,
		)
	}
	if published.Witness.Address == nil {
		return other, say.Errorf(
			"%s publishes no address of its witness: its operator must set %sWITNESS_URL and restart the service", base,
			config.Prefix,
		)
	}
	if other.witness, err = evidence.ParseWitnessKey(published.Witness.VerifierKey); err != nil {
		return other, say.Errorf("%s: %w", base, err)
	}
	other.address = bare(*published.Witness.Address)
	if _, err := transparency.NewWitness(other.witness.VerifierKey, other.address); err != nil {
		return other, say.Errorf("%s: %w", base, err)
	}
	if err := checkReach(base, other.address); err != nil {
		return other, err
	}
	for _, k := range published.LogKeys {
		if k.Status != "trusted" {
			continue
		}
		key, err := evidence.ParseLogKey(k.VerifierKey)
		if err == nil {
			err = evidence.CheckListedName(key.Name)
		}
		if err != nil {
			return other, say.Errorf("%s: %w", base, err)
		}
		if !slices.Contains(other.logs, key) {
			other.logs = append(other.logs, key)
		}
	}
	if len(other.logs) == 0 {
		return other, say.Errorf("%s publishes no log key", base)
	}
	return other, nil
}

// checkReach refuses a witness address that leaves the way to the service: http if the service has https, or an address
// of this machine or its link if the service is elsewhere. Addresses in private networks are accepted, because
// companies have witnesses there.
func checkReach(base, address string) error {
	service, err := url.Parse(base)
	if err != nil {
		return err
	}
	to, err := url.Parse(address)
	if err != nil {
		return err
	}
	if service.Scheme == "https" && to.Scheme != "https" {
		return say.Errorf("%s: the address of its witness must be https too, but it is %q", base, address)
	}
	host := strings.TrimSuffix(strings.ToLower(to.Hostname()), ".")
	ip, _ := netip.ParseAddr(host) // the zero address if the host is a name
	ip = ip.Unmap()
	if !domain.IsLoopbackHost(service.Hostname()) && (host == "localhost" || strings.HasSuffix(host, ".localhost") ||
		ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() && ip.IsValid()) {
		return say.Errorf(
			"%s: the address of its witness must not be on this machine or its link, but it is %q", base, address,
		)
	}
	return nil
}

// describe shows what will be configured, and what will be removed.
func (a signingKeys) describe(other peer, view PairView) {
	a.tell("the other installation   %s", other.base)
	a.tell("  its witness            %s, %s", cli.Visible(other.witness.Name), cli.Visible(other.address))
	for _, name := range other.origins() {
		a.tell("  its log                %s", cli.Visible(name))
	}
	a.tell("  its fingerprint        %s", spoken(view.Fingerprint))
	a.tell("  our own fingerprint    %s", spoken(view.OwnFingerprint))
	for _, r := range view.Removed {
		a.tell("  will be removed from %s: %s", r.File, cli.Visible(r.Line))
	}
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
	a.tell("Call its operator. Let them read out both fingerprints, the address and the log, as their own command shows " +
		"them.")
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

func pairText(view PairView) say.Phrase {
	var lines text
	lines.Sayf("paired with %s\n", view.Witness.Name)
	for _, r := range view.Removed {
		lines.Sayf("removed from %s: %s\n", r.File, cli.Visible(r.Line))
	}
	for _, path := range view.Changed {
		lines.Sayf("wrote %s\n", path)
	}
	if len(view.Changed) == 0 {
		lines.Sayf("nothing had to be written\n")
	}
	lines.Sayf("If there are several servers, copy these files to each. Now restart integrity serve, and start " +
		"integrity witness or send it SIGHUP. The other operator runs the same command with the address of this service. " +
		"Then /trust shows the cosignatures.\n")
	return lines
}
