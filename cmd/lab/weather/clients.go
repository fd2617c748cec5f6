package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"integrityledger/cmd/lab/weather/history"
	"integrityledger/handlers/wire"
)

const integrityAPI = "/api/v1/integrity"

// life is what a client does until its context ends.
type life struct {
	name string
	live func(*client)
}

// inStorm are the clients of the storm.
var inStorm = []life{
	{"fresh", (*client).registerFresh}, {"origin", (*client).registerOften}, {"rival", (*client).registerOften},
	{"batch", (*client).registerBatches},
	{"reserve", (*client).reserveAndFinish}, {"revoke", (*client).revokeSome}, {"compare", (*client).compareAll},
	{"reader", (*client).readOwnWrites},
	{"feed", (*client).followFeed}, {"usage", (*client).watchUsage}, {"keys", (*client).turnKeys},
	{"certify", (*client).certifyDocuments},
}

// startClients starts clients in each organization. When the context ends, each ends after its current call.
func (w *world) startClients(ctx context.Context, seed uint64, lives []life) *sync.WaitGroup {
	var all sync.WaitGroup
	number := uint64(0)
	for i, o := range w.organizations {
		for _, kind := range lives {
			number++
			c := &client{
				w: w, of: o, name: fmt.Sprintf("%d-%s", i+1, kind.name), rng: rand.New(rand.NewPCG(seed, number)),
				http: w.front.client(callPatience), ctx: ctx, pace: 250 * time.Millisecond,
			}
			all.Go(func() {
				defer c.http.CloseIdleConnections()
				kind.live(c)
			})
		}
	}
	return &all
}

// declarationOf returns the declaration of a version. Its bytes follow from the version and the variant: the same pair
// is a replay, another variant a conflict.
func declarationOf(company, document string, version int32, variant string) wire.Declaration {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %s", company, document, version, variant))
	return wire.Declaration{
		CompanyReference: company, Source: "weather", DocumentReference: document, Version: version,
		SHA256: hex.EncodeToString(sum[:]), SizeBytes: int64(version),
		MimeType: "application/pdf", GeneratedAt: "2026-01-02T03:04:05Z",
	}
}

func requestOf(d wire.Declaration) history.Request {
	return history.Request{
		Source: d.Source, Document: d.DocumentReference, Version: d.Version, PreviousVersion: d.PreviousVersion,
		Hash: d.SHA256, SizeBytes: d.SizeBytes, MimeType: d.MimeType,
		GeneratedAt: d.GeneratedAt, ReservationID: d.ReservationID,
	}
}

func registered(call *history.Call, r wire.Registration) {
	call.Answer.RecordAnswer = recordAnswer(r.Record)
	call.Answer.Replayed, call.Answer.Applied = r.Replayed, int64(r.Consumption.Applied)
	call.Answer.Period, call.Answer.Used, call.Answer.CompanyUsed = r.Usage.Period.String(), &r.Usage.Used,
		&r.CompanyContribution.Used
}

// register declares a version. Separate calls look up unknown outcomes.
func (c *client) register(key credential, d wire.Declaration) history.Call {
	call := c.registerOnce(key, d)
	for attempt := 0; call.Outcome == history.Unknown && attempt < 20; attempt++ {
		if !c.rest() {
			return call
		}
		if c.rng.IntN(2) == 0 {
			c.lookUp(key, d, nil)
			continue
		}
		call = c.registerOnce(key, d)
	}
	return call
}

func (c *client) registerOnce(key credential, d wire.Declaration) history.Call {
	call := c.begin(history.Register, d.CompanyReference, requestOf(d))
	r := c.send(&call, outgoing{method: http.MethodPost, path: integrityAPI + "/records", key: key, body: d})
	if record := decode[wire.Registration](c, &call, r); call.Outcome == history.Answered {
		registered(&call, record)
		c.of.learn(known{d, record.PublicID})
	}
	c.write(call)
	return call
}

// lookUp looks up a version by the origin's reference.
func (c *client) lookUp(key credential, d wire.Declaration, readAfter *int64) history.Call {
	call := c.begin(
		history.Lookup, d.CompanyReference,
		history.Request{Source: d.Source, Document: d.DocumentReference, Version: d.Version, ReadAfter: readAfter},
	)
	query := url.Values{
		"companyReference": {d.CompanyReference}, "source": {d.Source}, "documentReference": {d.DocumentReference},
		"version": {strconv.Itoa(int(d.Version))},
	}
	r := c.send(
		&call,
		outgoing{
			method: http.MethodGet, path: integrityAPI + "/lookup?" + query.Encode(), key: key, header: after(readAfter),
		},
	)
	if record := decode[wire.Record](c, &call, r); call.Outcome == history.Answered {
		call.Answer.RecordAnswer = recordAnswer(record)
	}
	c.write(call)
	return call
}

