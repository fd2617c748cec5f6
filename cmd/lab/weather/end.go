package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"integrityledger/cmd/integrity/operator"
	"integrityledger/cmd/lab/weather/history"
	"integrityledger/eventstore/pgtest/network"
	"integrityledger/handlers/wire"
)

const (
	// calmPatience is how long each part may take to settle after everything has healed.
	calmPatience = 3 * time.Minute
	// deliveryPatience is a little more than the five minutes before a delivery's third attempt.
	deliveryPatience = 6 * time.Minute
	// endPatience, plus the length of the run, is the time limit from the last fault to the verdict.
	endPatience = 7 * time.Minute
	// exports is the number of records whose evidence is exported at the end.
	exports = 60
)

// limitEnd ends the run if its end takes longer than patience, and reports what it is still waiting for.
func (w *world) limitEnd(patience time.Duration, end func(why string)) (over func() bool) {
	return time.AfterFunc(patience, func() {
		end(fmt.Sprintf(
			"the end of the run is not over %s after all faults were healed; what it still waits for: %s", patience,
			*w.waiting.Load(),
		))
	}).Stop
}

// waits records what the end is waiting for.
func (w *world) waits(what string) { w.waiting.Store(&what) }

// abandon saves the history so far, and reports the state of every part.
func (w *world) abandon(why string) {
	w.note("VIOLATION: %s", why)
	_ = w.history.Close() // an error changes nothing here
	debug.SetTraceback("all")
	panic(why)
}

// heal ends all faults, and restarts everything that they have stopped.
func (w *world) heal() {
	for _, l := range w.links {
		l.AtCommit(network.CommitsPass, nil)
		l.Set(network.Weather{})
	}
	for i := range services {
		w.setClock(i, 0)
	}
	w.thaw()
	for _, s := range w.servers {
		if w.library {
			s.control(0, false, false)
		}
		s.revive()
	}
	for _, p := range w.processes {
		p.start()
	}
	w.receivers.fair.Store(true)
}

// settle waits until every process is ready, and every follower of the log has all of it.
func (w *world) settle() {
	for i := range services {
		w.waits(serviceName(i) + " to be ready")
		if err := within(calmPatience/2, func() error {
			if !w.front.ready[i].Load() {
				return errors.New("it is not ready")
			}
			return nil
		}); err != nil {
			w.violation(
				"%s does not become ready by itself within %s of the end of all faults: %v: %s", serviceName(i), calmPatience/2,
				err, tail(w.processes[serviceName(i)].logPath()),
			)
			w.processes[serviceName(i)].kill()
			w.processes[serviceName(i)].start()
		}
	}
	w.waits("the late server to follow")
	if err := w.followed(); err != nil {
		w.violation("the late server does not follow: %v", err)
	}
}

// rest waits until nothing changes any more: replica, stream, tree and webhooks have the whole log.
func (w *world) rest(log []history.LogEvent) {
	inFeed := uint64(0)
	for _, e := range log {
		if slices.Contains([]string{"integrity.registered", "integrity.superseded", "integrity.revoked"}, e.Type) {
			inFeed++
		}
	}
	w.await("the stream has every event of the feeds", func() error {
		n, err := w.broker.count()
		if err == nil && n < inFeed {
			err = fmt.Errorf("it has %d of %d", n, inFeed)
		}
		return err
	})
	w.await("the tree has every event", func() error {
		note, err := w.checkpoint()
		if err != nil {
			return err
		}
		if size := sizeOf(note); size < int64(len(log)) {
			return fmt.Errorf("it has %d of %d", size, len(log))
		}
		return nil
	})
	at, err := ask[string](w.primary.Load(), "SELECT pg_current_wal_lsn()::text")
	if err != nil {
		w.violation("the primary does not say how far it is: %v", err)
	}
	w.await("the late server has replayed all", func() error {
		// The replay delay uses the primary's clock, which may have been minutes ahead.
		if err := w.servers[serverLate].sql(
			"ALTER SYSTEM SET recovery_min_apply_delay = 0", "SELECT pg_reload_conf()",
		); err != nil {
			return err
		}
		ok, err := ask[bool](w.servers[serverLate], "SELECT pg_last_wal_replay_lsn() >= '"+at+"'")
		if err == nil && !ok {
			err = errors.New("it has not")
		}
		return err
	})
	w.awaitDeliveries()
}

