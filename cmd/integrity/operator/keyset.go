package operator

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
)

// KeySetView is the JSON output of integrity keys publish.
type KeySetView struct {
	SHA256      string `json:"payloadSha256"`
	Event       string `json:"event"`
	PublishedAt string `json:"publishedAt"`
	Published   bool   `json:"published"` // by this run
	// LeafIndex and TreeSize are nil until a checkpoint covers the event.
	LeafIndex *int64 `json:"leafIndex"`
	TreeSize  *int64 `json:"treeSize"`
}

func (a signingKeys) keysPublishCommand() *cobra.Command {
	v := a.verb("keys publish", "DATABASE_URL", "DATA_DIR", "PLANS", "CLOCK_TOLERANCE", "BASE_URL", "TRUSTED_KEYS",
		"SIGNING_KEY", "TRANSPARENCY", "TRANSPARENCY_KEY")
	return v.onSettings(func(_ context.Context, cfg *config.Config) error {
		if !cfg.Transparency {
			return say.Errorf("this installation keeps no transparency log in which the keys could be published")
		}
		// Read the keys before opening the ledger, because opening creates a missing ledger.
		trusted, err := publishable(cfg)
		if err != nil {
			return err
		}
		return ledger.With(a.App, v.Command, func(ctx context.Context, l *ledger.Opened) error {
			_, err := cfg.LogSource().LogSigner(evidence.LogName(l.Installation.Issuer), trusted)
			if err != nil && !errors.Is(err, evidence.ErrRevokedKey) { // a revocation must be published too
				return err
			}
			set, err := evidence.NewKeySet(l.Installation.Issuer, trusted)
			if err != nil {
				return err
			}
			last, sequence, err := transparency.ReadPublishedKeys(ctx, l.Read)
			none := errors.Is(err, transparency.ErrNoKeySet)
			if err != nil && !none {
				return err
			}
			view := KeySetView{Published: none || last.SHA256() != set.SHA256()}
			if view.Published {
				origin := ledger.Origin(a.App, domain.InstallationID)
				if err := l.Do(ctx, &domain.PublishKeys{Origin: origin, Set: set, After: sequence}); err != nil {
					return err
				}
			}
			return v.printKeySet(ctx, l, view)
		})
	})
}

// publishable reads the trusted-keys file, which must list the signing key: as a trusted key, or as a revoked one.
func publishable(cfg *config.Config) (*evidence.TrustedKeys, error) {
	trusted, err := keyfiles.ReadTrusted(cfg.TrustedKeysPath())
	if err != nil {
		return nil, err
	}
	signer, err := cfg.SigningSource().Current()
	switch {
	case err != nil:
		return nil, err
	case signer == nil:
		return nil, say.Errorf("there is no signing key: give the settings of the service")
	case !trusted.Trusts(signer.Key()) && !isRevoked(trusted, signer.Key().KeyID):
		return nil, say.Errorf("the signing key %s is not trusted by %s", signer.Key().KeyID, cfg.TrustedKeysPath())
	}
	return trusted, nil
}

// printKeySet prints the key set that was published last, and how to obtain its proof.
func (v *verb) printKeySet(ctx context.Context, l *ledger.Opened, view KeySetView) error {
	last, proof, err := (&transparency.Reader{Pool: l.Read}).PublishedKeys(ctx)
	if err != nil && !errors.Is(err, transparency.ErrNotIntegrated) {
		return err
	}
	view.SHA256, view.Event = last.SHA256().String(), last.Event.ID.String()
	view.PublishedAt = cli.TimeText(last.Event.OccurredAt)
	var lines text
	if view.Published {
		lines.Sayf("published  %s\n", view.PublishedAt)
	} else {
		lines.Sayf("nothing to do: the trusted keys were published at %s\n", view.PublishedAt)
	}
	lines.Sayf("SHA-256    %s\nevent      %s\n", view.SHA256, view.Event)
	if proof == nil {
		lines.Sayf("The running service adds the event to the transparency log within seconds. Then the proof is at\n")
	} else {
		view.LeafIndex, view.TreeSize = &proof.LeafIndex, &proof.TreeSize
		lines.Sayf("leaf       %d, in the checkpoint of %d leaves\nThe proof is at\n", proof.LeafIndex, proof.TreeSize)
	}
	lines.Sayf("  %s\nCheck it: integrity verify-keys --help\n", l.Config.BaseURL+"/api/public/log/keys")
	return v.print(view, lines)
}

// unpublished says why verifiers cannot obtain the trusted keys from the transparency log, zero if they can.
func unpublished(
	ctx context.Context, pool *pgxpool.Pool, issuer string, trusted *evidence.TrustedKeys,
) (say.Sentence, error) {
	set, err := evidence.NewKeySet(issuer, trusted)
	if err != nil {
		return say.Sentence{}, err
	}
	last, _, err := transparency.ReadPublishedKeys(ctx, pool)
	switch {
	case errors.Is(err, transparency.ErrNoKeySet):
		return say.Sentencef("the trusted keys are not published in the transparency log"), nil
	case err != nil:
		return say.Sentence{}, err
	case last.SHA256() != set.SHA256():
		return say.Sentencef(
			"the trusted keys have changed since they were published in the transparency log (%s)",
			cli.TimeText(last.Event.OccurredAt),
		), nil
	}
	return say.Sentence{}, nil
}
