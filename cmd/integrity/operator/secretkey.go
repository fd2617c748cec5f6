package operator

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/domain"
	"integrityledger/domain/say"
	"integrityledger/eventstore"
	"integrityledger/eventstore/wait"
	"integrityledger/projections/queue"
)

// processPatience is how long to wait until every process knows a key. A process that was killed is listed for 30 s.
const processPatience = 40 * time.Second

// SecretKeyView is one of the keys that encrypt webhook secrets.
type SecretKeyView struct {
	ID         string `json:"id"`
	Configured bool   `json:"configured"` // in the settings of this command
	Encrypts   bool   `json:"encrypts"`   // the first one of these settings
	Secrets    *int   `json:"secrets"`    // that it has encrypted; null if they were not counted
}

// secretKeysView is the state of a rotation.
type secretKeysView struct {
	Keys        []SecretKeyView `json:"keys"`
	Webhooks    int             `json:"webhooks"`    // destinations encrypted again by this run
	Invitations int             `json:"invitations"` // codes encrypted again by this run
	Unreadable  int             `json:"unreadable"`  // destinations and codes that this run could not decrypt
	// Needed gives the reasons why another key than the first is still needed. It is empty if none is.
	Needed []string `json:"needed"`

	text text
}

// secretRotation is a run of the command.
type secretRotation struct {
	*verb
	source keyfiles.Source
	keys   domain.SecretKeys
}

func (a signingKeys) keysRotateSecretCommand() *cobra.Command {
	v := a.verb("keys rotate-secret", "DATABASE_URL", "DATA_DIR", "PLANS", "CLOCK_TOLERANCE", "SECRET_KEY")
	stage := v.Flags().Bool("stage", false, "first step: create a key that only decrypts")
	activate := v.Flags().String("activate", "", "second step: the id of the key that encrypts from now on")
	reencrypt := v.Flags().Bool("reencrypt", false, "third step: encrypt every stored secret with the first key")
	check := v.Flags().Bool("check", false, "say whether another key than the first is still needed; changes nothing")
	retire := v.Flags().Bool("retire", false, "last step: remove all keys but the first, once nothing needs them")
	steps := []string{"stage", "activate", "reencrypt", "check", "retire"}
	v.MarkFlagsMutuallyExclusive(steps...)
	v.MarkFlagsOneRequired(steps...)
	return v.onSettings(func(ctx context.Context, cfg *config.Config) error {
		r := &secretRotation{verb: v, source: cfg.SecretSource()}
		if path := r.source.Path(); path != "" && !*check && !*reencrypt {
			unlock, err := keyfiles.LockKeys(keyfiles.Absolute(filepath.Dir(path)))
			if err != nil {
				return err
			}
			defer unlock()
		}
		var err error
		if r.keys, err = r.source.SecretKeys(); err != nil {
			return err
		}
		if *stage {
			return r.stage()
		}
		return ledger.With(v.app.App, v.Command, func(ctx context.Context, l *ledger.Opened) error {
			switch {
			case *reencrypt:
				return r.reencrypt(ctx, l)
			case *check:
				return r.finish(ctx, l, queue.Reencrypted{})
			case *retire:
				return r.retire(ctx, l)
			default:
				return r.activate(ctx, l, *activate)
			}
		})
	})
}

// stage adds a key that every process must know before it encrypts.
func (r *secretRotation) stage() error {
	if len(r.keys) > 1 {
		return cli.Negativef("there are %d keys already (%s): activate one, or remove the others with --retire",
			len(r.keys), strings.Join(r.keys.IDs(), ", "))
	}
	key, _ := domain.NewSecretKey()
	for slices.Contains(r.keys.IDs(), key.ID()) {
		key, _ = domain.NewSecretKey()
	}
	if err := r.change(append(r.keys, key)); err != nil {
		return err
	}
	return r.follow(say.Sentencef("Copy the file to every server and send SIGHUP to each. Then: %s",
		"integrity keys rotate-secret --activate "+key.ID()))
}

// activate makes a key the first one, once every process can decrypt with it.
func (r *secretRotation) activate(ctx context.Context, l *ledger.Opened, id string) error {
	i := slices.Index(r.keys.IDs(), id)
	if i < 0 {
		return say.Errorf("--activate: there is no key %q; the keys are %s", id, strings.Join(r.keys.IDs(), ", "))
	}
	if err := r.known(ctx, l, id); err != nil {
		return err
	}
	if i > 0 {
		order := slices.Insert(slices.Delete(slices.Clone(r.keys), i, i+1), 0, r.keys[i])
		if err := r.change(order); err != nil {
			return err
		}
	}
	return r.follow(say.Sentencef("Copy the file to every server and send SIGHUP to each. Then: %s",
		"integrity keys rotate-secret --reencrypt"))
}