func (w *world) await(what string, check func() error) { w.awaitFor(calmPatience, what, check) }

func (w *world) awaitFor(patience time.Duration, what string, check func() error) {
	began := time.Now()
	w.waits(what)
	if err := within(patience, check); err != nil {
		w.violation("%s: not within %s of the end of all faults: %v", what, patience, err)
		return
	}
	w.note("%s after %s", what, time.Since(began).Round(100*time.Millisecond))
}

// awaitDeliveries restarts the deliveries that wait for a later attempt, as their owner may.
func (w *world) awaitDeliveries() {
	http := w.front.client(callPatience)
	defer http.CloseIdleConnections()
	c := &plain{w: w, http: http}
	again := map[string]time.Time{}
	w.awaitFor(deliveryPatience, "every delivery is delivered", func() error {
		left := 0
		for _, o := range w.organizations {
			for _, id := range w.destinationsOf(o) {
				for _, status := range []string{"pending", "exhausted"} {
					var page wire.Deliveries
					if err := c.get(
						"/api/v1/integrity/webhooks/"+id+"/deliveries?limit=200&status="+status, o.owner, &page,
					); err != nil {
						return err
					}
					left += len(page.Deliveries)
					for _, d := range page.Deliveries {
						if d.Attempts > 0 && time.Since(again[d.ID]) > 20*time.Second && time.Since(again[o.id]) > 7*time.Second {
							// an organization may redeliver ten a minute
							again[d.ID], again[o.id] = time.Now(), time.Now()
							// it may be in progress
							_ = c.post("/api/v1/integrity/webhooks/deliveries/"+d.ID+"/redeliver", o.owner, struct{}{}, nil)
						}
					}
				}
			}
		}
		if left > 0 {
			return fmt.Errorf("%d are not, or more", left)
		}
		return nil
	})
}

func (w *world) destinationsOf(o *organization) (ids []string) {
	for path, d := range w.receivers.known {
		if strings.HasPrefix(path, fmt.Sprintf("/%d/", slices.Index(w.organizations, o))) {
			ids = append(ids, d.id)
		}
	}
	slices.Sort(ids)
	return ids
}

// checkpoint returns the log's newest checkpoint from the public API.
func (w *world) checkpoint() (note string, err error) {
	text, err := w.public("/api/public/log/checkpoint")
	return string(text), err
}

func (w *world) public(path string) ([]byte, error) {
	client := w.front.client(callPatience)
	defer client.CloseIdleConnections()
	answer, err := client.Get("http://front" + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %d %.200s", path, answer.StatusCode, text)
	}
	return text, err
}

func sizeOf(note string) (size int64) {
	if lines := strings.Split(note, "\n"); len(lines) > 1 {
		_, _ = fmt.Sscan(lines[1], &size)
	}
	return size
}

// readLog returns the whole log.
func (w *world) readLog() (log []history.LogEvent, err error) {
	r := w.run(calmPatience, w.ledgerEnv(), "replay")
	if r.code != 0 {
		return nil, fmt.Errorf("integrity replay: exit code %d: %s", r.code, r.errs)
	}
	lines := bufio.NewScanner(strings.NewReader(r.out))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e history.LogEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, err
		}
		log = append(log, e)
	}
	return log, lines.Err()
}

// collect writes the end state.
func (w *world) collect(t testing.TB, log []history.LogEvent) {
	for i := range log {
		w.history.End(history.End{Log: &log[i]})
	}
	http := w.front.client(time.Minute)
	defer http.CloseIdleConnections()
	c := &plain{w: w, http: http}
	for _, part := range []struct {
		name string
		read func(*plain) error
	}{
		{"feeds", w.collectFeeds}, {"stream", w.collectStream}, {"deliveries", w.collectDeliveries},
		{"usage", w.collectUsage}, {"evidence", w.collectEvidence}, {"tree", w.collectTree}, {"watchers", w.collectWatchers},
	} {
		w.waits("the end state: " + part.name)
		if err := within(time.Minute, func() error { return part.read(c) }); err != nil {
			t.Errorf("the end state: %s: %v", part.name, err)
		}
	}
	w.verdicts()
}