func after(sequence *int64) map[string]string {
	if sequence == nil {
		return nil
	}
	return map[string]string{"Integrity-Read-After": strconv.FormatInt(*sequence, 10)}
}

// registerFresh registers successive versions of its own documents.
func (c *client) registerFresh() {
	for n := int32(1); c.rest(); n++ {
		c.register(c.of.worker, declarationOf(c.of.company(c.rng).Reference, fmt.Sprintf("%s-%d", c.name, n/5), 1+n%5, ""))
	}
}

// registerOften registers versions of documents shared with other clients: new ones, replays, conflicts and late ones.
func (c *client) registerOften() { c.registerShared("shared", true) }

// registerShared registers versions of documents whose names begin with a word. Only with conflicts does it declare
// different data for some.
func (c *client) registerShared(word string, conflicts bool) {
	highest := map[string]int32{}
	for c.rest() {
		company, document := c.of.company(c.rng).Reference, fmt.Sprintf("%s-%d", word, c.rng.IntN(12))
		key := company + document
		version := highest[key] + 1
		if version > 1 && c.rng.IntN(3) == 0 {
			version = 1 + c.rng.Int32N(version)
		}
		highest[key] = max(highest[key], version)
		variant := ""
		if conflicts && c.rng.IntN(6) == 0 {
			variant = c.name
		}
		c.register(c.of.worker, declarationOf(company, document, version, variant))
	}
}

// registerBatches sends several declarations at once, some of them already registered.
func (c *client) registerBatches() {
	c.pace *= 6
	for n := 0; c.rest(); n++ {
		var declarations []wire.Declaration
		for i := range 2 + c.rng.IntN(12) {
			if k, ok := c.of.any(c.rng); ok && c.rng.IntN(4) == 0 {
				declarations = append(declarations, k.Declaration)
			} else {
				declarations = append(
					declarations, declarationOf(c.of.company(c.rng).Reference, fmt.Sprintf("%s-%d", c.name, n), int32(i+1), ""),
				)
			}
		}
		for attempt := 0; attempt < 10 && c.batch(declarations); attempt++ {
			if !c.rest() {
				return
			}
		}
	}
}

// batch reports whether any outcome is unknown.
func (c *client) batch(declarations []wire.Declaration) (unknown bool) {
	first := c.begin(history.Register, "", history.Request{})
	r := c.send(
		&first,
		outgoing{
			method: http.MethodPost, path: integrityAPI + "/records/batch", key: c.of.worker,
			body: wire.BatchRequest{Declarations: declarations},
		},
	)
	batch := decode[wire.Results[wire.Registration]](c, &first, r)
	if first.Outcome == history.Answered && len(batch.Results) != len(declarations) {
		c.w.violation(
			"a batch of %d was answered with %d results (request %s)", len(declarations), len(batch.Results), first.RequestID,
		)
		return false
	}
	number := c.w.history.Number()
	for i, d := range declarations {
		call := first
		call.Number, call.Batch, call.Company, call.Request = c.w.history.Number(), number, d.CompanyReference, requestOf(d)
		if first.Outcome == history.Answered {
			item := batch.Results[i]
			call.Status, call.Outcome = item.Status, history.Judge(item.Status, true)
			if item.Data != nil {
				registered(&call, *item.Data)
				c.of.learn(known{d, item.Data.PublicID})
			}
			if item.Error != nil {
				call.Code = string(item.Error.Code)
				if e := item.Error.Existing; e != nil {
					call.Answer.Existing = e.PublicID
				}
			}
		}
		c.write(call)
		unknown = unknown || call.Outcome == history.Unknown
	}
	return unknown
}

// reserveAndFinish reserves links, and registers or releases the reservations.
func (c *client) reserveAndFinish() {
	for n := int32(1); c.rest(); n++ {
		d := declarationOf(c.of.company(c.rng).Reference, fmt.Sprintf("%s-%d", c.name, n/4), 1+n%4, "")
		reserved := c.reserve(d)
		if reserved.Outcome != history.Answered || !c.rest() {
			continue
		}
		id := reserved.Answer.PublicID
		switch c.rng.IntN(4) {
		case 0:
			c.release(d, id)
		case 1:
			c.compare(known{d, id}, d.SHA256)
			c.reserve(d)
		default:
			d.ReservationID = id
			c.register(c.of.worker, d)
		}
	}
}

