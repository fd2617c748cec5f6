package operator

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/internal/ledger"
	"integrityledger/cmd/integrity/operator/heal"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/domain/say"
	"integrityledger/eventstore/transparency"
	"integrityledger/projections"
)

// healBatch is the number of records that are looked up, or restored, at a time.
const healBatch = 256

// HealView is one record that a client holds and that the ledger lacks, or refuses.
type HealView struct {
	State             string  `json:"state"` // a domain.HealState
	PublicID          *string `json:"publicId"`
	CompanyReference  *string `json:"companyReference"`
	Source            *string `json:"source"`
	DocumentReference *string `json:"documentReference"`
	Version           *int32  `json:"version"`
	ReceivedAt        *string `json:"receivedAt"` // by the receipt
	AliasOf           *string `json:"aliasOf"`
	Revoked           bool    `json:"revoked"` // a signed observation says so
	Place             string  `json:"place"`
	Reason            *string `json:"reason"`
	Detail            *string `json:"detail"`
	Applied           bool    `json:"applied"`
}

// HealedView counts the items of a plan, or the restored items, by state.
type HealedView struct {
	Present    int `json:"present"`
	Provable   int `json:"provable"`
	Declared   int `json:"declared"`
	Alias      int `json:"alias"`
	Revocation int `json:"revocation"`
	Refused    int `json:"refused"`
	Restored   int `json:"restored"`

	Missing []MissingView `json:"missing"` // of a plan, in the order of --sequence and --published
}

// MissingView compares what others have seen with the ledger.
type MissingView struct {
	Of   string `json:"of"`   // organization, or ledger: all organizations
	Seen int64  `json:"seen"` // the last sequence, or the size of the transparency log
	Has  int64  `json:"has"`
	Lost int64  `json:"lost"` // at least so many events
	// Unproven is Lost without the records that the files bring back, at least 0; nil for the ledger, because one
	// organization handed in the files.
	Unproven *int64 `json:"unproven"`
}

// seen is what others have seen of the ledger.
type seen struct {
	sequence  int64    // of the organization; 0: not given
	published []string // files with checkpoints
}

// healer plans or restores the lost records of one organization.
type healer struct {
	*verb
	l         *ledger.Opened
	id        domain.OrganizationID
	registrar domain.Registrar
	apply     bool
	declared  bool // also restore records that only an origin declares
	seen      seen
	out       *bufio.Writer
	sum       HealedView
	left      int // declared records that were not restored
}

func (a *app) healCommand() *cobra.Command {
	return cli.Group(
		"heal", "Bring back records that the ledger has lost", a.healVerb("heal plan", false), a.healVerb("heal apply", true),
	)
}

func (a *app) healVerb(name string, apply bool) *cobra.Command {
	v := a.verb(name, "DATABASE_URL", "DATA_DIR", "PLANS", "CLOCK_TOLERANCE", "SIGNING_KEY", "TRUSTED_KEYS")
	v.Args = cli.Arguments(1, math.MaxInt)
	v.describeJSON("print JSON: a line for each record that is lost or refused, then a summary line")
	id := v.organization("id of the organization whose files these are (org_…)", true)
	declared := new(bool)
	var others seen
	if apply {
		v.Flags().BoolVar(declared, "declared", false,
			"also restore records without a receipt, which only the organization declares")
	} else {
		v.Flags().Int64Var(&others.sequence, "sequence", 0,
			"the highest sequence of the organization that a feed reader, webhook receiver or stream holds")
		v.Flags().StringArrayVar(&others.published, "published", nil,
			"file with a checkpoint that a monitor, witness or reader holds; may be repeated")
	}
	return v.onLedger(func(ctx context.Context, l *ledger.Opened) (err error) {
		if _, err := l.Store.Organization(ctx, *id); err != nil {
			return err
		}
		signer, trusted, why, err := l.Config.SigningSource().Read()
		switch {
		case err != nil:
			return err
		case signer == nil:
			return say.Errorf("records cannot be healed without the signing key: %w", why)
		}
		h := &healer{
			verb: v, l: l, id: *id, apply: apply, declared: *declared, seen: others, out: bufio.NewWriter(a.Out),
			registrar: domain.Registrar{Issuer: l.Installation.Issuer, Secret: l.Installation.Secret, Signer: signer},
		}
		if !slices.Contains(l.Installation.Rules, domain.HealedRecords) {
			if apply {
				return cli.Negativef(
					"records are healed only once every process knows such events: run integrity upgrade finish first",
				)
			}
			_, _ = fmt.Fprintln(a.Errs, a.Sayf("before heal apply, run integrity upgrade finish"))
		}
		return h.run(ctx, trusted)
	})
}

