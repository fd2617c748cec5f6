package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"integrityledger/cmd/integrity/config"
	"integrityledger/cmd/integrity/demo"
	"integrityledger/cmd/integrity/keyfiles"
	"integrityledger/eventstore/transparency/stamptest"
	"integrityledger/handlers/web"
	"integrityledger/handlers/wire"
)

// guideSample is a sample that a developer page tells its reader to copy.
type guideSample struct {
	name, text string
	file       string // name to save it as
	terminal   bool   // keeps running, in a separate terminal
}

var sampleOnPage = regexp.MustCompile(
	`(?s)<div class="sample"(?: data-sample="([^"]+)")?(?: data-file="([^"]+)")?( data-terminal)?><pre><code>(.*?)</code></pre></div>`,
)

// guideSamples returns a page's samples, from top to bottom.
func guideSamples(t *testing.T, address string) (list []guideSample, page string) {
	t.Helper()
	response, err := plainHTTP().Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", address, response.StatusCode, err)
	}
	page = string(body)
	for _, found := range sampleOnPage.FindAllStringSubmatch(page, -1) {
		list = append(
			list, guideSample{name: found[1], file: found[2], terminal: found[3] != "", text: html.UnescapeString(found[4])},
		)
	}
	if len(list) != strings.Count(page, `class="sample"`) {
		t.Errorf("%s: a sample is not understood", address)
	}
	return list, page
}

// tool skips the test if a program is missing; with CI=true every program must be there.
func tool(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s %v: %v\n%s", name, arguments, err, out)
		}
		t.Skipf(
			"%s %v does not work here, so what needs it on the pages for developers is NOT tried: %v", name, arguments, err,
		)
	}
}

// pythonWith puts a python3 that has the module into a directory of programs: the PATH's python3 or, failing that, the
// system's.
func pythonWith(t *testing.T, directory, module string) {
	t.Helper()
	for _, name := range []string{"python3", "/usr/bin/python3"} {
		path, err := exec.LookPath(name)
		if err != nil || exec.Command(path, "-c", "import "+module).Run() != nil {
			continue
		}
		link := filepath.Join(directory, "python3")
		_ = os.Remove(link)
		if err := os.Symlink(path, link); err != nil {
			t.Fatal(err)
		}
		return
	}
	tool(t, "/usr/bin/python3", "-c", "import "+module)
}

// terminal is a shell in an empty directory, into which a reader pastes a page's samples.
type terminal struct {
	t      *testing.T
	in     terminalOf
	files  string
	script *os.File
	out    *bufio.Reader
	cmd    *exec.Cmd
	others []*exec.Cmd
}

// terminalOf is shared by all readers of a service.
type terminalOf struct {
	access   demo.Access
	programs string
	port     string // used instead of guidePort
}

// environment returns the environment of a newly opened terminal: without the program's variables, and with an empty
// home directory.
func (in terminalOf) environment(t *testing.T, files string) []string {
	t.Helper()
	environment := append(cleanEnviron(),
		"PATH="+in.programs+":"+filepath.Dir(os.Getenv(binaryVariable))+":"+os.Getenv("PATH"), "HOME="+files,
		"npm_config_cache="+filepath.Join(files, ".npm"), "npm_config_audit=false", "npm_config_fund=false",
		"npm_config_update_notifier=false",
		"PIP_DISABLE_PIP_VERSION_CHECK=1", "GOFLAGS=-modcacherw")
	for _, name := range []string{"GOMODCACHE", "GOCACHE", "GOPROXY", "GOSUMDB"} {
		value, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		environment = append(environment, name+"="+strings.TrimSpace(string(value)))
	}
	return environment
}

func (in terminalOf) open(t *testing.T) *terminal {
	t.Helper()
	_, in.port, _ = net.SplitHostPort(freeAddress(t))
	w := &terminal{
		t: t, in: in, files: filepath.Dir(dataDir(t)), cmd: exec.Command("bash", "-euo", "pipefail", "/dev/fd/3"),
	}
	read, script, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, output, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.script, w.out = script, bufio.NewReader(out)
	w.cmd.Dir, w.cmd.Env, w.cmd.ExtraFiles, w.cmd.Stdout, w.cmd.Stderr = w.files, in.environment(t, w.files),
		[]*os.File{read}, output, output
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = errors.Join(read.Close(), output.Close())
	t.Cleanup(w.close)
	return w
}

