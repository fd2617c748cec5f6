package check

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/domain/evidence"
)

// trust reads the pinned trusted-keys file, or returns why nothing can be verified.
func (c *checker) trust() (keys *evidence.TrustedKeys, text []byte, err error) {
	if c.End.Trust == nil {
		return nil, nil, fmt.Errorf("the end state must name the trusted-keys file")
	}
	if text, err = c.read(c.End.Trust.File); err != nil {
		return nil, nil, err
	}
	keys, err = evidence.ParseTrustedKeys(text)
	return keys, text, err
}

// read reads a file in the run's directory.
func (c *checker) read(name string) ([]byte, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("file %q must lie in the directory of the run", name)
	}
	return os.ReadFile(filepath.Join(c.Directory, name))
}

// exported is an evidence that a client exported.
type exported struct {
	file, publicID string
	certificate    bool
	call           *history.Call
	text           []byte
	unread         error // why there is no text
}

// findings must be the same for each verifier.
type findings struct {
	Signature      string  `json:"signature"`
	References     string  `json:"references"`
	Observation    string  `json:"observation"`
	ObservedStatus *string `json:"observedStatus"`
	ObservedAt     *string `json:"observedAt"`
	Inclusion      string  `json:"inclusion"`
	Good           bool    `json:"good"` // the verification succeeded
	payload        evidence.RecordPayload
}

func (f findings) String() string {
	text, _ := json.Marshal(f) //nolint:errchkjson // only strings
	return string(text)
}

// evidence verifies the signed payload of every registration in the log, and every exported evidence: with the
// service's own package, with the Python file and with the page's script.
func (c *checker) evidence() error {
	if slices.Contains(c.Skip, Evidence) {
		return nil
	}
	trust, keys, err := c.trust()
	if err != nil {
		c.violate(Evidence, "trusted keys", nil, "%v", err)
		return nil
	}
	payloads := map[string]string{} // from the log, by public ID
	for _, e := range c.events {
		if e.Type == aliased && e.Payload == nil {
			c.signed[e.Subject] = e.AliasOf
			payloads[e.Subject] = payloads[e.AliasOf]
		}
		if e.Type != registered && e.Type != aliased || e.Payload == nil {
			continue
		}
		var canonical bytes.Buffer
		if err := json.Compact(&canonical, e.Payload); err != nil {
			return err
		}
		payloads[e.Subject] = canonical.String()
		p, found := evidence.VerifyRecord(trust, e.KeyID, canonical.Bytes(), e.Signature)
		if found != evidence.Valid || p.PublicID != e.Subject {
			c.violate(Evidence, e.of.String(), []*history.Call{e.call}, "the payload of %s is %s, of %q", e, found, p.PublicID)
			continue
		}
		references := evidence.References{
			CompanyReference: e.CompanyReference, Source: e.Source, DocumentReference: e.DocumentReference,
			Version: int64(e.Version), Salt: e.Salt,
		}
		if references.SHA256() != p.ReferencesSHA256 {
			c.violate(Evidence, e.of.String(), nil, "the payload of %s is bound to other references", e)
		}
		if call := e.call; call != nil && call.Request.Hash != "" && call.Request.Hash != p.SHA256.String() {
			c.violate(
				Evidence, e.of.String(), []*history.Call{call}, "%s was declared, but %s is signed", call.Request.Hash, p.SHA256,
			)
		}
	}
	list := c.exports()
	c.add("evidence: exports", int64(len(list)))
	c.add("evidence: records of the log", int64(len(payloads)))
	now := c.Now.Add(time.Duration(c.Header.SkewNanoseconds))
	verdicts := make([]findings, len(list))
	for i, e := range list {
		verdicts[i] = verify(e, trust, now)
		c.judge(e, verdicts[i], payloads)
		c.observed(e)
	}
	if c.GoAlone || len(list) == 0 {
		return nil
	}
	return c.others(list, verdicts, keys, now)
}

// exports returns the run's evidence files, each once.
func (c *checker) exports() (list []exported) {
	for _, e := range c.End.Evidence {
		list = append(list, exported{file: e.File, publicID: e.PublicID, certificate: e.Certificate})
	}
	for i := range c.Calls {
		if call := &c.Calls[i]; call.Answer.File != "" && call.Outcome == history.Answered {
			list = append(
				list,
				exported{
					file: call.Answer.File, publicID: call.Request.PublicID, certificate: call.Operation == history.CertificateRead,
					call: call,
				},
			)
		}
	}
	seen := map[string]bool{}
	list = slices.DeleteFunc(list, func(e exported) bool {
		twice := seen[e.file]
		seen[e.file] = true
		return twice
	})
	for i := range list {
		list[i].text, list[i].unread = c.read(list[i].file)
	}
	return list
}

func verify(e exported, trust *evidence.TrustedKeys, now time.Time) findings {
	f := evidence.Verify(e.text, trust, evidence.Options{Now: now})
	v := findings{
		Signature: string(f.Signature), References: string(f.References), Observation: string(f.Observation),
		ObservedAt: f.ObservedAt,
		Inclusion:  string(f.Inclusion), Good: len(f.Reasons) == 0,
	}
	if f.ObservedStatus != nil {
		v.ObservedStatus = new(string(*f.ObservedStatus))
	}
	if f.Record != nil {
		v.payload = *f.Record
	}
	if f.Certificate != nil {
		v.payload.PublicID = f.Certificate.PublicID
	}
	return v
}

