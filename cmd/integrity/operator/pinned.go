package operator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
)

// pins creates a command that changes the witnesses or timestamp authorities pinned in the trusted-keys file.
func (a signingKeys) pins(
	name string,
	change func(
		v *verb, trusted *evidence.TrustedKeys,
	) (changed *evidence.TrustedKeys, view any, done say.Phrase, err error),
) *verb {
	v := a.verb(name, "DATA_DIR", "TRUSTED_KEYS", "SIGNING_KEY")
	v.onSettings(func(_ context.Context, cfg *config.Config) error {
		var view any
		var done say.Phrase
		if err := cfg.SigningSource().Change(func(
			_ keyfiles.Files, trusted *evidence.TrustedKeys,
		) (changed *evidence.TrustedKeys, err error) {
			if changed, view, done, err = change(v, trusted); err != nil {
				err = keyRefusal(err)
			}
			return changed, err
		}); err != nil {
			return err
		}
		return v.print(view, text{done, say.Sentencef("Send SIGHUP to every server and distribute the trusted-keys file.\n")})
	})
	return v
}

func (a signingKeys) keysAddWitnessCommand() *cobra.Command {
	return a.pins("keys add-witness",
		func(v *verb, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, any, say.Phrase, error) {
			key, err := evidence.ParseWitnessKey(v.args[0])
			if err != nil {
				return nil, nil, nil, err
			}
			changed, err := trusted.AddWitnessKey(key)
			return changed, key, say.Sentencef("pinned the witness %s  %s\n", key.Name, key.KeyHash), err
		}).Command
}

// unpinned is the result of a command that removes a pin.
type unpinned struct {
	Removed string `json:"removed"`
}

func (a signingKeys) keysRemoveWitnessCommand() *cobra.Command {
	return a.pins("keys remove-witness",
		func(v *verb, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, any, say.Phrase, error) {
			changed, err := trusted.RemoveWitnessKey(v.args[0])
			return changed, unpinned{v.args[0]}, say.Sentencef("the witness %s is no longer pinned\n", v.args[0]), err
		}).Command
}

func (a signingKeys) keysRemoveAuthorityCommand() *cobra.Command {
	return a.pins("keys remove-authority",
		func(v *verb, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, any, say.Phrase, error) {
			changed, err := trusted.RemoveAuthority(v.args[0])
			return changed, unpinned{
				v.args[0],
			}, say.Sentencef("the timestamp authority %s is no longer pinned\n", v.args[0]), err
		}).Command
}

func (a signingKeys) keysAddAuthorityCommand() *cobra.Command {
	v := a.pins("keys add-authority",
		func(v *verb, trusted *evidence.TrustedKeys) (*evidence.TrustedKeys, any, say.Phrase, error) {
			var certificates [][]byte
			for _, path := range v.args[1:] {
				found, err := readCertificates(path)
				if err != nil {
					return nil, nil, nil, err
				}
				certificates = append(certificates, found...)
			}
			authority, err := evidence.NewAuthority(v.args[0], certificates)
			if err != nil {
				return nil, nil, nil, err
			}
			_, replaced := trusted.Authority(authority.Name)
			changed, err := trusted.PutAuthority(authority)
			view := viewAuthority(authority, replaced)
			return changed, view, view.text(), err
		})
	v.Args = cli.Arguments(2, 9)
	return v.Command
}

// maxCertificateFileBytes is the largest certificate file that is read.
const maxCertificateFileBytes = 1 << 20

// readCertificates reads a file that holds PEM certificates or one DER certificate.
func readCertificates(path string) (certificates [][]byte, err error) {
	f, err := keyfiles.OpenRegular(path)
	if err != nil {
		return nil, say.Errorf("certificates: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxCertificateFileBytes+1))
	if err != nil {
		return nil, say.Errorf("certificates: %w", err)
	}
	if len(text) > maxCertificateFileBytes {
		return nil, say.Errorf("%s: must be at most %d bytes", path, maxCertificateFileBytes)
	}
	if !bytes.Contains(text, []byte("-----BEGIN ")) {
		return [][]byte{text}, nil
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			return nil, say.Errorf("%s: must hold only certificates, but holds a block %s", path, block.Type)
		}
		certificates = append(certificates, block.Bytes)
	}
	if certificates == nil {
		return nil, say.Errorf("%s: holds no readable PEM certificate", path)
	}
	return certificates, nil
}

// authorityView is a timestamp authority as it was pinned.
type authorityView struct {
	Name         string            `json:"name"`
	Replaced     bool              `json:"replaced"` // the name had other certificates before
	Certificates []certificateView `json:"certificates"`
}

// certificateView shows a certificate with the details that its authority publishes for comparison.
type certificateView struct {
	Subject           string   `json:"subject"`
	NotBefore         string   `json:"notBefore"`
	NotAfter          string   `json:"notAfter"`
	Usage             say.Word `json:"usage"`
	FingerprintSHA256 string   `json:"fingerprintSha256"` // of the DER encoding, in hexadecimal
}

func viewAuthority(a evidence.Authority, replaced bool) authorityView {
	v := authorityView{Name: a.Name, Replaced: replaced}
	for _, c := range a.Anchors() {
		sum := sha256.Sum256(c.Raw)
		v.Certificates = append(v.Certificates, certificateView{
			Subject: c.Subject.String(), NotBefore: evidence.FormatTime(c.NotBefore), NotAfter: evidence.FormatTime(c.NotAfter),
			Usage: usageOf(c), FingerprintSHA256: hex.EncodeToString(sum[:]),
		})
	}
	return v
}

// usageOf describes what a certificate may sign, as far as tokens are concerned.
func usageOf(c *x509.Certificate) say.Word {
	switch {
	case c.IsCA && (c.KeyUsage == 0 || c.KeyUsage&x509.KeyUsageCertSign != 0):
		return "signs certificates"
	case slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageTimeStamping):
		return "signs timestamps"
	}
	return "signs neither certificates nor timestamps: no token can chain to it"
}

func (c certificateView) line() say.Phrase {
	return say.Sentencef("%s  %s to %s  %s  SHA-256 %s", c.Subject, c.NotBefore, c.NotAfter, c.Usage, c.FingerprintSHA256)
}

func (v authorityView) text() say.Phrase {
	var b text
	b.Sayf("pinned the timestamp authority %s", v.Name)
	if v.Replaced {
		b.Sayf(", replacing its former certificates")
	}
	b.Sayf("\n")
	for _, c := range v.Certificates {
		b.Sayf("%s\n", c.line())
	}
	return b
}
