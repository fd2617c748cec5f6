package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/integritytest"
	"integrityledger/cmd/integrity/operator"
	"integrityledger/cmd/lab/weather/history"
	"integrityledger/domain"
	"integrityledger/domain/evidence"
	"integrityledger/eventstore/pgtest/network"
	"integrityledger/handlers/wire"
)

const (
	// regionPatience is how much longer the end may take for the loss of the region.
	regionPatience = 3 * time.Minute
	// regionServices is the number of processes in the second region.
	regionServices = 2
	// secondRegion is the beginning of their names.
	secondRegion = "region-2 "
	// beforeCut, afterCut and afterward are how long clients work before the standby is cut off, from then to the loss
	// (at least), and at each step afterward.
	beforeCut, afterCut, afterward = 2 * time.Second, 4 * time.Second, 3 * time.Second
)

// inRegion are the clients that work while the region is lost. Their keys, and the kept bytes, exist in both regions,
// so that everything that is lost is a record, a reservation or a revocation.
var inRegion = []life{
	{"r-fresh", (*client).registerFresh},
	{"r-origin", func(c *client) { c.registerShared("r-shared", false) }},
	{"r-rival", func(c *client) { c.registerShared("r-shared", false) }},
	{"r-batch", (*client).registerBatches}, {"r-reserve", (*client).reserveAndFinish}, {"r-keep", (*client).keepEvidence},
	{"r-compare", (*client).compareAll}, {"r-reader", (*client).readOwnWrites}, {"r-feed", (*client).followFeed},
}

// keepEvidence registers versions, revokes some, and keeps the evidence of each.
func (c *client) keepEvidence() {
	for n := int32(1); c.rest(); n++ {
		d := declarationOf(c.of.company(c.rng).Reference, fmt.Sprintf("%s-%d", c.name, n/3), 1+n%3, "")
		call := c.register(c.of.worker, d)
		if call.Outcome != history.Answered || !c.rest() {
			continue
		}
		k := known{d, call.Answer.PublicID}
		if c.rng.IntN(4) == 0 {
			c.revoke(k)
		}
		if file := c.evidence(k).Answer.File; file != "" {
			c.of.keep(file)
		}
	}
}

// regionLoss is the loss of the region, as it happens.
type regionLoss struct {
	*world
	t    testing.TB
	loss history.Loss
}

// loseRegion loses the whole first region while clients work: all services, poolers and servers end at once. The late
// standby, which the last commits have not reached, is promoted in a second region. What is lost is healed from what
// clients hold. The calls, and the end, are a history of their own, in the directory region of the run.
func (w *world) loseRegion(t testing.TB, before []history.LogEvent) {
	r := &regionLoss{world: w, t: t, loss: history.Loss{Region: secondRegion}}
	w.waits("the region")
	w.processes["monitor"].stop() // it would raise an alarm, and be right: the tree stands still afterwards
	r.open(before)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	clients := w.startClients(ctx, w.seed+1, inRegion)
	time.Sleep(beforeCut)
	for name, link := range w.links {
		if strings.HasPrefix(name, serverLate+" → ") {
			link.Set(network.Weather{Away: true})
			link.Cut()
		}
	}
	w.note("nothing reaches the other region any more")
	time.Sleep(afterCut + time.Duration(rand.New(rand.NewPCG(w.seed, 2)).Int64N(int64(afterCut))))
	fault := history.Fault{Number: w.history.Number(), Name: "region", Target: "the first region", Start: w.history.Now()}
	former := r.die()
	r.promote()
	fault.End = w.history.Now()
	w.recoveries.wait(fault, "")
	time.Sleep(afterward) // clients send again what was not acknowledged, and register anew what is lost
	r.heal()
	time.Sleep(afterward)
	cancel()
	clients.Wait()
	for _, f := range w.recoveries.close() {
		w.violation("nothing was acknowledged after %s of %s", f.Name, f.Target)
	}
	w.lookUpUnknown()
	r.close(former)
}

