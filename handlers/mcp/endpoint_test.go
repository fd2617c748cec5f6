package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"integrityledger/domain/strictjson"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is an endpoint with a tool for every way in which a call can end.
type fixture struct {
	*endpoint
	faults  atomic.Int64
	waiting chan struct{} // signalled by the tool wait
}

func newFixture() *fixture {
	f := &fixture{waiting: make(chan struct{}, 1)}
	schema := json.RawMessage(`{"type":"object"}`)
	tool := func(
		name string, effect effect, call func(context.Context, json.RawMessage) (toolResult, error),
	) rawTool {
		return rawTool{Name: name, Title: name, Description: name, Input: schema, Output: schema, Effect: effect, Call: call}
	}
	f.endpoint = newProtocol(config{
		Name: "fixture", Version: "1",
		Tools: []rawTool{
			tool("echo", reads, func(_ context.Context, arguments json.RawMessage) (toolResult, error) {
				return toolResult{Object: arguments}, nil
			}),
			tool("refuse", repeats, func(context.Context, json.RawMessage) (toolResult, error) {
				return toolResult{Object: json.RawMessage(`{"error":{}}`), Failed: true}, nil
			}),
			tool("fail", reads, func(context.Context, json.RawMessage) (toolResult, error) {
				return toolResult{}, errors.New("a secret of the service")
			}),
			tool("panic", destroys, func(context.Context, json.RawMessage) (toolResult, error) {
				panic("a secret of the service")
			}),
			tool("wait", reads, func(ctx context.Context, _ json.RawMessage) (toolResult, error) {
				f.waiting <- struct{}{}
				<-ctx.Done()
				return toolResult{}, ctx.Err()
			}),
		},
		Offers: func(context.Context) (func(string) bool, error) {
			return func(name string) bool { return name != "wait" }, nil
		},
		Fault: func(_ context.Context, err error) *rpcError {
			f.faults.Add(1)
			return internalError("The service failed.", map[string]string{"requestId": "r"})
		},
	})
	return f
}

// answer handles a body like the HTTP handler.
func (f *fixture) answer(ctx context.Context, body, version string) string {
	r, wrong := parse(new(strictjson.Meter), []byte(body), version)
	if wrong != nil {
		return string(wrong.JSON(nil))
	}
	return string(f.endpoint.answer(ctx, r))
}

