package evidence

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"time"

	"integrityledger/domain/say"
	"integrityledger/domain/strictjson"
)

// Limits of one piece of evidence.
const (
	MaxTimestamps = 4 // stamped checkpoints
	MaxTokens     = 4 // of one checkpoint
)

// Timestamp proves that a stamped checkpoint contains the record, whose leaf is Inclusion's leaf. The stamp covers the
// SHA-256 of Checkpoint.
type Timestamp struct {
	LeafIndex  int64        `json:"leafIndex"`  // from 0
	TreeSize   int64        `json:"treeSize"`   // the checkpoint's
	Hashes     []string     `json:"hashes"`     // the audit path, as in Inclusion
	Checkpoint string       `json:"checkpoint"` // the signed note, with only the log's own signature
	Tokens     []StampToken `json:"tokens"`     // one for each authority that stamped it
}

// StampToken is the token of one authority.
type StampToken struct {
	Authority string `json:"authority"` // the name that the authority is pinned by
	GenTime   string `json:"genTime"`   // the token's time, written by FormatTime
	Token     string `json:"token"`     // a TimeStampToken of RFC 3161, DER in standard base64
}

func readTimestamps(o *strictjson.Object) []Timestamp {
	if !o.Has("timestamps") {
		return nil
	}
	var list []Timestamp
	for _, t := range o.Objects("timestamps", strictjson.Required, 1, MaxTimestamps) {
		one := Timestamp{
			LeafIndex:  t.Int("leafIndex", 0, strictjson.MaxInteger, strictjson.Required),
			TreeSize:   t.Int("treeSize", 1, strictjson.MaxInteger, strictjson.Required),
			Hashes:     t.StringList("hashes", strictjson.Required, 0, strictjson.AnyLength),
			Checkpoint: t.String("checkpoint", strictjson.Required),
		}
		for _, s := range t.Objects("tokens", strictjson.Required, 1, MaxTokens) {
			one.Tokens = append(one.Tokens, StampToken{
				s.String("authority", strictjson.Required), s.String("genTime", strictjson.Required),
				s.String("token", strictjson.Required),
			})
		}
		list = append(list, one)
	}
	return list
}

// stamp is an authority's statement that the record existed before a time.
type stamp struct {
	authority string
	before    time.Time
}

// timing is the result of checking the timestamps of evidence.
type timing struct {
	finding Finding
	stamp   stamp // the earliest; zero unless Valid
	reason  error
	notes   []say.Sentence
}

func (t *timing) note(format string, args ...any) {
	t.notes = append(t.notes, say.Sentencef(format, args...))
}

// judgeTime checks the timestamps step by step and stops at the first step that fails. receivedAt is the time of
// receipt by the service's clock. The result is nil if there is nothing to check.
func judgeTime(e Envelope, trust *TrustedKeys, receivedAt, now time.Time) *timing {
	if e.Timestamps == nil {
		return nil
	}
	if trust == nil || len(trust.authorities) == 0 || len(trust.logKeys) == 0 {
		return &timing{
			finding: NotChecked,
			notes: []say.Sentence{say.Sentencef(
				"The timestamps were not checked: the trusted keys name no timestamp authority, or no key of the log.",
			)},
		}
	}
	t := &timing{finding: Valid}
	err := t.judge(e, trust, receivedAt, now)
	switch {
	case err == nil:
	case errors.Is(err, ErrOtherLeaf):
		t.finding, t.stamp = NotChecked, stamp{}
		t.note("The timestamps were not checked: the leaf that they prove is not that of a registration.")
	case errors.Is(err, ErrUnknownLogKey), errors.Is(err, ErrRevokedLogKey), errors.Is(err, ErrUntrustedToken),
		errors.Is(err, ErrUnknownAuthority):
		t.finding, t.reason, t.stamp = Untrusted, err, stamp{}
	default:
		t.finding, t.reason, t.stamp = Invalid, err, stamp{}
	}
	return t
}

func (t *timing) judge(e Envelope, trust *TrustedKeys, receivedAt, now time.Time) error {
	if e.Inclusion == nil {
		return say.Errorf("timestamps need the member inclusion, whose leaf they prove")
	}
	if err := e.Inclusion.checkLeaf([]byte(e.Payload)); err != nil {
		return err
	}
	last := ErrUnknownAuthority // why the last ignored token does not count
	for i, s := range e.Timestamps {
		c, since, err := openCheckpoint(s.Checkpoint, trust)
		if err != nil {
			return err
		}
		if err := c.holds(s.LeafIndex, s.TreeSize, s.Hashes, e.Inclusion.LeafHash()); err != nil {
			return say.Errorf("timestamps/%d: %w", i, err)
		}
		imprint := sha256.Sum256([]byte(s.Checkpoint))
		for _, token := range s.Tokens {
			authority, pinned := trust.Authority(token.Authority)
			if !pinned {
				t.note(
					"A token of %q was not checked: the trusted keys name no such timestamp authority.", shortened(token.Authority),
				)
				continue
			}
			before, err := token.check(authority, imprint, receivedAt, now)
			switch {
			case err != nil:
				return say.Errorf("%s: %w", authority.Name, err)
			case since != nil && !before.Before(*since):
				last = say.Errorf("%w, and no pinned authority stamped it before %s", ErrRevokedLogKey, FormatTime(*since))
				t.note("A token of %s does not count: the key of the log was revoked since %s.", authority.Name, FormatTime(*since))
			case t.stamp.authority == "" || before.Before(t.stamp.before):
				t.stamp = stamp{authority.Name, before}
			}
		}
	}
	if t.stamp.authority == "" {
		return last
	}
	return nil
}

// check returns the latest time at which the stamped bytes came into existence.
func (s StampToken) check(
	authority Authority, imprint [sha256.Size]byte, receivedAt, now time.Time,
) (before time.Time, err error) {
	der, ok := decodeOneSpelling(base64.StdEncoding, s.Token)
	if !ok {
		return before, say.Errorf("the token must be in the one spelling of base64")
	}
	token, err := authority.CheckToken(der, imprint)
	switch {
	case err != nil:
		return before, err
	case s.GenTime != FormatTime(token.GenTime):
		return before, say.Errorf("genTime is not the token's time")
	case token.GenTime.After(now.Add(clockTolerance)):
		return before, say.Errorf("the token's time lies in the future of this computer's clock")
	case token.Latest().Before(receivedAt.Add(-clockTolerance)):
		return before, say.Errorf("the token's time lies before the record was received: one of the two clocks is wrong")
	}
	return token.Latest(), nil
}

// stampedBefore reports whether a pinned authority stamped the record before a time, under any key of the log. A later
// stamp does not vouch for a key that was revoked by then.
func (f *Findings) stampedBefore(since time.Time) bool {
	if f.ExistedBefore == nil {
		return false
	}
	before, err := parseServiceTime(*f.ExistedBefore)
	return err == nil && before.Before(since)
}

// tell copies the result into the findings.
func (t *timing) tell(f *Findings) {
	if t == nil {
		return
	}
	f.Time, f.Notes = t.finding, slices.Concat(f.Notes, t.notes)
	if t.reason != nil {
		f.fail("time", "%s", t.reason)
	}
	if t.finding == Valid {
		before := FormatTime(t.stamp.before)
		f.ExistedBefore, f.TimeAuthority = &before, &t.stamp.authority
		f.note(
			"The record existed before %s, says %s. That is not when it was registered.", before, t.stamp.authority,
		)
	}
}