// once buffers the results until all were read, so that a second attempt writes nothing twice.
func (w *world) once(ends []history.End) {
	for _, e := range ends {
		w.history.End(e)
	}
}

func (w *world) collectFeeds(c *plain) error {
	var ends []history.End
	for _, o := range w.organizations {
		for _, company := range o.Companies {
			for after := int64(0); ; {
				var page wire.Feed[history.FeedEvent]
				if err := c.get(
					fmt.Sprintf("/api/v1/integrity/changes?companyReference=%s&limit=500&after=%d", company.Reference, after),
					o.worker, &page,
				); err != nil {
					return err
				}
				for i := range page.Events {
					ends = append(ends, history.End{Feed: &page.Events[i]})
				}
				if after = page.NextCursor; !page.HasMore {
					break
				}
			}
		}
	}
	w.once(ends)
	return nil
}

func (w *world) collectStream(*plain) error {
	messages, err := w.broker.messages()
	if err != nil {
		return err
	}
	var ends []history.End
	for _, m := range messages {
		one := history.Message{
			Number: m.Sequence, ID: m.Header.Get("Nats-Msg-Id"), Organization: strings.Split(m.Subject, ".")[2],
		}
		if err := json.Unmarshal(m.Data, &one.Event); err != nil {
			return err
		}
		ends = append(ends, history.End{Stream: &one})
	}
	w.once(ends)
	return nil
}

func (w *world) collectDeliveries(c *plain) error {
	var ends []history.End
	for _, o := range w.organizations {
		for _, id := range w.destinationsOf(o) {
			for after := ""; ; {
				var page wire.Deliveries
				if err := c.get("/api/v1/integrity/webhooks/"+id+"/deliveries?limit=200"+after, o.owner, &page); err != nil {
					return err
				}
				for _, d := range page.Deliveries {
					ends = append(
						ends,
						history.End{Delivery: &history.Delivery{ID: d.ID, Webhook: d.WebhookID, EventID: d.EventID, State: d.Status}},
					)
				}
				if !page.HasMore {
					break
				}
				after = "&after=" + *page.NextCursor
			}
		}
	}
	w.once(ends)
	return nil
}

func (w *world) collectUsage(c *plain) error {
	var ends []history.End
	for _, o := range w.organizations {
		var allowance wire.Allowance
		if err := c.get("/api/v1/integrity/usage", o.owner, &allowance); err != nil {
			return err
		}
		usage := history.Usage{
			Organization: o.id, Period: allowance.Period.String(), Used: allowance.Organization.Used,
			Companies: map[string]int64{},
		}
		for _, company := range allowance.Companies {
			usage.Companies[company.CompanyReference] = company.Used
		}
		for after := ""; ; {
			var page wire.UsageEntries
			if err := c.get("/api/v1/integrity/usage/entries?limit=200"+after, o.owner, &page); err != nil {
				return err
			}
			for _, e := range page.Entries {
				usage.Entries = append(usage.Entries, e.EventID)
			}
			if !page.HasMore {
				break
			}
			after = "&after=" + *page.NextCursor
		}
		ends = append(ends, history.End{Usage: &usage})
	}
	w.once(ends)
	return nil
}

func (w *world) collectEvidence(c *plain) error {
	ends := []history.End{{Trust: &history.Trust{File: filepath.Base(w.pinnedPath())}}}
	for _, o := range w.organizations {
		for i, k := range o.known {
			if i%max(1, len(o.known)*len(w.organizations)/exports) != 0 {
				continue
			}
			var text []byte
			if err := c.get("/api/v1/integrity/records/"+k.publicID+"/evidence", o.worker, &text); err != nil {
				return err
			}
			file := filepath.Join("evidence", "end-"+k.publicID+".json")
			if err := os.WriteFile(filepath.Join(w.dir, file), text, 0o600); err != nil {
				return err
			}
			ends = append(ends, history.End{Evidence: &history.Evidence{PublicID: k.publicID, File: file}})
		}
	}
	w.once(ends)
	return nil
}