func call(id, name, arguments string) string {
	return fmt.Sprintf(
		`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, name, arguments,
	)
}

func TestAnswers(t *testing.T) {
	f := newFixture()
	const ok = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	for _, step := range []struct{ body, version, want string }{
		{ok, "", `{"jsonrpc":"2.0","id":1,"result":{}}`},
		{`{"jsonrpc":"2.0","id":"ñ\u0000","method":"ping"}`, "", `{"jsonrpc":"2.0","id":"ñ\u0000","result":{}}`},
		{
			`{"jsonrpc":"2.0","id":9007199254740991,"method":"ping"}`, "2025-11-25",
			`{"jsonrpc":"2.0","id":9007199254740991,"result":{}}`,
		},
		{
			call("7", "echo", `{"a":"<&>"}`), "2025-06-18",
			`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"{\"a\":\"\u003c\u0026\u003e\"}"}],"structuredContent":{"a":"\u003c\u0026\u003e"}}}`,
		},
		{
			`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo"}}`, "",
			`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"{}"}],"structuredContent":{}}}`,
		},
		{
			call("7", "refuse", `{}`), "",
			`{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"{\"error\":{}}"}],"isError":true}}`,
		},
		{
			call("7", "fail", `{}`), "",
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"The service failed.","data":{"requestId":"r"}}}`,
		},
		{
			call("7", "panic", `{}`), "",
			`{"jsonrpc":"2.0","id":7,"error":{"code":-32603,"message":"The service failed.","data":{"requestId":"r"}}}`,
		},

		// Notifications and responses get no answer.
		{`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "", ""},
		{`{"jsonrpc":"2.0","method":"notifications/of.ours","params":[]}`, "", ""},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, "", ""},
		{`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x"}}`, "", ""},

		{`{`, "", "-32700 null"},
		{``, "", "-32700 null"},
		{ok + ok, "", "-32700 null"},
		{"\xef\xbb\xbf" + ok, "", "-32700 null"},
		{strings.Repeat("[", 40) + strings.Repeat("]", 40), "", "-32700 null"},
		{`"ping"`, "", "-32600 null"},
		{`{}`, "", "-32600 null"},
		{`{"jsonrpc":"1.0","id":1,"method":"ping"}`, "", "-32600 null"},
		{`{"jsonrpc":"2.0","id":null,"method":"ping"}`, "", "-32600 null"},
		{`{"jsonrpc":"2.0","id":1.5,"method":"ping"}`, "", "-32600 null"},
		{`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, "", "-32600 null"},
		{`{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}`, "", "-32600 null"},
		{`{"jsonrpc":"2.0","id":1}`, "", "-32600 null"},
		{`{"jsonrpc":"2.0","id":1,"result":1,"error":{}}`, "", "-32600 null"},
		{`{"jsonrpc":"2.0","id":1,"method":5}`, "", "-32600 null"},
		{`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}`, "", "-32600 null"},
		{`{"jsonrpc":"2.0","id":1,"method":"nothing"}`, "", "-32601 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, "", "-32601 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"prompts/list"}`, "", "-32601 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"info"}}`, "", "-32601 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"notifications/initialized"}`, "", "-32601 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}`, "", "-32602 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"ping","params":null}`, "", "-32602 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, "", "-32602 1"},
		{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":5}}`, "",
			"-32602 1",
		},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`, "", "-32602 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}`, "", "-32602 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":[]}}`, "", "-32602 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}`, "", "-32602 1"},
		{`{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":5}}`, "", "-32602 1"},
		{call("1", "nobody", `{}`), "", "-32602 1"},

		// Batches exist in one version only.
		{"[" + ok + "]", "2025-06-18", "-32600 null"},
		{"[]", "", "-32600 null"},
		{"[" + strings.Repeat(ok+",", 20) + ok + "]", "", "-32600 null"},
		{`[{"jsonrpc":"2.0","method":"notifications/initialized"}]`, "", ""},
		{"[" + ok + `,5,{"jsonrpc":"2.0","method":"notifications/initialized"},{"jsonrpc":"2.0","id":"i","method":"initialize","params":{"protocolVersion":"2025-03-26"}},` + call("3", "panic", "{}") + "," + call("4", "nobody", "{}") + "]", "2025-03-26",
			"result 1, -32600 null, -32600 \"i\", -32603 3, -32602 4"},
	} {
		got := f.answer(context.Background(), step.body, step.version)
		if !strings.HasPrefix(step.want, "{") {
			got = codes(t, got)
		}
		if got != step.want {
			t.Errorf("%s in %q:\n%s, want\n%s", step.body, step.version, got, step.want)
		}
	}
	if f.faults.Load() != 3 {
		t.Errorf("%d faults", f.faults.Load())
	}
}

type outcome struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  json.RawMessage `json:"result"`
	Error   *rpcError       `json:"error"`
}