func (c *client) reserve(d wire.Declaration) history.Call {
	call := c.begin(
		history.Reserve, d.CompanyReference,
		history.Request{Source: d.Source, Document: d.DocumentReference, Version: d.Version},
	)
	r := c.send(
		&call,
		outgoing{method: http.MethodPost, path: integrityAPI + "/reservations", key: c.of.worker, body: d.VersionReference()},
	)
	if reservation := decode[wire.Reservation](c, &call, r); call.Outcome == history.Answered {
		call.Answer.PublicID, call.Answer.ReservationStatus = reservation.PublicID, string(reservation.Status)
		call.Answer.Replayed, call.Answer.Applied = reservation.Replayed, int64(reservation.Consumption.Applied)
	}
	c.write(call)
	return call
}

func (c *client) release(d wire.Declaration, publicID string) {
	call := c.begin(history.Release, d.CompanyReference, history.Request{PublicID: publicID})
	r := c.send(
		&call, outgoing{method: http.MethodDelete, path: integrityAPI + "/reservations/" + publicID, key: c.of.worker},
	)
	if released := decode[wire.ReleasedReservation](c, &call, r); call.Outcome == history.Answered {
		call.Answer.PublicID, call.Answer.ReservationStatus, call.Answer.Replayed = released.PublicID,
			string(released.Status), released.Replayed
	}
	c.write(call)
}

// revokeSome revokes records now and then, and reads the revoked records.
func (c *client) revokeSome() {
	c.pace *= 4
	for c.rest() {
		k, ok := c.of.any(c.rng)
		if !ok {
			continue
		}
		c.revoke(k)
		for range 3 {
			if !c.rest() {
				return
			}
			c.compare(k, k.SHA256)
			c.record(k, nil)
		}
	}
}

func (c *client) revoke(k known) {
	call := c.begin(history.Revoke, k.CompanyReference, history.Request{PublicID: k.publicID})
	r := c.send(
		&call,
		outgoing{
			method: http.MethodPost, path: integrityAPI + "/records/" + k.publicID + "/revoke", key: c.of.owner,
			body: wire.RevokeRequest{Reason: "weather"},
		},
	)
	if revoked := decode[wire.Revocation](c, &call, r); call.Outcome == history.Answered {
		call.Answer.RecordAnswer, call.Answer.Replayed = recordAnswer(revoked.Record), revoked.Replayed
	}
	c.write(call)
}

// compareAll compares the organization's known hashes, as any reader can.
func (c *client) compareAll() {
	for c.rest() {
		k, ok := c.of.any(c.rng)
		if !ok {
			continue
		}
		hash := k.SHA256
		switch c.rng.IntN(5) {
		case 0:
			hash = declarationOf("other", "other", 1, "").SHA256
		case 1:
			hash = ""
		}
		c.compare(k, hash)
		if c.rng.IntN(2) == 0 {
			c.lookUp(c.of.worker, k.Declaration, nil)
		}
	}
}

func (c *client) compare(k known, hash string) history.Call {
	call := c.begin(history.Compare, k.CompanyReference, history.Request{PublicID: k.publicID, Hash: hash})
	call.Organization, call.Company = "", "" // a public call has no organization
	path := "/api/public/integrity/" + k.publicID
	if hash != "" {
		path += "?sha256=" + hash
	}
	r := c.send(&call, outgoing{method: http.MethodGet, path: path})
	if comparison := decode[wire.Comparison](c, &call, r); call.Outcome == history.Answered {
		call.Answer.PublicID, call.Answer.Result = comparison.PublicID, string(comparison.Result)
		if comparison.ReceivedAt != nil {
			call.Answer.ReceivedAt = *comparison.ReceivedAt
		}
	}
	c.write(call)
	return call
}

func (c *client) record(k known, readAfter *int64) history.Call {
	call := c.begin(history.Record, k.CompanyReference, history.Request{PublicID: k.publicID, ReadAfter: readAfter})
	r := c.send(
		&call,
		outgoing{
			method: http.MethodGet, path: integrityAPI + "/records/" + k.publicID, key: c.of.worker, header: after(readAfter),
		},
	)
	if record := decode[wire.Record](c, &call, r); call.Outcome == history.Answered {
		call.Answer.RecordAnswer = recordAnswer(record)
	}
	c.write(call)
	return call
}