func (h *healer) run(ctx context.Context, trusted *evidence.TrustedKeys) (err error) {
	defer flush(h.out, &err)
	stage := &heal.Stage{
		Issuer: h.l.Installation.Issuer, Trusted: trusted, Now: h.app.Now(),
		Refused: func(place string, why error) error {
			return h.show(HealView{
				State: string(domain.HealRefused), Place: place, Reason: new("UNUSABLE"), Detail: new(h.app.ErrorText(why)),
			})
		},
	}
	if err := stage.Open(ctx); err != nil {
		return err
	}
	defer func() { _ = stage.Close() }()
	if err := stage.Read(ctx, h.args); err != nil {
		return err
	}
	var batch []heal.Item
	if err := stage.Versions(ctx, func(items []heal.Item) error {
		batch = append(batch, items...)
		if len(batch) < healBatch {
			return nil
		}
		err := h.batch(ctx, batch)
		batch = batch[:0]
		return err
	}); err != nil {
		return err
	}
	if err := h.batch(ctx, batch); err != nil {
		return err
	}
	if err := h.compare(ctx, trusted); err != nil {
		return err
	}
	return h.end()
}

// compare compares what others have seen with the ledger. Events that were registered since the loss hide lost ones, so
// the differences are lower bounds.
func (h *healer) compare(ctx context.Context, trusted *evidence.TrustedKeys) error {
	h.sum.Missing = []MissingView{}
	if h.seen.sequence > 0 {
		o, err := h.l.Store.Organization(ctx, h.id)
		if err != nil {
			return err
		}
		m := MissingView{Of: "organization", Seen: h.seen.sequence, Has: o.Sequence, Lost: max(0, h.seen.sequence-o.Sequence)}
		back := h.sum.Provable + h.sum.Declared + h.sum.Alias + h.sum.Revocation
		m.Unproven = new(max(0, m.Lost-int64(back)))
		h.sum.Missing = append(h.sum.Missing, m)
	}
	for _, file := range h.seen.published {
		c, _, err := publishedCheckpoint(file, evidence.LogName(h.l.Installation.Issuer), trusted, false)
		if err != nil {
			return err
		}
		s, err := transparency.ReadStatus(ctx, h.l.Read)
		if err != nil {
			return err
		}
		h.sum.Missing = append(h.sum.Missing, MissingView{
			Of: "ledger", Seen: c.Size, Has: s.Events, Lost: max(0, c.Size-s.Events),
		})
	}
	return nil
}

// missing says what others have seen that the ledger lacks.
func (h *healer) missing() string {
	text := ""
	for _, m := range h.sum.Missing {
		if m.Unproven == nil {
			text += h.app.Sayf("the log had %d events and this ledger has %d: at least %d events of all organizations are lost",
				m.Seen, m.Has, m.Lost) + "\n"
			continue
		}
		text += h.app.Sayf(
			"others hold sequence %d and this ledger has %d: at least %d events of the organization are lost, "+
				"%d more than these files bring back", m.Seen, m.Has, m.Lost, *m.Unproven,
		) + "\n"
	}
	return text
}

// batch plans or restores some records.
func (h *healer) batch(ctx context.Context, items []heal.Item) error {
	commands := make([]*domain.Heal, len(items))
	for i, item := range items {
		commands[i] = h.registrar.PrepareHeal(ledger.Origin(h.app.App, h.id), item.Lost, h.app.Now())
	}
	if err := h.plan(ctx, commands); err != nil {
		return err
	}
	applied := make([]bool, len(items))
	if h.apply {
		if err := h.restore(ctx, commands, applied); err != nil {
			return err
		}
	}
	for i, c := range commands {
		if err := h.show(h.view(items[i], c.Outcome, applied[i])); err != nil {
			return err
		}
	}
	return nil
}

