package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"integrityledger/cmd/lab/weather/history"
)

const second = int64(time.Second)

// hostile is what no name should be. Each place gives it a number, so that a missing one is noticed.
const hostile = `"'></title></style></svg><script>alert(1)</script><img src=//evil.example/x onerror=alert(2)>{{.}}`

// small is a run of 100 seconds.
func small() (*history.History, Verdicts) {
	h := &history.History{
		Header: history.Header{
			Seed: 42, StartedAt: "2026-11-26T10:00:00Z", Seconds: 90, SkewNanoseconds: 180 * second, Versions: map[string]string{"PostgreSQL": "15.20"},
			Organizations: []history.Organization{{ID: "org_1", Name: "One", Plan: "limited", VersionsPerMonth: new(int64)}},
		},
		Faults: []history.Fault{
			{Number: 1, Name: "kill", Target: "service-a", Start: 10 * second, End: 20 * second, RecoveredAt: 25 * second},
			{Number: 2, Name: "cut", Target: "service-a", Start: 15 * second, End: 35 * second, RecoveredAt: 36 * second},
			{Number: 3, Name: "cut", Target: "primary", Start: 50 * second, End: 75 * second},
		},
	}
	number := int64(10)
	add := func(client string, o history.Operation, outcome history.Outcome, start, lasts int64) *history.Call {
		number++
		h.Calls = append(h.Calls, history.Call{
			Number: number, RequestID: fmt.Sprint("r", number), Client: client, Organization: "org_1", Operation: o, Start: start, End: start + lasts, Outcome: outcome,
		})
		return &h.Calls[len(h.Calls)-1]
	}
	for i := range int64(200) { // in the second from 30 s on, taking 1 to 200 ms
		add("writer", history.Register, history.Answered, 30*second+second/2-i*second/1000, (i+1)*second/1000)
	}
	*add("writer", history.Register, history.Refused, 40*second, second) = history.Call{
		Number: 500, RequestID: "r500", Client: "writer", Operation: history.Register, Start: 40 * second, End: 41 * second, Outcome: history.Refused, Status: 409, Code: "version_conflict",
	}
	add("reader", history.Lookup, history.Unknown, 60*second, 5*second)
	add("writer", history.Register, history.Unknown, 60*second, 5*second).RequestID = "took-effect"
	add("writer", history.Revoke, history.Unknown, 61*second, 5*second).Request.IdempotencyKey = "repeated"
	add("writer", history.Revoke, history.Answered, 70*second, second).Request.IdempotencyKey = "repeated"
	for version := range int32(2) { // a batch whose first item alone took effect
		c := add("writer", history.Register, history.Unknown, 80*second, second)
		c.RequestID, c.Batch, c.Request.Source, c.Request.Document, c.Request.Version = "batch", 9, "s", "d", version+1
	}
	add("reader", history.Lookup, history.Answered, 99*second, second)
	h.End.Log = []history.LogEvent{
		{ID: "evt_1", RequestID: "took-effect", Data: json.RawMessage(`{}`)},
		{ID: "evt_2", RequestID: "batch", Data: json.RawMessage(`{"source":"s","documentReference":"d","version":1}`)},
		{ID: "evt_3", RequestID: "another", Data: json.RawMessage(`[]`)},
	}
	return h, Verdicts{
		Again: "make weather SEED=42", Checks: []string{"log", "quota", "search", "resolved"}, Skipped: []string{"search"}, Counts: map[string]int64{"feed pages": 1234},
		Undecided:  []Finding{{Check: "quota", Of: "org_1", Text: "not decided in two minutes", Calls: []int64{11}}},
		Violations: []Finding{{Check: "resolved", Of: "d/1", Text: "it took effect twice", Calls: []int64{500, 777}}},
	}
}

// view is a page as a reader of HTML sees it.
type view struct {
	*testing.T
	text string
	root *html.Node
}

func draw(t *testing.T, h *history.History, v Verdicts) view {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, h, v); err != nil {
		t.Fatal(err)
	}
	root, err := html.Parse(&b)
	if err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := Write(&b, h, v); err != nil {
		t.Fatal(err)
	}
	return view{t, b.String(), root}
}

// all are the elements of a name below n, or n's attribute.
func all(n *html.Node, is func(*html.Node) bool) (found []*html.Node) {
	for d := range n.Descendants() {
		if d.Type == html.ElementNode && is(d) {
			found = append(found, d)
		}
	}
	return found
}