func (w *terminal) close() {
	_ = w.script.Close()
	_ = w.cmd.Wait() // a failure was reported where it happened
	for _, other := range w.others {
		_ = syscall.Kill(-other.Process.Pid, syscall.SIGTERM)
		_ = other.Wait()
	}
}

// paste returns the shell's output for a text. If any command fails, the test ends.
func (w *terminal) paste(text string) string {
	w.t.Helper()
	const end = "--- end of what was pasted"
	if _, err := fmt.Fprintf(w.script, "%s\necho; echo '%s'\n", text, end); err != nil {
		w.t.Fatalf("%v, before\n%s", err, text)
	}
	var said strings.Builder
	for {
		line, err := w.out.ReadString('\n')
		if strings.TrimSpace(line) == end {
			return said.String()
		}
		if said.WriteString(line); err != nil {
			w.t.Fatalf("%s\nfailed:\n%s", text, said.String())
		}
	}
}

// run starts a long-running sample in another terminal, and returns when it has printed something. It registers a
// version meanwhile, because a program that follows the ledger is silent while nothing happens.
func (w *terminal) run(text string) {
	w.t.Helper()
	lines, errs := w.begin(text)
	w.register()
	for said := ""; strings.TrimSpace(said) == ""; {
		var err error
		if said, err = lines.ReadString('\n'); err != nil {
			w.t.Fatalf("%s ended: %s%s", text, said, errs)
		}
	}
	go io.Copy(io.Discard, lines) //nolint:errcheck // read so that the writer does not block
}

// register declares the first version of a new document, for the company in the reader's shell.
func (w *terminal) register() {
	w.t.Helper()
	declaration := wire.Declaration{
		CompanyReference: cmp.Or(w.variable("INTEGRITY_COMPANY"), w.in.access.CompanyReference), Source: "samples",
		DocumentReference: rand.Text(), Version: 1,
		SHA256: strings.Repeat("0", 64), MimeType: "text/plain", GeneratedAt: "2026-11-20T10:00:00Z",
	}
	if status, err := call(
		plainHTTP(), http.MethodPost, w.in.access.BaseURL+"/api/v1/integrity/records", w.in.access.Keys.Worker, declaration,
		nil,
	); err != nil || status != http.StatusCreated {
		w.t.Fatalf("register: %d %v", status, err)
	}
}

// variable returns the value of a variable in the reader's shell.
func (w *terminal) variable(name string) string {
	w.t.Helper()
	return strings.TrimSpace(w.paste(`echo "${` + name + `-}"`))
}