// judge checks that an evidence proves what it must. For a revoked record it must fail, for that reason only.
func (c *checker) judge(e exported, f findings, payloads map[string]string) {
	calls := []*history.Call{e.call}
	revoked := f.ObservedStatus != nil && *f.ObservedStatus == "revoked"
	switch {
	case e.unread != nil:
		c.violate(Evidence, e.file, calls, "it cannot be read: %v", e.unread)
	case f.Signature != "valid", !e.certificate && (f.References != "valid" ||
		f.Observation != "valid"), f.Inclusion == "invalid", f.Inclusion == "untrusted", !f.Good && !revoked:
		c.violate(Evidence, e.file, calls, "it does not verify: %s", f)
	case f.payload.PublicID != cmp.Or(c.signed[e.publicID], e.publicID):
		c.violate(Evidence, e.file, calls, "it is of %s, but %s was asked for", f.payload.PublicID, e.publicID)
	case !e.certificate && payloads[e.publicID] != string(f.payload.AppendCanonical(nil)):
		c.violate(Evidence, e.file, calls, "what it signs is not what the log holds of %s", e.publicID)
	}
}

// observed checks that the state in an evidence is the state at its sequence, and that the sequence had been reached
// when the evidence was requested.
func (c *checker) observed(e exported) {
	of, known := c.public[e.publicID]
	envelope, err := evidence.ParseEnvelope(e.text)
	if e.certificate || !known || err != nil || envelope.StatusObservation == nil {
		return // judge reports it
	}
	calls := []*history.Call{e.call}
	stated, err := evidence.ParseStatusPayload([]byte(envelope.StatusObservation.Payload))
	if err != nil {
		c.violate(Evidence, e.file, calls, "%v", err)
		return
	}
	status := "not registered"
	for _, event := range between(c.feeds[of.organization+"/"+of.company], 0, stated.Sequence) {
		if event.of == of {
			status = event.status
		}
	}
	if status != string(stated.Status) {
		c.violate(
			Evidence, e.file, calls, "it states that the record is %s at sequence %d, but the log says %s", stated.Status,
			stated.Sequence, status,
		)
	}
	if e.call == nil {
		return
	}
	list, least := c.sequences[of.organization], e.call.Request.ReadAfter
	if reached := between(list, stated.Sequence-1, stated.Sequence); len(reached) == 0 || reached[0].after > e.call.End {
		c.violate(Evidence, e.file, calls, "it states sequence %d, which was not reached before its end", stated.Sequence)
	}
	if least != nil && stated.Sequence < *least {
		c.violate(ReadAfter, e.file, calls, "it states sequence %d, but %d was asked for", stated.Sequence, *least)
	} else if missed := c.missed("log "+of.organization, list, stated.Sequence, e.call.Start); least == nil &&
		missed != nil {
		c.violate(
			Evidence, e.file, []*history.Call{e.call, missed.call},
			"it states sequence %d, but %s was acknowledged before it was asked for", stated.Sequence, missed,
		)
	}
}

// notes returns all checkpoints of the run: the kept ones, and those in evidence.
func (c *checker) notes() []history.Checkpoint {
	list := slices.Clone(c.End.Checkpoints)
	for _, e := range c.exports() {
		if envelope, err := evidence.ParseEnvelope(e.text); err == nil && envelope.Inclusion != nil {
			list = append(list, history.Checkpoint{By: e.file, Note: envelope.Inclusion.Checkpoint})
		}
	}
	return list
}

// checkpoints checks that all observed checkpoints belong to one tree, which contains each event of the log once.
func (c *checker) checkpoints() {
	trust, _, err := c.trust()
	if err != nil {
		c.violate(Checkpoint, "trusted keys", nil, "%v", err)
		return
	}
	t, err := c.tree()
	if err != nil {
		c.violate(Leaf, "the tree", nil, "%v", err)
	}
	if len(c.End.Checkpoints) == 0 {
		c.violate(Checkpoint, "the run", nil, "nobody has kept a checkpoint")
	}
	roots := map[int64]evidence.Checkpoint{}
	notes := c.notes()
	for _, p := range notes {
		of := fmt.Sprintf("%s at %s", p.By, time.Duration(p.Seen).Round(time.Millisecond))
		opened, err := evidence.OpenCheckpoint(p.Note, trust)
		if err != nil {
			c.violate(Checkpoint, of, nil, "%v: %s", err, strings.ReplaceAll(p.Note, "\n", " "))
			continue
		}
		if other, known := roots[opened.Size]; known && other.Root != opened.Root {
			c.violate(
				Checkpoint, of, nil, "size %d has the root %s, and elsewhere %s: the log is forked", opened.Size, opened.Root,
				other.Root,
			)
		}
		roots[opened.Size] = opened
	}
	for _, size := range sortedKeys(roots) {
		if t == nil {
			break
		}
		root, err := t.root(size)
		if err != nil {
			c.violate(Checkpoint, fmt.Sprintf("size %d", size), nil, "%v", err)
		} else if root != roots[size].Root {
			c.violate(
				Checkpoint, fmt.Sprintf("size %d", size), nil,
				"its root is %s, but that of the tree's first %d leaves is %s: the log is forked", roots[size].Root, size, root,
			)
		}
	}
	c.add("checkpoints", int64(len(notes)))
	c.add("checkpoints: sizes", int64(len(roots)))
}