func named(name string) func(*html.Node) bool {
	return func(n *html.Node) bool { return n.Data == name }
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

func words(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode && d.Parent.Data != "style" {
			b.WriteString(d.Data + " ")
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func (v view) id(id string) *html.Node {
	v.Helper()
	found := all(v.root, func(n *html.Node) bool { return attribute(n, "id") == id })
	if len(found) != 1 {
		v.Fatalf("%d elements have the id %s", len(found), id)
	}
	return found[0]
}

func (v view) wantRow(section, row string) {
	v.Helper()
	var rows []string
	for _, tr := range all(v.id(section), named("tr")) {
		rows = append(rows, words(tr))
	}
	if !slices.Contains(rows, row) {
		v.Errorf("%s must have the row %q:\n%s", section, row, strings.Join(rows, "\n"))
	}
}

// What a person looks for stands on the page, and as the history has it.
func TestPage(t *testing.T) {
	t.Parallel()
	h, verdicts := small()
	v := draw(t, h, verdicts)
	v.wantRow("calls", "register 204 200 1 3 102 ms 1.0 s 5.0 s")
	v.wantRow("checks", "feed pages 1 234")
	if tiles := words(all(v.root, func(n *html.Node) bool { return attribute(n, "class") == "tiles" })[0]); tiles != "calls 208 answers 202 refusals 1 unknown outcomes 5 faults 3 longest recovery 5.0 s" {
		t.Error(tiles)
	}
	v.wantRow("calls", "lookup 2 1 0 1 1.0 s 5.0 s 5.0 s")
	v.wantRow("calls", "refusal 409 version_conflict 1")
	v.wantRow("time", "0:30 200 0 0 100 ms 198 ms")
	v.wantRow("time", "0:40 0 0 0")
	v.wantRow("time", "0:41 0 1 0 1.0 s 1.0 s")
	v.wantRow("time", "writer 201 1 4")
	v.wantRow("recovery", "cut 2 25.0 s 1.0 s 1.0 s 1.0 s 1")
	v.wantRow("recovery", "kill 1 10.0 s 5.0 s 5.0 s 5.0 s 0")
	v.wantRow("recovery", "3 cut primary 0:50 25.0 s –")
	v.wantRow("unknown", "register 3 0 2 1 0")
	v.wantRow("unknown", "revoke 1 0 0 1 1")
	v.wantRow("unknown", "lookup 1 1 0 0 0")
	v.wantRow("unknown", "all 5 1 2 2 1")
	v.wantRow("again", "org_1 One limited 0 0")
	again := words(v.id("again"))
	for _, text := range []string{"make weather SEED=42", "Seed 42", "last 90 s", "up to 3 min 00 s", "PostgreSQL 15.20"} {
		if !strings.Contains(again, text) {
			t.Errorf("%q is missing: %s", text, again)
		}
	}
	h.End.Log = nil
	draw(t, h, verdicts).wantRow("unknown", "register 3 0 – – 0")
}

// A bar begins and ends where its fault does, in the lane of its target, and does not cover another.
func TestBars(t *testing.T) {
	t.Parallel()
	v := draw(t, first(small()), Verdicts{})
	number := func(text string) (f float64) {
		if _, err := fmt.Sscan(text, &f); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		return f
	}
	top := map[int]float64{}
	for i, want := range [][2]float64{{221.5, 71.5}, {257.3, 143}, {507.5, 178.8}} { // of 715 for 100 s, from 150 on
		rect := all(v.id(fmt.Sprint("bar-", i+1)), named("rect"))[0]
		if x, w := number(attribute(rect, "x")), number(attribute(rect, "width")); x != want[0] || w != want[1] {
			t.Errorf("fault %d is drawn from %v on, %v wide: must be %v", i+1, x, w, want)
		}
		top[i+1] = number(attribute(rect, "y"))
	}
	if top[2]-top[1] < barHeight || top[1]-top[3] < barHeight { // lanes are in the order of their names
		t.Errorf("bars cover each other: %v", top)
	}
	back := all(v.id("bar-1"), named("path"))
	if len(back) != 1 || !strings.Contains(attribute(back[0], "d"), "M293 ") || !strings.Contains(attribute(back[0], "d"), "H328.8") {
		t.Error("the way back of the first fault must lead from 20 s to 25 s")
	}
	if len(all(v.id("bar-3"), named("path"))) != 0 {
		t.Error("a fault whose recovery was not looked for has a way back")
	}
}

func first(h *history.History, _ Verdicts) *history.History { return h }

// A strip shows an outcome from the start of its call to its end.
func TestStrips(t *testing.T) {
	t.Parallel()
	h, _ := small()
	c := newClients(h.Calls, newAxis(h))
	if len(c.Strips) != 2 || c.Strips[0].Name != "reader" {
		t.Fatalf("%+v", c.Strips)
	}
	want := map[string]string{"answered": "M857.9 12H865v4.5H857.9z", "unknown": "M579 22H621.9v4.5H579z"} // 60 s to 65 s, with the second in which it ends
	for _, p := range c.Strips[0].Paths {
		if p.D != want[p.Class] {
			t.Errorf("the reader: %+v, must be %q", p, want[p.Class])
		}
	}
	for i := range h.Calls { // among ten answers of the same second, one unknown is few, and two are more
		h.Calls[i].Start, h.Calls[i].End, h.Calls[i].Outcome, h.Calls[i].Client = second, second, history.Answered, "c"
	}
	h.Calls = h.Calls[:10]
	for n, class := range []string{"", "unknown pale", "unknown half"} {
		if n > 0 {
			h.Calls[n].Outcome = history.Unknown
		}
		for _, p := range newClients(h.Calls, newAxis(h)).Strips[0].Paths {
			if strings.HasPrefix(p.Class, "unknown") && (p.D != "") != (p.Class == class) {
				t.Errorf("%d of 10 are unknown: %+v", n, p)
			}
		}
	}
}

// Violations stand before everything else, undecided questions before what passed.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	h, verdicts := small()
	v := draw(t, h, verdicts)
	checks := words(v.id("checks"))
	last := -1
	for _, text := range []string{"resolved: ✕ violated", "it took effect twice Calls: 500 at 0:40 (writer, register: refusal 409)", "quota: ? undecided", "not decided in two minutes", "– skipped search", "✓ passed log"} {
		at := strings.Index(checks, text)
		if at <= last {
			t.Errorf("%q stands at %d, after %d: %s", text, at, last, checks)
		}
		last = at
	}
	if got := words(v.id("verdict")); got != "✕ 1 violation. 4 checks, 1 undecided question, 1 skipped." {
		t.Error(got)
	}
	if marks := strings.Count(v.text, `class="mark" x1="436"`); marks != 5 || strings.Count(v.text, `class="mark"`) != 5 {
		t.Errorf("%d drawings mark the violation at 40 s, must be 5", marks)
	}
	both := Verdicts{Violations: []Finding{{Check: "log", Of: "a"}}, Undecided: []Finding{{Check: "log", Of: "b"}}}
	if checks := words(draw(t, h, both).id("checks")); !strings.HasPrefix(checks, "Checks log: ✕ violated a : b : undecided.") {
		t.Errorf("what is violated is not undecided: %s", checks)
	}
	for name, test := range map[string]struct {
		verdicts Verdicts
		want     string
	}{
		"good":             {Verdicts{Checks: []string{"log"}}, "✓ No violation. 1 check."},
		"undecided":        {Verdicts{Checks: []string{"log", "quota"}, Undecided: []Finding{{Check: "quota"}}}, "? Not proved. 2 checks, 1 undecided question."},
		"all skipped":      {Verdicts{Skipped: []string{"log"}}, "? Not proved. 1 check, 1 skipped."},
		"of another check": {Verdicts{Checks: []string{"log"}, Violations: []Finding{{Check: "new"}, {Check: "new"}}}, "✕ 2 violations. 2 checks."},
		"both":             {both, "✕ 1 violation. 1 check, 1 undecided question."},
		"not judged":       {Verdicts{}, "? Not proved. No check has judged this run."},
	} {
		if got := words(draw(t, h, test.verdicts).id("verdict")); got != test.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// poisoned is the small run with every text of it replaced, by a text of its own.
func poisoned() (*history.History, Verdicts, int) {
	h, v := small()
	n := 0
	poison := func(texts ...*string) {
		for _, text := range texts {
			*text = fmt.Sprintf("%d%s", n, hostile)
			n++
		}
	}
	o, f, c := &h.Header.Organizations[0], &h.Faults[0], &h.Calls[0]
	poison(&h.Header.StartedAt, &o.ID, &o.Name, &o.Plan, &f.Name, &f.Target, &f.Detail, &c.Client, (*string)(&c.Operation), &v.Again)
	c.Outcome, c.Number = history.Unknown, 777
	poison(&c.Code)
	violation, question := &v.Violations[0], &v.Undecided[0]
	poison(&v.Checks[0], &v.Skipped[0], &violation.Check, &violation.Of, &violation.Text, &question.Check, &question.Of, &question.Text)
	command, monitor := history.Verdict{}, history.Monitor{}
	poison(&command.Name, &command.Organization, &command.Output, &monitor.Name, &monitor.Alarm)
	h.End.Verdicts, h.End.Monitors = []history.Verdict{command}, []history.Monitor{monitor}
	var name, version, of string
	poison(&name, &version, &of)
	h.Header.Versions[name] = version
	v.Counts[of] = 1
	return h, v, n
}

// TestHostileNames: foreign text stays text, wherever it stands, and the page asks nobody for anything.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	h, verdicts, n := poisoned()
	v := draw(t, h, verdicts)
	v.harmless()
	text := words(v.root)
	for i := range n {
		if !strings.Contains(text, fmt.Sprintf(`%d"'></title></style>`, i)) && !strings.Contains(text, fmt.Sprintf(`%d"'></title></st`, i)) {
			t.Errorf("text %d is missing", i)
		}
	}
}

// harmless fails on every element that runs something or asks for something.
func (v view) harmless() {
	v.Helper()
	allowed := strings.Fields(`html head meta title link style body header h1 h2 h3 p main section dl div dt dd article ul li strong em span figure figcaption svg g rect
		path line text details summary table caption thead tbody tfoot tr th td pre code`)
	for _, n := range all(v.root, func(*html.Node) bool { return true }) {
		if !slices.Contains(allowed, n.Data) {
			v.Errorf("an element %s", n.Data)
		}
		for _, a := range n.Attr {
			if strings.HasPrefix(a.Key, "on") || a.Key == "src" || a.Key == "style" || a.Key == "href" && a.Val != "data:," || strings.Contains(a.Val, "evil.example") {
				v.Errorf("%s has %s=%q", n.Data, a.Key, a.Val)
			}
		}
	}
	if strings.Contains(v.text, "@import") || regexp.MustCompile(`url\(|https?://`).MatchString(v.text) {
		v.Error("the page names something outside")
	}
}

// Texts are cut between characters, and what is no text becomes one.
func TestShort(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "abc": "abc", "äöü": "äöü", "äöüß": "äöü …", "🌧🌧🌧🌧🌧🌧": "🌧🌧🌧 …", "\xff": "\ufffd", "abcdefghijklmnopqrst": "abc …"} {
		if got := short(3, text); got != want {
			t.Errorf("%q becomes %q, must be %q", text, got, want)
		}
	}
}

// TestLongTexts: a few texts without end make no page without end, nor do findings.
func TestLongTexts(t *testing.T) {
	t.Parallel()
	h, v := small()
	long := strings.Repeat("ä<", 200_000)
	for i := range h.Calls {
		h.Calls[i].Client, h.Calls[i].Code, h.Calls[i].Operation = long, long, history.Operation(long)
	}
	h.Header.Organizations[0].Name, h.Faults[0].Name, h.Faults[0].Target, h.Faults[0].Detail = long, long, long, long
	h.End.Monitors = []history.Monitor{{Name: long, Alarm: long}}
	for range 5000 {
		v.Violations = append(v.Violations, Finding{Check: "log", Of: "d/2", Text: "it is not there", Calls: make([]int64, 5000)})
	}
	page := draw(t, h, v)
	if len(page.text) > 200_000 {
		t.Errorf("the page has %d bytes", len(page.text))
	}
	if checks := words(page.id("checks")); !strings.Contains(checks, "and 4 950 more") {
		t.Error("the page must say how many findings it leaves out")
	}
}

// TestValid: the page is what it is meant to be, without a reader's repairs: each tag is closed by its own, no id is given
// twice, and each drawing has a name.
func TestValid(t *testing.T) {
	t.Parallel()
	h, verdicts, _ := poisoned()
	v := draw(t, h, verdicts)
	if !strings.HasPrefix(v.text, "<!DOCTYPE html>\n<html lang=\"en\">") {
		t.Errorf("the page begins with %q", v.text[:40])
	}
	var open []string
	ids := map[string]bool{}
	for tokens := html.NewTokenizer(strings.NewReader(v.text)); tokens.Next() != html.ErrorToken; {
		token := tokens.Token()
		for _, a := range token.Attr {
			if a.Key == "id" && ids[a.Val] {
				t.Errorf("two elements have the id %s", a.Val)
			}
			ids[a.Val] = ids[a.Val] || a.Key == "id"
		}
		switch {
		case token.Type == html.StartTagToken && !slices.Contains([]string{"meta", "link"}, token.Data):
			open = append(open, token.Data)
		case token.Type == html.EndTagToken && (len(open) == 0 || open[len(open)-1] != token.Data):
			t.Fatalf("</%s> closes %v", token.Data, open)
		case token.Type == html.EndTagToken:
			open = open[:len(open)-1]
		}
	}
	if len(open) != 0 {
		t.Errorf("not closed: %v", open)
	}
	drawings := all(v.root, func(n *html.Node) bool { return n.Data == "svg" && attribute(n, "aria-hidden") == "" })
	for _, svg := range drawings {
		if attribute(svg, "role") != "img" || attribute(svg, "aria-label") == "" {
			t.Errorf("a drawing has no name: %v", svg.Attr)
		}
	}
	if len(drawings) != 5 {
		t.Errorf("%d drawings, must be 5", len(drawings))
	}
	for _, tr := range all(v.root, named("tr")) {
		if cells, heads := len(all(tr, func(n *html.Node) bool { return n.Data == "td" || n.Data == "th" })), headOf(tr); cells != heads {
			t.Errorf("a row of %d cells below %d heads: %s", cells, heads, words(tr))
		}
	}
}

// headOf is the number of columns that the head of a row's table has.
func headOf(tr *html.Node) int {
	table := tr.Parent.Parent
	return len(all(all(table, named("thead"))[0], named("th")))
}

// hour is a run of an hour in worse weather than any: 300,000 calls of many clients with long names, and 2,000 faults.
func hour(clients, calls, faults int) *history.History {
	r := rand.New(rand.NewPCG(1, 2))
	h := &history.History{Header: history.Header{
		Seed: 1, StartedAt: "2026-11-26T10:00:00Z", Seconds: 3600, Versions: map[string]string{"PostgreSQL": "15.20", "service": "1dc20894", "NATS": "2.15.2", "Go": "1.26.8"},
		Organizations: []history.Organization{{ID: "org_01", Name: "One", Plan: "growth"}},
	}}
	targets := strings.Fields("service-a service-b service-c primary standby replica nats witness receiver service-a→primary service-b→primary service-c→nats pooler")
	kinds := strings.Fields("kill freeze cut delay drip half-open one-way clock disk-full failover restart")
	for i := range faults {
		start := r.Int64N(3500) * second
		end := start + second + int64(r.ExpFloat64()*10*float64(second))
		h.Faults = append(h.Faults, history.Fault{
			Number: int64(i + 1), Name: kinds[r.IntN(len(kinds))], Target: targets[r.IntN(len(targets))], Start: start, End: end,
			RecoveredAt: end + int64(r.ExpFloat64()*float64(second)), Detail: "by 3 minutes and 20 seconds, both directions",
		})
	}
	slices.SortFunc(h.Faults, func(a, b history.Fault) int { return int(a.Start/second - b.Start/second) })
	broken := map[int64]int{}
	for _, f := range h.Faults {
		for s := f.Start / second; s < f.End/second; s++ {
			broken[s]++
		}
	}
	operations := []history.Operation{history.Register, history.Register, history.Lookup, history.Compare, history.FeedPage, history.Search, history.Revoke, history.UsageRead, history.Certify}
	for i := range calls {
		start := int64(i) * 3598 * second / int64(calls)
		c := history.Call{
			Number: int64(i + 1), RequestID: fmt.Sprint(i), Client: fmt.Sprintf("client-%03d", r.IntN(clients)), Operation: operations[r.IntN(len(operations))], Start: start, Outcome: history.Answered,
		}
		c.End = start + int64(math.Exp(r.NormFloat64()*.7)*8e6*float64(1+broken[start/second]))
		switch x := r.Float64() / float64(1+broken[start/second]); {
		case x < .01:
			c.Outcome, c.Status, c.Code, c.End = history.Unknown, 503, "unavailable", start+r.Int64N(8*second)
		case x < .05:
			c.Outcome, c.Status, c.Code = history.Refused, 409, "version_conflict"
		}
		if c.Outcome == history.Unknown && r.IntN(2) == 0 {
			h.End.Log = append(h.End.Log, history.LogEvent{RequestID: c.RequestID, Data: json.RawMessage(`{}`)})
		}
		h.Calls = append(h.Calls, c)
	}
	return h
}

// TestHour: the page of an hour stays small, and making it takes little memory beside the history.
func TestHour(t *testing.T) {
	h := hour(400, 300_000, 2000)
	var before, after runtime.MemStats
	var size counter
	runtime.ReadMemStats(&before)
	if err := Write(&size, h, Verdicts{}); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	const most, memory = 3_000_000, 128 << 20
	if size > most {
		t.Errorf("the page has %d bytes, must be at most %d", size, most)
	}
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > memory {
		t.Errorf("it took %d bytes of memory, must be at most %d", allocated, memory)
	}
	t.Logf("page: %d bytes, allocated: %d bytes", size, after.TotalAlloc-before.TotalAlloc)
}

type counter int

func (c *counter) Write(p []byte) (int, error) {
	*c += counter(len(p))
	return len(p), nil
}

// The page of an empty run, and of one with times that cannot be, is made too.
func TestOddRuns(t *testing.T) {
	t.Parallel()
	draw(t, &history.History{}, Verdicts{}).harmless()
	h := &history.History{
		Calls:  []history.Call{{Start: -5, End: math.MaxInt64, Outcome: "?"}, {Start: math.MinInt64, End: math.MinInt64}},
		Faults: []history.Fault{{Start: math.MaxInt64, End: -1}, {Start: 5, End: 1, RecoveredAt: math.MaxInt64}},
	}
	if text := draw(t, h, Verdicts{}).text; strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Error("a drawing has a place that is no number")
	}
}

// What was saved with a run makes the same page again.
func TestAgain(t *testing.T) {
	t.Parallel()
	directory := filepath.Join(t.TempDir(), "run")
	w, err := history.Create(directory, history.Header{Seed: 7, StartedAt: "2026-11-26T10:00:00Z"})
	if err != nil {
		t.Fatal(err)
	}
	w.Call(history.Call{RequestID: "r", Operation: history.Register, Client: "c", Outcome: history.Answered, Start: 1, End: second})
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	page := func() string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(directory, FileName))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if err := Again(directory); err != nil || !strings.Contains(page(), "No check has judged this run") {
		t.Errorf("without verdicts: %v", err)
	}
	h, err := history.Read(directory)
	if err != nil {
		t.Fatal(err)
	}
	_, v := small()
	if err := Save(h, v); err != nil {
		t.Fatal(err)
	}
	saved := page()
	if err := Again(directory); err != nil || page() != saved || !strings.Contains(saved, "it took effect twice") {
		t.Errorf("it is another page: %v", err)
	}
	if err := os.WriteFile(filepath.Join(directory, VerdictsFileName), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Again(directory); err == nil {
		t.Error("verdicts that cannot be read are taken for none")
	}
}

// TestSample keeps pages to look at where SAMPLE names a directory.
func TestSample(t *testing.T) {
	directory := os.Getenv("SAMPLE")
	if directory == "" {
		t.Skip("SAMPLE names no directory")
	}
	h, v := hour(24, 300_000, 400), Verdicts{Again: "make weather SEED=1 SECONDS=3600"}
	v.Checks = strings.Fields("log order acknowledged refusal resolved idempotency version document sequence quota key access read-after")
	v.Undecided = []Finding{{Check: "quota", Of: "org_01, 2026-11", Text: "porcupine did not decide within two minutes"}}
	v.Violations = []Finding{{Check: "read-after", Of: "source/document/3", Text: "the answer shows version 2, but the reader asked for what is after sequence 812", Calls: []int64{90_000, 90_100}}}
	h.End.Verdicts = []history.Verdict{{Name: "audit", Clean: true, Output: "3 shards, 120,000 events: clean"}}
	s, sv := small()
	for name, write := range map[string]func(f *os.File) error{
		"hour.html": func(f *os.File) error { return Write(f, h, v) }, "small.html": func(f *os.File) error { return Write(f, s, sv) },
		"good.html": func(f *os.File) error {
			g := hour(9, 20_000, 40)
			return Write(f, g, Verdicts{Checks: v.Checks, Again: v.Again})
		},
	} {
		f, err := os.Create(filepath.Join(directory, name))
		if err == nil {
			err = write(f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