// begin starts a program in another terminal.
func (w *terminal) begin(text string) (lines *bufio.Reader, errs *bytes.Buffer) {
	w.t.Helper()
	other := exec.Command("bash", "-euo", "pipefail", "-c", text)
	other.Dir, other.SysProcAttr = w.files, &syscall.SysProcAttr{Setpgid: true}
	// its usual port may be in use here
	other.Env = append(w.in.environment(w.t, w.files), config.Prefix+"LISTEN="+freeAddress(w.t))
	errs = &bytes.Buffer{}
	other.Stderr = errs
	out, err := other.StdoutPipe()
	if err == nil {
		err = other.Start()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.others = append(w.others, other)
	return bufio.NewReader(out), errs
}

// of returns a sample with the values that a reader fills in.
func (in terminalOf) of(t *testing.T, s guideSample) string {
	t.Helper()
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(
		"YOUR_ADMIN_KEY", in.access.Keys.Admin, "YOUR_KEY", in.access.Keys.Worker, "YOUR_COMPANY",
		in.access.CompanyReference, "YOUR_SERVICE", in.access.BaseURL, "YOUR_CHECKOUT", checkout, guidePort, in.port,
	).Replace(s.text)
	if left := regexp.MustCompile(`YOUR_[A-Z_]+|\{base\}`).FindString(text); left != "" {
		t.Errorf("%s: nothing says what %s is", s.name, left)
	}
	return text
}

// says lists texts that samples must print, in addition to every command succeeding.
var says = map[string][]string{
	"start/1-register.sh":       {`"replayed":false`},
	"start/languages/python.sh": {`"replayed":false`},
	"start/languages/node.sh":   {`"replayed":false`},
	"start/languages/php.sh":    {`"replayed":false`},
	"start/languages/csharp.sh": {`"replayed":false`},
	"start/languages/go.sh":     {`"replayed":false`},
	"start/2-compare.sh":        {`"result":"MATCH_CURRENT","verified":true`},
	"start/3-evidence.sh":       {"everything that was supplied and checked is valid"},
	"start/4-changes.sh":        {`"events":[{`, `"hasMore":false`},
	"integration/setup.sh":      {`"enabled":true`},
	"integration/reserve.sh":    {`"status":"pending"`},
	"integration/key.sh":        {`"name":"Billing"`, `"companies":[{`},
	"integration/demo.sh":       {"20 documents: 20 delivered", "20 registered with evidence, 0 stopped"},
	"integration/lookup.sh":     {`"status":"current"`},
	"integration/certification.sh": {
		`"outcome":"accepted"`, `"verified":true`, "everything that was supplied and checked is valid",
	},
	"outbox/install.sh":            {"the table integrity_outbox is ready (SQLite)"},
	"outbox/run.sh":                {"2 rows are pending", "sha256"},
	"outbox/result.sh":             {" registered http", " 1\n"},
	"outbox/reserve.sh":            {"/integrity/"},
	"verification/commands.sh":     {"everything that was supplied and checked is valid"},
	"verification/monitor-once.sh": {"consistent with the saved evidence (1)"},
	"verification/tokens.sh":       {"existed before "},
	"verification/openssl.sh":      {"Verification: OK"},
	"webhooks/feed.sh":             {" events"},
	"webhooks/feed-node.sh":        {" events"},
	"webhooks/create.sh":           {`"secret":"whsec_`, `"enabled":true`},
	"webhooks/deliveries.sh": {
		`{"type":"integrity.superseded","status":"delivered","reason":null}`,
		`{"type":"integrity.revoked","status":"delivered"`, `{"type":"webhook.test","status":"delivered"`,
	},
	"webhooks/revoke.sh":             {`"status":"revoked"`},
	"webhooks/type.sh":               {`"type":"integrity.superseded"`, `"recordStatus":"superseded"`},
	"webhooks/vectors.sh":            {"as it must be: another body"},
	"webhooks/rotate.sh":             {`"secret":"whsec_`},
	"webhooks/replay.sh":             {`"count":`},
	"webhooks/deliveries-command.sh": {"webhook.test  delivered"},
	"webhooks/redeliver-command.sh":  {"  pending  "},
	"webhooks/replay-command.sh":     {"--confirm"},
	"webhooks/redeliver.sh":          {`"status":"pending"`},
	"mcp/list.sh":                    {`"integrity_verify"`},
	"clients/python.sh":              {"/integrity/"},
	"clients/node.sh":                {"/integrity/", "MATCH_CURRENT true"},
	"clients/php.sh":                 {"/integrity/"},
	"clients/typescript.sh":          {"/integrity/", "MATCH_CURRENT true"},
	"clients/cli.sh":                 {"/integrity/"},
	"clients/program.sh":             {": OK"},
}

// before waits for the things that a page tells its reader to wait for.
var before = map[string]func(w *terminal){
	"start/2-compare.sh":           (*terminal).replayed,
	"verification/monitor-once.sh": func(w *terminal) { w.until("", `"inclusion":{`) },
	"verification/tokens.sh":       func(w *terminal) { w.until("?timestamps=true", `"timestamps":[{`) },
	"webhooks/deliveries.sh":       (*terminal).revocation,
	"webhooks/rotate.sh":           (*terminal).judgeReceivers,
	"webhooks/rotated.sh":          (*terminal).accepts, // signed with the previous secret
}

// replayed sends the declaration of the quick start again: it is a replay, as the page says.
func (w *terminal) replayed() {
	w.t.Helper()
	said := w.paste(`curl -sS --fail-with-body "$INTEGRITY_BASE_URL/api/v1/integrity/records" \
		-H "Authorization: Bearer $INTEGRITY_API_KEY" --json @declaration.json`)
	if !strings.Contains(said, `"replayed":true`) || !strings.Contains(said, `"applied":0`) {
		w.t.Error(said)
	}
}

// revocation reads the feed again, which has it as the page says, and waits for all deliveries before it.
func (w *terminal) revocation() {
	w.t.Helper()
	if said := w.paste("python3 feed.py"); !strings.Contains(said, " integrity.revoked ") {
		w.t.Errorf("the feed has no revocation:\n%s", said)
	}
	w.accepts()
}

// until waits until the quick start's evidence has a part.
func (w *terminal) until(query, part string) {
	w.t.Helper()
	id := w.variable("PUBLIC_ID")
	eventually(w.t, "the evidence has "+part, func() error {
		r, err := http.NewRequest(http.MethodGet, w.in.access.BaseURL+"/api/v1/integrity/records/"+id+"/evidence"+query, nil)
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+w.in.access.Keys.Worker)
		response, err := plainHTTP().Do(r)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if text, err := io.ReadAll(response.Body); err != nil || !bytes.Contains(text, []byte(part)) {
			return fmt.Errorf("it is %s", text)
		}
		return nil
	})
}