// readOwnWrites writes and reads the result at once, with and without the write's sequence.
func (c *client) readOwnWrites() {
	for n := int32(1); c.rest(); n++ {
		d := declarationOf(c.of.company(c.rng).Reference, fmt.Sprintf("%s-%d", c.name, n/3), 1+n%3, "")
		call := c.register(c.of.worker, d)
		if call.Outcome != history.Answered {
			if k, ok := c.of.any(c.rng); ok { // the organization whose month is used up
				c.search(k.SHA256, nil)
			}
			continue
		}
		k := known{d, call.Answer.PublicID}
		var readAfter *int64
		if c.rng.IntN(3) > 0 && call.Answer.Sequence > 0 {
			readAfter = new(call.Answer.Sequence)
		}
		switch c.rng.IntN(4) {
		case 0:
			c.record(k, readAfter)
		case 1:
			c.search(d.SHA256, readAfter)
		default:
			c.lookUp(c.of.worker, d, readAfter)
		}
		if c.rng.IntN(4) == 0 {
			c.record(k, new(int64(0)))
		}
	}
}

func (c *client) search(hash string, readAfter *int64) {
	call := c.begin(history.Search, "", history.Request{Hash: hash, Limit: 100, ReadAfter: readAfter})
	r := c.send(
		&call,
		outgoing{
			method: http.MethodGet, path: integrityAPI + "/records?limit=100&sha256=" + hash, key: c.of.worker,
			header: after(readAfter),
		},
	)
	if records := decode[wire.Records](c, &call, r); call.Outcome == history.Answered {
		for _, record := range records.Records {
			call.Answer.Records = append(call.Answer.Records, recordAnswer(record))
		}
		call.Answer.HasMore = records.HasMore
	}
	c.write(call)
}

// followFeed reads its companies' feeds from the beginning, each with its own cursor, and now and then from an earlier
// cursor.
func (c *client) followFeed() {
	cursors, epoch := map[string]int64{}, int64(0)
	for c.rest() {
		company := c.of.company(c.rng).Reference
		cursor := cursors[company]
		if c.rng.IntN(20) == 0 {
			cursor = c.rng.Int64N(cursor + 1)
		}
		var readAfter *int64
		if c.rng.IntN(4) == 0 {
			readAfter = new(cursor)
		}
		limit := 1 + c.rng.IntN(200)
		call := c.begin(history.FeedPage, company, history.Request{After: cursor, Limit: limit, ReadAfter: readAfter})
		path := fmt.Sprintf(
			"%s/changes?companyReference=%s&after=%d&limit=%d&wait=%d", integrityAPI, company, cursor, limit, c.rng.IntN(2),
		)
		r := c.send(&call, outgoing{method: http.MethodGet, path: path, key: c.of.worker, header: after(readAfter)})
		if page := decode[wire.Feed[history.FeedEvent]](c, &call, r); call.Outcome == history.Answered {
			call.Answer.Events, call.Answer.NextCursor, call.Answer.HasMore = page.Events, page.NextCursor, page.HasMore
			if r.meta.Epoch != nil {
				call.Answer.Epoch = *r.meta.Epoch
			}
			if epoch < call.Answer.Epoch { // the ledger lost commits: the feeds begin again
				clear(cursors)
				epoch = call.Answer.Epoch
			}
			cursors[company] = max(cursors[company], page.NextCursor)
		}
		if call.Code == "CURSOR_AHEAD" {
			clear(cursors)
		}
		c.write(call)
	}
}

// watchUsage reads the month's usage, and stores evidence.
func (c *client) watchUsage() {
	c.pace *= 3
	for c.rest() {
		call := c.begin(history.UsageRead, "", history.Request{})
		r := c.send(&call, outgoing{method: http.MethodGet, path: integrityAPI + "/usage", key: c.of.worker})
		if usage := decode[wire.Allowance](c, &call, r); call.Outcome == history.Answered {
			call.Answer.Period, call.Answer.Used = usage.Period.String(), &usage.Organization.Used
		}
		c.write(call)
		if k, ok := c.of.any(c.rng); ok && c.rng.IntN(3) == 0 {
			c.evidence(k)
		}
	}
}

func (c *client) evidence(k known) history.Call {
	call := c.begin(history.EvidenceRead, k.CompanyReference, history.Request{PublicID: k.publicID})
	r := c.send(
		&call,
		outgoing{method: http.MethodGet, path: integrityAPI + "/records/" + k.publicID + "/evidence", key: c.of.worker},
	)
	if call.Outcome == history.Answered {
		call.Answer.File = filepath.Join("evidence", call.RequestID+".json")
		if err := os.WriteFile(filepath.Join(c.w.dir, call.Answer.File), r.body, 0o600); err != nil {
			c.w.t.Error(err)
		}
	}
	c.write(call)
	return call
}
