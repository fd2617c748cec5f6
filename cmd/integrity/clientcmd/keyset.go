package clientcmd

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/handlers/wire"
)

// provenKeys is the JSON output of integrity verify-keys.
type provenKeys struct {
	Issuer        string                `json:"issuer"`
	PublishedAt   string                `json:"publishedAt"`
	PayloadSHA256 evidence.Hash         `json:"payloadSha256"`
	Origin        string                `json:"origin"`
	TreeSize      int64                 `json:"treeSize"`
	LeafIndex     int64                 `json:"leafIndex"`
	LogKeyPinned  bool                  `json:"logKeyPinned"`
	LogKeyListed  bool                  `json:"logKeyListed"`
	Witnesses     []string              `json:"witnesses"`
	CosignedAt    *string               `json:"cosignedAt"`
	FileMatch     *bool                 `json:"fileMatch"` // nil if no file was compared
	Keys          []evidence.TrustedKey `json:"-"`
}

func (a *app) verifyKeysCommand() *cobra.Command {
	c := manual().Command("verify-keys")
	logKeys := c.Flags().StringArray(
		"log-key", nil, "verifier key of the log (name+hash+base64) that you pin (repeatable)",
	)
	witnessKeys := c.Flags().StringArray("witness-key", nil, "verifier key of a witness that you pin (repeatable)")
	pinned := c.Flags().String("pinned", "", "trusted-keys file whose log keys and witness keys you pin")
	origin := c.Flags().String("origin", "", "name of the log; required if only witnesses are pinned")
	issuer := c.Flags().String("issuer", "", "issuer of the keys; required if the log is not named after it")
	witnesses := c.Flags().Int(
		"require-witnesses", 0, "number of pinned witnesses that must have cosigned the checkpoint",
	)
	output := c.Flags().StringP("output", "o", "", "file to write the proven trusted-keys file to")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(_ *cobra.Command, args []string) error {
		trusted, err := pins(*pinned, *logKeys, *witnessKeys)
		if err != nil {
			return err
		}
		switch {
		case *witnesses < 0:
			return say.Errorf("--require-witnesses must be 0 or more")
		case len(trusted.LogKeys()) == 0 && (len(trusted.WitnessKeys()) == 0 || *origin == ""):
			return say.Errorf("give --log-key, or --witness-key with --origin, the name of the log such as ledger.example/log")
		}
		proof, err := readAtMost(say.Word("proof"), args[0], evidence.MaxKeySetProofBytes)
		if err != nil {
			return err
		}
		found, err := evidence.VerifyKeySet(proof, evidence.KeySetPins{
			Trusted: trusted, Origin: *origin, Issuer: *issuer, Witnesses: *witnesses, Now: a.Now(),
		})
		if refused := serviceRefusal(proof); err != nil && refused != nil {
			return say.Errorf("%s is no proof, but a refusal of the service: %s: %s", args[0], cli.Visible(string(refused.Code)),
				cli.Visible(refused.Detail))
		}
		if err != nil {
			return cli.Negativef("the keys are NOT proven: %w", err)
		}
		view := viewProven(found)
		if len(args) == 2 {
			file, err := keyfiles.ReadFile(args[1])
			if err != nil {
				return err
			}
			match, err := found.Contains(file)
			if err != nil {
				return say.Errorf("%s: %w", args[1], err)
			}
			view.FileMatch = &match
		}
		if *output != "" && (view.FileMatch == nil || *view.FileMatch) {
			file, err := found.File()
			if err == nil {
				err = keyfiles.Replace(*output, file, 0o644)
			}
			if err != nil {
				return err
			}
		}
		return a.answer(*asJSON, view, a.describeProven(view), view.FileMatch == nil || *view.FileMatch)
	}
	return c
}

// serviceRefusal reads an answer in which the service refuses, or returns nil.
func serviceRefusal(text []byte) *wire.Failure {
	var answer struct{ Error *wire.Failure }
	if json.Unmarshal(text, &answer) != nil || answer.Error == nil || answer.Error.Code == "" {
		return nil
	}
	return answer.Error
}

// pins collects what the reader pins. Signing keys in the file do not matter.
func pins(file string, logKeys, witnessKeys []string) (trusted *evidence.TrustedKeys, err error) {
	if trusted, err = evidence.NewTrustedKeys(nil, nil, nil); err == nil && file != "" {
		trusted, err = keyfiles.ReadTrusted(file)
	}
	if err != nil {
		return nil, err
	}
	for _, text := range logKeys {
		key, err := evidence.ParseLogKey(text)
		if err == nil {
			trusted, err = trusted.AddLogKey(key)
		}
		if err != nil {
			return nil, say.Errorf("--log-key: %w", err)
		}
	}
	for _, text := range witnessKeys {
		key, err := evidence.ParseWitnessKey(text)
		if err == nil {
			trusted, err = trusted.AddWitnessKey(key)
		}
		if err != nil {
			return nil, say.Errorf("--witness-key: %w", err)
		}
	}
	return trusted, nil
}

func viewProven(found evidence.ProvenKeySet) provenKeys {
	view := provenKeys{
		Issuer: found.Issuer, PublishedAt: evidence.FormatTime(found.PublishedAt), PayloadSHA256: found.SHA256(),
		Origin: found.Checkpoint.Origin, TreeSize: found.Checkpoint.Size, LeafIndex: found.LeafIndex,
		LogKeyPinned: found.LogKeyPinned, LogKeyListed: found.LogKeyListed, Witnesses: append([]string{}, found.Witnesses...),
		Keys: found.Trusted.Keys(),
	}
	if found.CosignedAt != nil {
		view.CosignedAt = new(evidence.FormatTime(*found.CosignedAt))
	}
	return view
}

func (a *app) describeProven(v provenKeys) string {
	var b strings.Builder
	write := func(name, text string) { fmt.Fprintf(&b, "%-13s %s\n", name, text) }
	sayLine := func(name, format string, values ...any) { write(name, a.Sayf(format, values...)) }
	sayLine("keys", "published by %s at %s, by its clock", v.Issuer, v.PublishedAt)
	write("payloadSha256", v.PayloadSHA256.String())
	sayLine("log", "%s, leaf %d, checkpoint of %d leaves", v.Origin, v.LeafIndex, v.TreeSize)
	if v.CosignedAt != nil {
		sayLine("witnesses", "%s; the last one cosigned at %s", strings.Join(v.Witnesses, ", "), *v.CosignedAt)
	} else {
		sayLine("witnesses", "no pinned witness cosigned the checkpoint")
	}
	for _, k := range v.Keys {
		write(string(k.Status), k.KeyID+"  "+k.FingerprintSHA256)
	}
	switch {
	case v.FileMatch == nil:
	case *v.FileMatch:
		sayLine("file", "has the same content as the published keys")
	default:
		sayLine("file", "DIFFERS from the published keys")
	}
	if !v.LogKeyListed {
		write(a.Sayf("note"), a.Sayf("The keys do not include the log key that signed the checkpoint: it was rotated, and "+
			"the new keys are not published yet."))
	}
	write(a.Sayf("note"), a.Sayf("Everyone who sees this log sees that the service published these keys. That does not "+
		"show that the keys are good, nor that no later ones were published."))
	return b.String()
}

// readAtMost reads at most one byte more than a verifier accepts, so that a longer file is rejected as too long.
func readAtMost(what say.Word, path string, most int64) ([]byte, error) {
	f, err := keyfiles.OpenRegular(path)
	if err != nil {
		return nil, say.Errorf("%s: %w", what, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, say.Errorf("%s: %w", what, err)
	}
	return text, nil
}