// judged are samples that are tested by other means than a shell.
var judged = map[string]func(t *testing.T, in terminalOf, text string){
	"errors/error.json":       judgeError,
	"mcp/claude-code.sh":      judgeConnector,
	"mcp/claude-desktop.json": judgeConnector,
	"mcp/cursor.json":         judgeConnector,
	"mcp/vscode.json":         judgeConnector,
	"webhooks/signature.py":   nil, // trySignatures
	"webhooks/signature.php":  nil,
	// TestTriggers of package outbox
	"outbox/trigger-postgres.sql": nil,
	"outbox/trigger-mariadb.sql":  nil,
	"outbox/trigger-sqlite.sql":   nil,
	// TestInvoiceSamples
	"outbox/invoice/invoice.py":   nil,
	"outbox/invoice/invoice.mjs":  nil,
	"outbox/invoice/invoice.php":  nil,
	"outbox/invoice/Invoice.cs":   nil,
	"outbox/invoice/Invoice.java": nil,
}

// judgeError makes the service return the error that the page shows.
func judgeError(t *testing.T, in terminalOf, text string) {
	t.Helper()
	w := in.open(t)
	got := w.paste(`curl -sS -H 'Authorization: Bearer ` + in.access.Keys.Worker + `' --json '{"companyReference": "` +
		in.access.CompanyReference + `", "source": "erp",
		"documentReference": "d", "version": 1, "sha256": "x", "sizeBytes": 1, "mimeType": "text/plain", "generatedAt": "2026-11-21T09:30:00Z"}' ` + in.access.BaseURL + `/api/v1/integrity/records`)
	canonical := func(text string) string {
		var v map[string]any
		if err := json.Unmarshal([]byte(text), &v); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		v["meta"] = nil
		again, _ := json.Marshal(v)
		return string(again)
	}
	if shown := canonical(text); canonical(got) != shown {
		t.Errorf("the error is\n%s, shown is\n%s", canonical(got), shown)
	}
}

// judgeConnector lists the tools like a client with these settings: the sample contains the address and the header.
func judgeConnector(t *testing.T, in terminalOf, text string) {
	t.Helper()
	if strings.HasPrefix(text, "{") && !json.Valid([]byte(text)) {
		t.Errorf("it is no JSON: %s", text)
	}
	text = strings.ReplaceAll(text, "$INTEGRITY_BASE_URL", in.access.BaseURL)
	text = regexp.MustCompile(`\$\{AUTHORIZATION\}`).ReplaceAllString(text, "Bearer YOUR_KEY")
	text = regexp.MustCompile(
		`\$\{(env:INTEGRITY_API_KEY|input:integrity-key)\}|\$INTEGRITY_API_KEY|YOUR_KEY`,
	).ReplaceAllString(text, in.access.Keys.Worker)
	address := regexp.MustCompile(`https?://[^\s"]+`).FindString(text)
	header := regexp.MustCompile(`Authorization"?: ?"?(Bearer \w+)`).FindStringSubmatch(text)
	if address == "" || header == nil {
		t.Fatalf("no address or no key in %s", text)
	}
	w := in.open(t)
	got := w.paste(
		`curl -sS --fail-with-body -H 'Authorization: ` + header[1] +
			`' -H 'Accept: application/json, text/event-stream' --json '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}' '` + address + `'`,
	)
	if !strings.Contains(got, `"integrity_verify"`) {
		t.Error(got)
	}
}