// open begins the history of the loss.
func (r *regionLoss) open(before []history.LogEvent) {
	pinned := r.pinnedPath()
	r.dir = filepath.Join(r.dir, "region")
	makeDirectories(r.t, r.dir)
	text, err := os.ReadFile(pinned)
	if err == nil {
		err = os.WriteFile(r.pinnedPath(), text, 0o600)
	}
	r.header.Prefix = map[int]int64{}
	for _, e := range before {
		r.header.Prefix[e.Shard] = max(r.header.Prefix[e.Shard], e.Position)
	}
	if err == nil {
		r.history, err = history.Create(r.dir, r.header)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.calls = "region"
	if err := within(time.Minute, func() error {
		if ran := r.command("upgrade", "finish"); ran.code != 0 { // heal needs the rule healed-records
			return fmt.Errorf("integrity upgrade finish: exit code %d: %s%s", ran.code, ran.out, ran.errs)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	for _, o := range r.organizations {
		o.unknown = nil
	}
}

// die ends everything in the first region at once, and returns its primary.
func (r *regionLoss) die() (former *server) {
	former = r.primary.Load()
	var all sync.WaitGroup
	for name, p := range r.processes {
		if strings.HasPrefix(name, "service") || strings.HasPrefix(name, "pooler") {
			all.Go(p.kill)
		}
	}
	for _, name := range thePair(r.world) {
		all.Go(r.servers[name].kill)
	}
	all.Wait()
	r.loss.At, r.second = r.history.Now(), secondRegion
	r.front.region.Store(&r.second)
	r.note("the first region is lost")
	return former
}

// promote makes the second region serve, as page Disasters says.
func (r *regionLoss) promote() {
	late := r.servers[serverLate]
	if err := within(time.Minute, func() error {
		recovering, err := ask[bool](late, "SELECT pg_is_in_recovery()")
		if err == nil && recovering {
			_, err = ask[bool](late, "SELECT pg_promote(true, 5)")
		}
		if err == nil && recovering {
			err = errors.New("it is no primary yet")
		}
		return err
	}); err != nil {
		r.t.Fatalf("promote %s: %v", late.name, err)
	}
	r.primary.Store(late)
	heads, err := ask[string](late, "SELECT json_object_agg(shard, position)::text FROM shard_heads")
	if err == nil {
		err = json.Unmarshal([]byte(heads), &r.loss.Kept)
	}
	if err == nil {
		err = late.sql("ALTER SYSTEM SET synchronous_standby_names = ''", "SELECT pg_reload_conf()")
	}
	if err == nil {
		err = r.copyKeys()
	}
	if err != nil {
		r.t.Fatal(err)
	}
	r.command("restore", "--external")
	for i := range regionServices {
		p := r.processes[serviceName(i)]
		p.env = slices.DeleteFunc(p.env, func(entry string) bool {
			return strings.HasPrefix(entry, "INTEGRITY_REPLICA_URL=")
		})
		for _, entry := range r.ledgerEnv() {
			if strings.HasPrefix(entry, "INTEGRITY_") {
				p.env = append(p.env, entry) // the last one counts
			}
		}
		p.start()
	}
	if err := within(integritytest.Patient, func() error {
		if !r.front.ready[0].Load() {
			return errors.New("the second region is not ready")
		}
		return nil
	}); err != nil {
		r.t.Fatal(err, tail(r.processes[serviceName(0)].logPath()))
	}
	r.note("the second region serves, with the events up to %v", r.loss.Kept)
}

// copyKeys gives the second region its copies of the key files and kept bytes. What processes of the first one have
// remembered is lost.
func (r *regionLoss) copyKeys() error {
	data := r.t.TempDir()
	err := os.CopyFS(data, os.DirFS(r.data))
	if err != nil {
		return err
	}
	r.data = data
	return filepath.WalkDir(data, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || entry.IsDir():
		case strings.HasPrefix(entry.Name(), "signed-head-"):
			err = os.Remove(path)
		default:
			err = os.Chmod(path, 0o600)
		}
		return err
	})
}

// heal plans and applies what each organization holds, and asks for all of it before and after.
func (r *regionLoss) heal() {
	states := map[domain.HealState]int{}
	var lost []func(*client)
	var back []func()
	for i, o := range r.organizations {
		held := filepath.Join(r.dir, "held", fmt.Sprint(i+1))
		of, kept := r.held(o, held)
		planned := r.healed(o, held, "plan")
		for id, state := range planned {
			states[state]++
			r.loss.Planned = append(r.loss.Planned, id)
			k := of[id]
			lost = append(lost, func(c *client) { c.of = o; c.compare(k, k.SHA256) })
			back = append(back, func() { r.online(o, k, kept[id], state) })
		}
	}
	slices.Sort(r.loss.Planned)
	r.each(lost)
	r.loss.HealedFrom = r.history.Now()
	for i, o := range r.organizations {
		held := filepath.Join(r.dir, "held", fmt.Sprint(i+1))
		r.healed(o, held, "apply", "--declared")
	}
	r.loss.HealedTo = r.history.Now()
	for _, ask := range back {
		ask()
	}
	told := fmt.Sprintf("region: heal plan prints as lost %v, and all of it is asked for after heal apply", states)
	r.note("%s", told)
	fmt.Println(told)
}

// each makes calls as one client.
func (r *regionLoss) each(calls []func(*client)) {
	http := r.front.client(callPatience)
	defer http.CloseIdleConnections()
	c := &client{
		w: r.world, name: "after-loss", rng: rand.New(rand.NewPCG(r.seed, 3)), http: http, ctx: context.Background(),
		pace: time.Millisecond,
	}
	for _, call := range calls {
		call(c)
	}
}

// held writes what an organization holds: an outbox of all its declarations, with the answers that it got, and the
// evidence that it kept. It returns the versions and the evidence by public id.
func (r *regionLoss) held(o *organization, dir string) (of map[string]known, kept map[string][]byte) {
	of, kept = map[string]known{}, map[string][]byte{}
	err := os.MkdirAll(dir, 0o755)
	if err != nil {
		r.t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "outbox.jsonl"))
	if err != nil {
		r.t.Fatal(err)
	}
	out := json.NewEncoder(file)
	type answer struct {
		PublicID string `json:"publicId"`
	}
	type item struct {
		Declaration wire.Declaration `json:"declaration"`
		Response    *answer          `json:"response,omitempty"`
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, k := range o.known {
		if _, twice := of[k.publicID]; twice {
			continue
		}
		of[k.publicID] = k
		k.ReservationID = ""
		err = errors.Join(err, out.Encode(item{k.Declaration, &answer{k.publicID}}))
	}
	for _, c := range o.unknown {
		if q := c.Request; c.Operation == history.Register {
			err = errors.Join(err, out.Encode(item{wire.Declaration{
				CompanyReference: c.Company, Source: q.Source, DocumentReference: q.Document, Version: q.Version,
				SHA256: q.Hash, SizeBytes: q.SizeBytes, MimeType: q.MimeType, GeneratedAt: q.GeneratedAt,
			}, nil}))
		}
	}
	err = errors.Join(err, file.Close())
	for _, path := range o.evidence {
		text, wrong := os.ReadFile(filepath.Join(r.dir, path))
		envelope, alsoWrong := evidence.ParseEnvelope(text)
		err = errors.Join(err, wrong, alsoWrong, os.WriteFile(filepath.Join(dir, filepath.Base(path)), text, 0o600))
		if p, wrong := evidence.ParseRecordPayload([]byte(envelope.Payload)); wrong == nil {
			kept[p.PublicID] = []byte(envelope.Payload)
		}
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return of, kept
}

// healed runs integrity heal for an organization. It returns the public ids that were lost, with their states.
func (r *regionLoss) healed(o *organization, dir string, args ...string) map[string]domain.HealState {
	args = append(append([]string{"heal"}, args...), "--organization", o.id, dir, "--json")
	ran := r.command(args...)
	r.note("integrity %v: exit code %d: %s", args[:2], ran.code, lastLine(ran.out+ran.errs))
	lost := map[string]domain.HealState{}
	for lines := bufio.NewScanner(strings.NewReader(ran.out)); lines.Scan(); {
		var v operator.HealView
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			r.t.Fatal(err)
		}
		switch state := domain.HealState(v.State); {
		case state == "" || state == domain.HealRevocation: // the summary; a record of which only the revocation is lost
		case state != domain.HealRefused && v.PublicID != nil:
			lost[*v.PublicID] = state
		case v.Reason == nil || *v.Reason != string(domain.HealUnknownID): // never acknowledged: the origin sends it again
			r.violation("integrity heal refuses what a client holds: %s", lines.Text())
		}
	}
	return lost
}

// command runs a command that may be repeated, until it gives an answer.
func (r *regionLoss) command(args ...string) (ran result) {
	if err := within(integritytest.Patient, func() error {
		if ran = r.run(2*time.Minute, r.ledgerEnv(), args...); ran.code != 0 && ran.code != cli.ExitNegative {
			return fmt.Errorf("integrity %v: exit code %d: %s", args, ran.code, ran.errs)
		}
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return ran
}

// online verifies what a client holds of a record that was lost, with the second region: the public id answers for the
// version, with the receipt that the client holds, if any; an alias has a valid statement.
func (r *regionLoss) online(o *organization, k known, receipt []byte, state domain.HealState) {
	var call history.Call
	if err := within(integritytest.Patient, func() error {
		r.each([]func(*client){func(c *client) {
			c.of = o
			call = c.compare(k, k.SHA256)
		}})
		if call.Outcome == history.Unknown { // a busy service may answer 503
			return fmt.Errorf("%d %s", call.Status, call.Code)
		}
		return nil
	}); err != nil ||
		!slices.Contains([]string{"MATCH_CURRENT", "MATCH_HISTORICAL", "RECORD_REVOKED"}, call.Answer.Result) {
		r.violation("after healing, %s is answered with %d %s%s", k.publicID, call.Status, call.Code, call.Answer.Result)
		return
	}
	if receipt == nil && state != domain.HealAlias {
		return
	}
	http := r.front.client(callPatience)
	defer http.CloseIdleConnections()
	c := &plain{w: r.world, http: http}
	var compared wire.Comparison
	var text []byte
	path := "/api/public/integrity/" + k.publicID
	if err := within(integritytest.Patient, func() error {
		return errors.Join(
			c.get(path+"?sha256="+k.SHA256, credential{}, &compared), c.get(path+"/receipt", credential{}, &text),
		)
	}); err != nil {
		r.violation("after healing: %v", err)
		return
	}
	trust, err := os.ReadFile(r.pinnedPath())
	if err != nil {
		r.t.Fatal(err)
	}
	keys, err := evidence.ParseTrustedKeys(trust)
	if err != nil {
		r.t.Fatal(err)
	}
	found := evidence.Verify(text, keys, evidence.Options{Now: time.Now().Add(maxSkew * time.Second)})
	envelope, err := evidence.ParseEnvelope(text)
	switch {
	case err != nil || found.Signature != evidence.Valid || found.Record == nil:
		r.violation("after healing, the receipt of %s does not verify: %v %v", k.publicID, err, found.Reasons)
	case receipt != nil && envelope.Payload != string(receipt):
		r.violation("after healing, the receipt of %s is another one than a client holds", k.publicID)
	}
	if a := compared.Alias; a != nil {
		said, err := evidence.ParseAliasPayload([]byte(a.Statement.Payload))
		finding := evidence.CheckSignature(keys, a.Statement.KeyID, []byte(a.Statement.Payload), a.Statement.Signature)
		if err != nil || finding != evidence.Valid || said.PublicID != k.publicID || said.AliasOf != a.PublicID {
			r.violation("the statement of the alias %s is %s: %+v %v", k.publicID, finding, said, err)
		}
	}
}

// close reads the end state of the second region, and what the dead servers of the first had.
func (r *regionLoss) close(former *server) {
	log := r.patientLog()
	r.readLost(former, log)
	for i := range log {
		r.history.End(history.End{Log: &log[i]})
	}
	r.history.End(history.End{Loss: &r.loss})
	http := r.front.client(time.Minute)
	defer http.CloseIdleConnections()
	c := &plain{w: r.world, http: http}
	if err := within(time.Minute, func() error {
		return errors.Join(r.collectFeeds(c), r.collectUsage(c), r.collectEvidence(c))
	}); err != nil {
		r.t.Errorf("the end state of the second region: %v", err)
	}
	r.verdicts()
	if err := r.history.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// patientLog returns the log of the present primary.
func (r *regionLoss) patientLog() (log []history.LogEvent) {
	if err := within(integritytest.Patient, func() (err error) {
		log, err = r.readLog()
		return err
	}); err != nil {
		r.t.Fatal(err)
	}
	return log
}

// readLost reads the log of the first region from its disk: nobody else can. It must be that of the second region up to
// the promotion.
func (r *regionLoss) readLost(former *server, log []history.LogEvent) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := former.start(ctx); err != nil {
		r.t.Fatal(err)
	}
	second := r.primary.Swap(former)
	all := r.patientLog()
	r.primary.Store(second)
	former.kill()
	type place struct {
		shard    int
		position int64
	}
	hashes := map[place]string{}
	for _, e := range log {
		hashes[place{e.Shard, e.Position}] = e.Hash
	}
	for _, e := range all {
		if e.Position > r.loss.Kept[e.Shard] {
			r.loss.Lost = append(r.loss.Lost, e)
		} else if hashes[place{e.Shard, e.Position}] != e.Hash {
			r.violation("event %s of the first region was on the standby, but the second region has another", e.ID)
		}
	}
	if len(r.loss.Lost) == 0 {
		r.violation("the region lost nothing: the drill has drilled nothing")
	}
	r.note("the first region had %d events more", len(r.loss.Lost))
}
