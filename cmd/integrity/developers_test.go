package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"integrityledger/cmd/integrity/config"
)

var sampleOnPage = regexp.MustCompile(`(?s)<div class="sample" data-sample="([^"]+)"><pre><code>(.*?)</code></pre></div>`)

// samples are what a page for developers tells its reader to copy, by name, and the names in their order.
func samples(t *testing.T, address string) (texts map[string]string, order []string) {
	t.Helper()
	response, err := plainHTTP().Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %d, %v", address, response.StatusCode, err)
	}
	texts = map[string]string{}
	for _, found := range sampleOnPage.FindAllStringSubmatch(string(page), -1) {
		texts[found[1]] = html.UnescapeString(found[2])
		order = append(order, found[1])
	}
	return texts, order
}

// tool skips what needs a program that is not there; where CI=true everything must be.
func tool(t *testing.T, name string, arguments ...string) {
	t.Helper()
	if out, err := exec.Command(name, arguments...).CombinedOutput(); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s %v: %v\n%s", name, arguments, err, out)
		}
		t.Skipf("%s %v does not work here, so what needs it on the pages for developers is NOT tried: %v", name, arguments, err)
	}
}

// pythonWith puts a python3 that has the module into a directory for programs: that of the PATH, or else that of the system.
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

// TestSamplesOfTheDeveloperPages pastes what the pages for developers say, from top to bottom, into a shell.
func TestSamplesOfTheDeveloperPages(t *testing.T) {
	t.Parallel()
	s := start(t, dataDir(t), "--demo")
	defer s.stop()
	access := s.demo()
	files, programs := t.TempDir(), t.TempDir()
	shell := func(t *testing.T, script string) string {
		t.Helper()
		c := exec.Command("bash", "-euo", "pipefail", "-c", script)
		c.Dir = files
		c.Env = append(cleanEnviron(), config.VariableAPIKey+"="+access.Keys.Worker, config.VariableBaseURL+"="+access.BaseURL, "INTEGRITY_COMPANY="+access.CompanyReference,
			"PATH="+programs+":"+filepath.Dir(os.Getenv(binaryVariable))+":"+os.Getenv("PATH"), "HOME="+files, "npm_config_cache="+filepath.Join(files, "npm"),
			"npm_config_audit=false", "npm_config_update_notifier=false") // it would ask a registry, which the package does not need
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
		return string(out)
	}
	says := func(t *testing.T, out string, parts ...string) {
		t.Helper()
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("want %q:\n%s", part, out)
			}
		}
	}

	tool(t, "curl", "--version")
	pythonWith(t, programs, "cryptography")
	for _, prefix := range []string{"", "/en"} {
		texts, order := samples(t, access.BaseURL+prefix+"/developers")
		if texts["start/environment.sh"] != "export INTEGRITY_BASE_URL="+access.BaseURL+"\nexport INTEGRITY_API_KEY=YOUR_KEY\nexport INTEGRITY_COMPANY=YOUR_COMPANY" {
			t.Errorf("the variables are %s", texts["start/environment.sh"])
		}
		var script []string
		for _, name := range order {
			if name != "start/environment.sh" {
				script = append(script, texts[name])
			}
		}
		if len(script) != 5 {
			t.Fatalf("%d samples: %v", len(script), order)
		}
		out := shell(t, strings.Join(script, "\n"))
		says(t, out, `"replayed":false`, `"result":"MATCH_CURRENT","verified":true`, `"events":[`, `"hasMore":false`)
		for _, file := range []string{"evidence.json", "trusted-keys.json", "verify_integrity.py"} {
			if _, err := os.Stat(filepath.Join(files, file)); err != nil {
				t.Error(err)
			}
		}
		// The declaration is a replay when it is sent again, as the page says.
		says(t, shell(t, texts["start/2-register.sh"]), `"replayed":true`, `"applied":0`)
	}

	texts, _ := samples(t, access.BaseURL+"/en/developers/downloads")
	link := access.BaseURL + "/integrity/"
	t.Run("python", func(t *testing.T) {
		pythonWith(t, programs, "httpx")
		shell(t, texts["clients/1-python.sh"])
		write(t, filepath.Join(files, "register.py"), texts["clients/register.py"])
		says(t, shell(t, "python3 register.py"), link)
	})
	t.Run("node", func(t *testing.T) {
		tool(t, "npm", "--version")
		shell(t, texts["clients/2-node.sh"])
		write(t, filepath.Join(files, "register.mjs"), texts["clients/register.mjs"])
		says(t, shell(t, "node register.mjs"), link, "MATCH_CURRENT true")
	})
	t.Run("command", func(t *testing.T) { says(t, shell(t, texts["clients/cli.sh"]), link) })
	t.Run("README", func(t *testing.T) {
		out := tryReadme(t, files, s.dir, shell)
		says(t, out, "MATCH_CURRENT", "HASH_MISMATCH", "everything that was supplied and checked is valid")
	})
	t.Run("reserve", func(t *testing.T) {
		texts, _ := samples(t, access.BaseURL+"/en/developers/integration")
		says(t, shell(t, texts["integration/reserve.sh"]), `"status":"pending"`, link)
	})
	t.Run("webhook signatures", func(t *testing.T) {
		texts, _ := samples(t, access.BaseURL+"/developers/webhooks")
		write(t, filepath.Join(files, "signature.py"), texts["webhooks/signature.py"])
		write(t, filepath.Join(files, "signature.mjs"), texts["webhooks/signature.mjs"])
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
		write(t, filepath.Join(files, "headers"), headers)
		write(t, filepath.Join(files, "try.py"), `from signature import signed
print("".join("01"[signed(h, b'`+body+`', "`+secret+`", `+now+`)] for h in open("headers").read().split("\n")[:-1]))`)
		write(t, filepath.Join(files, "try.mjs"), `import { signed } from "./signature.mjs";
import { readFileSync } from "node:fs";
console.log(readFileSync("headers", "utf8").split("\n").slice(0, -1).map((h) => (signed(h, Buffer.from('`+body+`'), "`+secret+`", `+now+`) ? 1 : 0)).join(""));`)
		if got := strings.TrimSpace(shell(t, "python3 try.py")); got != want {
			t.Errorf("in Python %s, want %s", got, want)
		}
		tool(t, "node", "--version")
		if got := strings.TrimSpace(shell(t, "node try.mjs")); got != want {
			t.Errorf("in JavaScript %s, want %s", got, want)
		}
	})
}

// tryReadme pastes what README gives newcomers to try, after the first line, which holds the key that the demo has printed.
func tryReadme(t *testing.T, files, dataDir string, shell func(*testing.T, string) string) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## Three things to try\n")
	section, _, _ = strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(section, -1)
	if !found || len(blocks) != 4 || !strings.HasPrefix(blocks[0][1], "export INTEGRITY_API_KEY=") {
		t.Fatalf("README.md has other things to try: %q", blocks)
	}
	for from, to := range map[string]string{os.Getenv(binaryVariable): "bin/integrity", filepath.Join(dataDir, "trusted-keys.json"): "data/trusted-keys.json"} {
		to = filepath.Join(files, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
	}
	// Its usual port may be taken here.
	origin := strings.Replace(blocks[3][1], " origin-demo ", " origin-demo --serve "+freeAddress(t)+" ", 1)
	return shell(t, blocks[1][1]+blocks[2][1]+origin)
}