// collectTree saves all leaves from the tiles, and the last checkpoint.
func (w *world) collectTree(*plain) error {
	note, err := w.checkpoint()
	if err != nil {
		return err
	}
	const height, width = 8, 256
	size := sizeOf(note)
	var leaves []byte
	for n := int64(0); n*width < size; n++ {
		tile := tlog.Tile{H: height, L: 0, N: n, W: int(min(width, size-n*width))}
		text, err := w.public("/api/public/log/" + strings.Replace(tile.Path(), "tile/8/", "tile/", 1))
		if err != nil {
			return err
		}
		leaves = append(leaves, text...)
	}
	const file = "leaves.bin"
	if err := os.WriteFile(filepath.Join(w.dir, file), leaves, 0o600); err != nil {
		return err
	}
	w.once([]history.End{
		{Leaves: &history.Leaves{File: file}},
		{Checkpoint: &history.Checkpoint{Seen: w.history.Now(), By: "the harness", Note: note}},
	})
	return nil
}

// collectWatchers saves the states of the monitor and the witness.
func (w *world) collectWatchers(*plain) error {
	text, err := os.ReadFile(w.monitorState())
	if err != nil {
		return err
	}
	var state struct{ Checkpoint string }
	if err := json.Unmarshal(text, &state); err != nil {
		return err
	}
	alarms, _ := filepath.Glob(w.monitorState() + ".alarm-*")
	ends := []history.End{
		{Checkpoint: &history.Checkpoint{Seen: w.history.Now(), By: "the monitor", Note: state.Checkpoint}},
		{Monitor: &history.Monitor{Name: "the monitor", Size: sizeOf(state.Checkpoint), Alarm: strings.Join(alarms, " ")}},
	}
	r := w.run(time.Minute, w.processes["witness"].env, "log", "cosigned", "--json")
	var logs []operator.CosignedView
	if err := json.Unmarshal([]byte(r.out), &logs); err != nil || len(logs) != 1 {
		return fmt.Errorf("integrity log cosigned: exit code %d, %d logs: %w: %s", r.code, len(logs), err, r.errs)
	}
	seen := history.Monitor{Name: "the witness", Size: logs[0].Size}
	if len(logs[0].SplitViews) > 0 || logs[0].Halted {
		seen.Alarm = r.out
	}
	w.once(append(
		ends, history.End{Monitor: &seen},
		history.End{Checkpoint: &history.Checkpoint{Seen: w.history.Now(), By: "the witness", Note: logs[0].Checkpoint}},
	))
	return nil
}

// verdicts runs the service's own checks of the ledger.
func (w *world) verdicts() {
	say := func(name, organization string, r result) {
		w.note("%s %s: exit code %d: %s", name, organization, r.code, lastLine(r.out+r.errs))
		output := r.out + r.errs
		w.history.End(history.End{
			Verdict: &history.Verdict{
				Name: name, Organization: organization, Exit: r.code, Clean: r.code == 0, Output: output[:min(len(output), 4000)],
			},
		})
	}
	const patience = 10 * time.Minute
	say(history.AuditVerdict, "", w.run(patience, w.ledgerEnv(), "audit"))
	say(history.RebuildVerdict, "", w.run(patience, w.ledgerEnv(), "rebuild", "--check"))
	for i, o := range w.organizations {
		bundle := filepath.Join(w.data, fmt.Sprintf("bundle-%d", i))
		if r := w.run(patience, w.ledgerEnv(), "export", "--organization", o.id, "--out", bundle); r.code != 0 {
			say(history.BundleVerdict, o.id, r)
			continue
		}
		say(history.BundleVerdict, o.id, w.run(patience, clean(), "audit", bundle, "--trusted-keys", w.pinnedPath()))
	}
	r := w.run(time.Minute, w.ledgerEnv(), "doctor")
	w.note("doctor: exit code %d\n%s%s", r.code, r.out, r.errs)
}