// follow pastes a page from top to bottom.
func (w *terminal) follow(samples []guideSample) {
	w.t.Helper()
	commands := ""
	for _, s := range samples {
		if s.file == "" {
			commands += s.text + "\n"
		}
	}
	last := ""
	for _, s := range samples {
		judge, otherwise := judged[s.name]
		if wait := before[s.name]; wait != nil {
			wait(w)
		}
		switch text := w.in.of(w.t, s); {
		case s.name == "":
			w.t.Errorf("a sample has no name: %s", text)
		case otherwise && judge == nil:
		case otherwise:
			judge(w.t, w.in, text)
		case s.file != "":
			write(w.t, filepath.Join(w.files, s.file), text+"\n")
			if !strings.Contains(commands, strings.TrimSuffix(s.file, filepath.Ext(s.file))) {
				w.t.Errorf("%s is saved, and nothing on the page runs it", s.file)
			}
		case s.terminal && strings.HasPrefix(s.name, "webhooks/"):
			w.receiver(text)
		case s.terminal:
			w.run(text)
		case strings.HasSuffix(s.name, "-output.txt"):
			if !strings.Contains(last, text) {
				w.t.Errorf("%s is not what was printed:\n%s", s.name, last)
			}
		case filepath.Ext(s.name) == ".sh":
			// The port of the demo's pages may be in use here.
			paste := w.paste
			if s.name == "integration/demo.sh" {
				text, paste = strings.Replace(text, " origin-demo ", " origin-demo --serve "+freeAddress(w.t)+" ", 1), w.interrupted
			}
			said := paste(text)
			last = said
			for _, part := range says[s.name] {
				if !strings.Contains(said, part) {
					w.t.Errorf("%s does not say %s:\n%s", s.name, part, said)
				}
			}
		case filepath.Ext(s.name) != ".txt" && filepath.Ext(s.name) != ".http": // shown, but not meant to be copied
			w.t.Errorf("nothing tries %s", s.name)
		}
	}
}

// TestSamplesOfTheDeveloperPages pastes the samples of every developer page, from top to bottom, like a reader who
// starts in an empty directory. A page that needs more says that it continues the quick start. Pages that readers
// follow one after the other are pasted into one terminal. With -short it skips pages whose tools must be downloaded.
// The pages of both languages have the same samples in the same order.
func TestSamplesOfTheDeveloperPages(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"curl", "jq", "openssl", "npm", "php", "mcs"} {
		tool(t, name, map[bool]string{true: "version", false: "--version"}[name == "openssl"])
	}
	in, s := openTerminals(t)
	defer s.stop()
	fetches := func(name string) bool { return name == "downloads" || name == "webhooks" }
	t.Run("all", func(t *testing.T) {
		t.Run("README", func(t *testing.T) {
			t.Parallel()
			tryReadme(in.open(t), s.dir)
		})
		t.Run("webhook signatures", func(t *testing.T) {
			t.Parallel()
			trySignatures(in.open(t))
		})
		for _, name := range web.DeveloperPages() {
			if name == "reference" || strings.HasPrefix(name, "operating") || fetches(name) && testing.Short() {
				continue
			}
			t.Run("en/"+name, func(t *testing.T) {
				t.Parallel()
				w := in.open(t)
				if name == "webhooks" {
					w.alone("alone")
				}
				w.pages("/en", name)
				names := func(prefix string) (list []string) {
					samples, _ := guideSamples(t, w.page(prefix, name))
					for _, s := range samples {
						list = append(list, s.name)
					}
					return list
				}
				if spanish, english := names(""), names("/en"); !slices.Equal(spanish, english) {
					t.Errorf("in Spanish %q, in English %q", spanish, english)
				}
			})
		}
		if !testing.Short() {
			t.Run("one terminal", func(t *testing.T) {
				t.Parallel()
				in.open(t).pages("", "integration", "webhooks", "verification")
			})
		}
	})
}

// pages pastes pages of one language, after the quick start if the first one continues it.
func (w *terminal) pages(prefix string, names ...string) {
	w.t.Helper()
	for i, name := range names {
		samples, page := guideSamples(w.t, w.page(prefix, name))
		if i == 0 && strings.Contains(page, `class="goes-on"`) {
			start, _ := guideSamples(w.t, w.page(prefix, ""))
			for _, s := range start {
				if needed := s.name != "start/venv.sh" ||
					strings.Contains(page, "pip install"); needed && s.name != "start/debian.sh" &&
					!strings.HasPrefix(s.name, "start/demo") && !strings.HasPrefix(s.name, "start/languages/") {
					w.paste(w.in.of(w.t, s))
				}
			}
		}
		w.follow(samples)
	}
}

// page returns the address of a developer page in a language.
func (w *terminal) page(prefix, name string) string {
	return strings.TrimSuffix(w.in.access.BaseURL+prefix+web.DeveloperRoot+"/"+name, "/")
}