// codes names the error codes and ids of an answer.
func codes(t *testing.T, text string) string {
	t.Helper()
	if text == "" {
		return ""
	}
	var list []outcome
	if text[0] != '[' {
		text = "[" + text + "]"
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	var names []string
	for _, o := range list {
		name := "result"
		if o.Error != nil {
			name = fmt.Sprint(o.Error.Code)
			if o.Error.Message == "" || strings.Contains(o.Error.Message, "secret") {
				t.Errorf("message %q", o.Error.Message)
			}
		}
		names = append(names, name+" "+string(o.ID))
	}
	return strings.Join(names, ", ")
}

func TestLists(t *testing.T) {
	f := newFixture()
	got := f.answer(context.Background(), `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "2025-11-25")
	var list struct {
		Result struct {
			CacheScope string
			TTLMs      int
			Tools      []struct {
				Name        string
				Annotations map[string]bool
			}
		}
	}
	if err := json.Unmarshal([]byte(got), &list); err != nil {
		t.Fatal(err)
	}
	if list.Result.CacheScope != "private" || list.Result.TTLMs != 0 {
		t.Errorf("others may keep what one caller was shown: %s", got)
	}
	annotations := map[string][3]bool{ // readOnly, idempotent, destructive
		"echo": {true, true, false}, "fail": {true, true, false}, "refuse": {false, true, false},
		"panic": {false, true, true},
	}
	if len(list.Result.Tools) != len(annotations) {
		t.Errorf("tools %s", got)
	}
	for _, tool := range list.Result.Tools {
		a := tool.Annotations
		if want, ok := annotations[tool.Name]; !ok ||
			want != [3]bool{a["readOnlyHint"], a["idempotentHint"], a["destructiveHint"]} || a["openWorldHint"] {
			t.Errorf("%s: %v", tool.Name, a)
		}
	}
}

// When a caller goes away, its calls are cancelled.
func TestCallerGoesAway(t *testing.T) {
	f := newFixture()
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		<-f.waiting
		leave()
	}()
	if got := codes(t, f.answer(ctx, call("1", "wait", "{}"), "")); got != "-32603 1" {
		t.Errorf("answer %s", got)
	}
}

func TestVersionHeader(t *testing.T) {
	for _, good := range [][]string{nil, {"2025-11-25"}, {"2025-06-18"}, {"2025-03-26"}} {
		if wrong := checkVersion(good); wrong != nil {
			t.Errorf("%v: %v", good, wrong)
		}
	}
	for _, bad := range [][]string{{""}, {"2024-11-05"}, {"2026-07-28"}, {"2025-11-25", "2025-11-25"}} {
		// An error code of later protocols would make their clients continue with them.
		if wrong := checkVersion(bad); wrong == nil || wrong.Code != -32600 || wrong.Data != nil {
			t.Errorf("%v: %+v", bad, wrong)
		}
	}
	_, wrong := parse(
		new(strictjson.Meter),
		[]byte(
			`{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`,
		),
		"",
	)
	if wrong == nil || wrong.Code != -32600 {
		t.Errorf("a probe of a later protocol: %+v", wrong)
	}
}

// A body that was not read to its end gets no other error.
func TestStoppedReading(t *testing.T) {
	body := []byte("[" + strings.Repeat("0,", 10_000) + "0]")
	_, wrong := parse(&strictjson.Meter{Stop: func() bool { return true }}, body, "")
	if wrong == nil || !strings.Contains(string(wrong.JSON(nil)), `"code":-32603,"message":"The request ended`) {
		t.Errorf("%v", wrong)
	}
}

// Whatever arrives, the answer is JSON-RPC under the ids that were sent, and reveals no internal error.
func FuzzAnswer(f *testing.F) {
	fixture := newFixture()
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"ping"}`,
		`{"jsonrpc":"2.0","id":"a","method":"tools/list","params":{"cursor":"","_meta":{"progressToken":1}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"b"}}}`,
		"[" + call("1", "echo", `{"a":[1,null,"\ud83d\ude00"]}`) + "," + call("2", "panic", "{}") + "," +
			call("3", "refuse", "{}") + "]",
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`,
		`{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":""}}`,
		call("1", "fail", `{"":{"":[]}}`), `[1]`, `{`,
	} {
		f.Add([]byte(seed), uint8(0))
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, version uint8) {
		if bytes.Contains(body, []byte("wait")) {
			return // this tool needs a caller that goes away
		}
		got := fixture.answer(
			context.Background(), string(body), []string{"", "2025-11-25", "2025-06-18", "2025-03-26"}[version%4],
		)
		if got == "" {
			return
		}
		if strings.Contains(got, "a secret of the service") && !bytes.Contains(body, []byte("secret")) {
			t.Errorf("%q answers %s", body, got)
		}
		list := []outcome{}
		if got[0] == '[' {
			if err := json.Unmarshal([]byte(got), &list); err != nil {
				t.Fatalf("%q answers %s: %v", body, got, err)
			}
		} else {
			var one outcome
			if err := json.Unmarshal([]byte(got), &one); err != nil {
				t.Fatalf("%q answers %s: %v", body, got, err)
			}
			list = append(list, one)
		}
		for _, o := range list {
			if o.JSONRPC != "2.0" || (o.Result == nil) == (o.Error == nil) {
				t.Errorf("%q answers %s", body, got)
			}
			if o.Error != nil && !slices.Contains([]int64{-32700, -32600, -32601, -32602, -32603}, o.Error.Code) {
				t.Errorf("%q answers the code %d", body, o.Error.Code)
			}
			if id := string(o.ID); id != "null" && id[0] != '"' && !bytes.Contains(body, o.ID) {
				t.Errorf("%q is answered under the id %s", body, o.ID)
			}
		}
	})
}