func (r *secretRotation) reencrypt(ctx context.Context, l *ledger.Opened) error {
	if err := r.known(ctx, l, r.keys[0].ID()); err != nil {
		return err
	}
	pool, err := l.Primary.QueuePool(ctx, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	secrets := queue.Secrets{Pool: pool, Shards: l.Installation.Shards, Now: r.app.Now}
	done, err := secrets.Reencrypt(ctx, r.keys, func(o domain.OrganizationID) domain.Origin {
		return ledger.Origin(r.app.App, o)
	}, l.Do)
	if err != nil {
		return say.Errorf("%d destinations and %d invitations are done; run the same command again for the rest: %w",
			done.Webhooks, done.Invitations, err)
	}
	return r.finish(ctx, l, done)
}

func (r *secretRotation) retire(ctx context.Context, l *ledger.Opened) error {
	if _, needed, err := r.state(ctx, l); err != nil || needed {
		if err != nil {
			return err
		}
		return r.finish(ctx, l, queue.Reencrypted{})
	}
	if len(r.keys) > 1 {
		if err := r.change(r.keys[:1]); err != nil {
			return err
		}
	}
	return r.follow(say.Sentencef("Copy the file to every server and send SIGHUP to each. Keep the former key as long as the " +
		"backups from before: a restored backup needs it."))
}

// finish prints the state. The answer is no if another key than the first is still needed.
func (r *secretRotation) finish(ctx context.Context, l *ledger.Opened, done queue.Reencrypted) error {
	view, needed, err := r.state(ctx, l)
	if err != nil {
		return err
	}
	view.Webhooks, view.Invitations, view.Unreadable = done.Webhooks, done.Invitations, done.Unreadable
	if done != (queue.Reencrypted{}) {
		view.text.line("encrypted again: %d destinations, %d invitations; damaged or without a key: %d",
			done.Webhooks, done.Invitations, done.Unreadable)
	}
	if !needed {
		view.text.line("No other key is needed: %s", "integrity keys rotate-secret --retire")
	}
	if err := r.print(view, view.text); err != nil || !needed {
		return err
	}
	return cli.NegativeError("")
}

// state counts what each key has encrypted, and asks the processes which keys they use.
func (r *secretRotation) state(ctx context.Context, l *ledger.Opened) (view secretKeysView, needed bool, err error) {
	secrets := queue.Secrets{Pool: l.Read, Shards: l.Installation.Shards, Now: r.app.Now}
	// The processes first: one that uses the first key alone stores nothing under another one afterwards.
	processes, err := eventstore.Processes(ctx, l.Read)
	if err != nil {
		return view, false, err
	}
	stored, err := secrets.Stored(ctx)
	if err != nil {
		return view, false, err
	}
	first := r.keys[0].ID()
	view.Needed = []string{}
	because := func(reason say.Sentence) {
		view.Needed = append(view.Needed, say.In(say.Catalogue{}, reason))
		view.text.line("%s", reason)
	}
	for _, id := range r.keys.IDs() {
		view.Keys = append(view.Keys, SecretKeyView{id, true, id == first, new(stored[id])})
	}
	for _, id := range slices.Sorted(maps.Keys(stored)) {
		if !slices.Contains(r.keys.IDs(), id) {
			view.Keys = append(view.Keys, SecretKeyView{ID: id, Secrets: new(stored[id])})
		}
	}
	for _, k := range view.Keys {
		view.text = append(view.text, k.line())
	}
	for _, k := range view.Keys {
		switch {
		case k.Encrypts || *k.Secrets == 0:
		case k.Configured:
			because(say.Sentencef("%d secrets are encrypted with the key %s: %s", *k.Secrets, k.ID,
				"integrity keys rotate-secret --reencrypt"))
		default:
			because(say.Sentencef("%d secrets are encrypted with the key %s, which is not configured: add it after the "+
				"first key, or give these destinations new secrets", *k.Secrets, k.ID))
		}
	}
	for _, p := range processes {
		if len(p.SecretKeys) == 0 || p.SecretKeys[0] != first {
			because(say.Sentencef("the process %s encrypts with the key %s: give it the file and send SIGHUP", p.Name,
				strings.Join(p.SecretKeys[:min(1, len(p.SecretKeys))], "")))
		}
	}
	return view, len(view.Needed) > 0, nil
}

func (v SecretKeyView) line() say.Phrase {
	var line text
	use := say.Word("decrypts")
	switch {
	case v.Encrypts:
		use = "encrypts"
	case !v.Configured:
		use = "is missing"
	}
	line.Sayf("key %s  %s", v.ID, use)
	if v.Secrets != nil {
		line.Sayf("  %d secrets", *v.Secrets)
	}
	line.Sayf("\n")
	return line
}

// known waits until every process that serves can decrypt with a key.
func (r *secretRotation) known(ctx context.Context, l *ledger.Opened, id string) error {
	for end, told := time.Now().Add(processPatience), false; ; told = true {
		processes, err := eventstore.Processes(ctx, l.Read)
		if err != nil {
			return err
		}
		var lacking []string
		for _, p := range processes {
			if !slices.Contains(p.SecretKeys, id) {
				lacking = append(lacking, p.Name)
			}
		}
		if lacking == nil {
			return nil
		}
		if time.Now().After(end) {
			return cli.Negativef("these processes do not know the key %s: %s; give each the file and send SIGHUP, then run "+
				"the same command again", id, strings.Join(lacking, ", "))
		}
		if !told {
			r.app.tell("waiting for these processes to know the key %s: %s", id, strings.Join(lacking, ", "))
		}
		if err := wait.For(ctx, time.Second); err != nil {
			return err
		}
	}
}

// change writes the file of the keys.
func (r *secretRotation) change(keys domain.SecretKeys) error {
	if r.source.Path() == "" {
		return say.Errorf("the keys come from %s itself: put them into a file that %s_FILE names, or set the variable by hand",
			r.source.Variable, r.source.Variable)
	}
	if err := r.source.WriteSecretKeys(keys); err != nil {
		return err
	}
	r.keys = keys
	return nil
}

// follow prints the keys and what to do next.
func (r *secretRotation) follow(next say.Phrase) error {
	view := secretKeysView{Needed: []string{}}
	for i, id := range r.keys.IDs() {
		view.Keys = append(view.Keys, SecretKeyView{ID: id, Configured: true, Encrypts: i == 0})
	}
	view.text.line("%s", r.source.Path())
	for _, k := range view.Keys {
		view.text = append(view.text, k.line())
	}
	view.text.line("%s", next)
	return r.print(view, view.text)
}