// openTerminals runs a service whose log an authority stamps, for readers of its pages.
func openTerminals(t *testing.T) (terminalOf, *running) {
	t.Helper()
	authority := stamptest.New(t, "authority")
	dir := dataDir(t)
	s := surroundings{
		env: []string{"INTEGRITY_TIMESTAMP_AUTHORITIES=authority " + authority.URL, "INTEGRITY_TIMESTAMP_INTERVAL=1s"},
	}.start(t, dir, "--demo")
	path := filepath.Join(dir, keyfiles.TrustedKeysFile)
	trusted, err := keyfiles.ReadTrusted(path)
	if err == nil {
		trusted, err = trusted.PutAuthority(authority.Pinned())
	}
	if err = errors.Join(err, keyfiles.WriteTrusted(path, trusted)); err != nil {
		t.Fatal(err)
	}
	s.reload()
	in := terminalOf{access: s.demo(), programs: t.TempDir()}
	pythonWith(t, in.programs, "cryptography, httpx, ensurepip")
	// Packages are found but not installed: other tests use this machine.
	if err := os.WriteFile(
		filepath.Join(in.programs, "sudo"),
		[]byte("#!/bin/sh\n[ \"$1\" = apt-get ] || exit 1\nshift\nexec apt-get --simulate \"$@\"\n"), 0o700,
	); err != nil {
		t.Fatal(err)
	}
	return in, s
}

// trySignatures runs the samples that check a webhook's signature on every kind of signature.
func trySignatures(w *terminal) {
	t := w.t
	t.Helper()
	samples, _ := guideSamples(t, w.in.access.BaseURL+"/en/developers/webhooks")
	for _, sample := range samples {
		if sample.file != "" {
			write(t, filepath.Join(w.files, sample.file), sample.text)
		}
	}
	const body, secret, now = `{"id":"evt_1"}`, "whsec_one", "1795163402"
	sign := func(at, body, secret string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(at + "." + body))
		return ",v1=" + hex.EncodeToString(mac.Sum(nil))
	}
	right := sign(now, body, secret)
	headers, want := "", ""
	for _, c := range []struct {
		header, want string
	}{
		{"t=" + now + right, "1"},
		{"t=" + now + sign(now, body, "whsec_two") + right, "1"},
		{"t=1795163102" + sign("1795163102", body, secret), "1"},
		{"t=1795163101" + sign("1795163101", body, secret), "0"},
		{"t=1795163703" + sign("1795163703", body, secret), "0"},
		{"t=" + now + sign(now, body+" ", secret), "0"},
		{"t=" + now + sign(now, body, "whsec_two"), "0"},
		{"t=1795163400" + right, "0"},
		{"t=" + now + ",t=" + now + right, "0"},
		{"t=" + now, "0"},
		{"v1=0" + right, "0"},
		{"", "0"},
	} {
		headers += c.header + "\n"
		want += c.want
	}
	write(t, filepath.Join(w.files, "headers"), headers)
	write(t, filepath.Join(w.files, "try.py"), `from signature import signed
print("".join("01"[signed(h, b'`+body+`', "`+secret+`", `+now+`)] for h in open("headers").read().split("\n")[:-1]))`)
	write(t, filepath.Join(w.files, "try.mjs"), `import { signed } from "./signature.mjs";
import { readFileSync } from "node:fs";
console.log(readFileSync("headers", "utf8").split("\n").slice(0, -1).map((h) => (signed(h, Buffer.from('`+body+
		`'), "`+secret+`", `+now+`) ? 1 : 0)).join(""));`)
	write(t, filepath.Join(w.files, "try.php"), `<?php
require "signature.php";
foreach (array_slice(explode("\n", file_get_contents("headers")), 0, -1) as $header) {
    echo (int) signed($header, '`+body+`', "`+secret+`", `+now+`);
}`)
	if got := strings.TrimSpace(w.paste("php try.php")); got != want {
		t.Errorf("in PHP %s, want %s", got, want)
	}
	if got := strings.TrimSpace(w.paste("python3 try.py")); got != want {
		t.Errorf("in Python %s, want %s", got, want)
	}
	tool(t, "node", "--version")
	if got := strings.TrimSpace(w.paste("node try.mjs")); got != want {
		t.Errorf("in JavaScript %s, want %s", got, want)
	}
}