// plan decides the commands on a copy of the state. It changes nothing.
func (h *healer) plan(ctx context.Context, commands []*domain.Heal) error {
	if len(commands) == 0 {
		return nil
	}
	var needs domain.Needs
	for _, c := range commands {
		c.Need(&needs)
	}
	now := h.app.Now()
	state := domain.NewState(h.l.Store.Plans)
	state.Follow(domain.HealedRecords)
	b := &pgx.Batch{}
	projections.Load(b, h.id.Shard(), []domain.OrganizationID{h.id}, needs, now, state)
	if err := h.l.Read.SendBatch(ctx, b).Close(); err != nil {
		return say.Errorf("look up what the ledger has: %w", err)
	}
	for _, c := range commands {
		drafts, err := c.Decide(state, now)
		if errors.Is(err, domain.ErrUnsigned) {
			if err = c.Presign(); err == nil {
				drafts, err = c.Decide(state, now)
			}
		}
		if err == nil {
			_, err = state.Append(c.Origin, now, drafts)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// restore executes the commands that change something, in their order. The ledger decides each of them again.
func (h *healer) restore(ctx context.Context, commands []*domain.Heal, applied []bool) error {
	var chosen []domain.Command
	var places []int
	for i, c := range commands {
		unproven := c.Lost.Receipt == nil && !h.declared
		switch c.Outcome.State {
		case domain.HealPresent, domain.HealRefused:
			continue
		case domain.HealProvable, domain.HealDeclared, domain.HealAlias, domain.HealRevocation:
		}
		if unproven {
			h.left++
			continue
		}
		chosen, places = append(chosen, c), append(places, i)
	}
	for k, answer := range h.l.Execute(ctx, chosen...) {
		// The plan has signed already, unless the ledger has changed since.
		if errors.Is(answer.Err, domain.ErrUnsigned) {
			if answer.Err = commands[places[k]].Presign(); answer.Err == nil {
				answer = h.l.Execute(ctx, chosen[k])[0]
			}
		}
		if answer.Err != nil {
			return say.Errorf("%w\n  what was restored stays, and the same command continues from there", answer.Err)
		}
		state := commands[places[k]].Outcome.State
		applied[places[k]] = state != domain.HealPresent && state != domain.HealRefused
	}
	return nil
}

func (h *healer) view(item heal.Item, outcome domain.Healing, applied bool) HealView {
	v := item.Declaration.VersionReference
	view := HealView{
		State: string(outcome.State), CompanyReference: &v.CompanyReference, Source: &v.Source,
		DocumentReference: &v.DocumentReference, Version: &v.Version, Revoked: item.Revoked, Place: item.Place,
		Applied: applied,
	}
	if item.PublicID != (domain.PublicID{}) {
		view.PublicID = new(item.PublicID.String())
	}
	if item.Receipt != nil {
		if p, err := evidence.ParseRecordPayload(item.Receipt.Payload); err == nil {
			view.ReceivedAt = new(evidence.FormatTime(p.ReceivedAt))
		}
	}
	if outcome.State == domain.HealAlias {
		view.AliasOf = new(outcome.Kept.String())
	}
	if outcome.Reason != "" {
		view.Reason = new(string(outcome.Reason))
		view.Detail = new(h.app.Say(healReason(outcome.Reason)))
	}
	return view
}

// healReason explains why the ledger refuses a record, and what to do.
func healReason(r domain.HealReason) say.Phrase {
	switch r {
	case domain.HealUnknownCompany:
		return say.Sentencef("the organization has no company of this reference: create it, then heal again")
	case domain.HealTakenID:
		return say.Sentencef("another version, certificate or alias has this public id")
	case domain.HealOtherVersion:
		return say.Sentencef("the ledger has other data of this version: a changed document needs a higher version")
	case domain.HealOtherReceipt:
		return say.Sentencef("the record of this public id has another receipt")
	case domain.HealReserved:
		return say.Sentencef("the version is reserved under another public id: register it, then heal again")
	case domain.HealUnknownID:
		return say.Sentencef("no input names the public id: let the origin register the version again")
	case domain.HealOtherShard:
		return say.Sentencef("another shard or another ledger made the public id")
	default:
		return say.Sentencef("refused")
	}
}

// show counts a record and prints it, unless the ledger has it.
func (h *healer) show(v HealView) error {
	for state, n := range map[domain.HealState]*int{
		domain.HealPresent: &h.sum.Present, domain.HealProvable: &h.sum.Provable, domain.HealDeclared: &h.sum.Declared,
		domain.HealAlias: &h.sum.Alias, domain.HealRevocation: &h.sum.Revocation, domain.HealRefused: &h.sum.Refused,
	} {
		if string(state) == v.State {
			*n++
		}
	}
	if v.Applied {
		h.sum.Restored++
	}
	if v.State == string(domain.HealPresent) {
		return nil
	}
	if h.json {
		return cli.WriteJSON(h.out, v, "")
	}
	_, err := h.out.WriteString(h.line(v))
	return err
}

func (h *healer) line(v HealView) string {
	line := fmt.Sprintf("%-10s", v.State)
	if v.PublicID != nil {
		line += "  " + *v.PublicID
	}
	if v.Version != nil {
		line += fmt.Sprintf("  %s %s %s %d", *v.CompanyReference, *v.Source, *v.DocumentReference, *v.Version)
	}
	if v.ReceivedAt != nil {
		line += "  " + *v.ReceivedAt
	}
	if v.AliasOf != nil {
		line += "  → " + *v.AliasOf
	}
	if v.Detail != nil {
		line += "  " + cli.Visible(v.Place) + ": " + *v.Detail
	}
	return line + "\n"
}

// end prints the summary. The answer is no if something was refused or left.
func (h *healer) end() error {
	if h.json {
		if err := cli.WriteJSON(h.out, h.sum, ""); err != nil {
			return err
		}
	} else if _, err := fmt.Fprint(h.out, h.app.Sayf(
		"%d present, %d provable by receipts, %d only declared, %d aliases, %d revocations, %d refused; %d restored",
		h.sum.Present, h.sum.Provable, h.sum.Declared, h.sum.Alias, h.sum.Revocation, h.sum.Refused, h.sum.Restored,
	), "\n"+h.missing()); err != nil {
		return err
	}
	if h.left > 0 {
		return cli.Negativef(
			"%d records without a receipt were left: --declared restores them, each under the public id that its "+
				"organization claims", h.left,
		)
	}
	if h.sum.Refused > 0 {
		return cli.NegativeError("")
	}
	return nil
}
