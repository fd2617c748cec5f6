package main

import (
	"html"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
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
	s := start(t, dataDir(t), "--demo")
	defer s.stop()
	access := s.demo()
	files, programs := t.TempDir(), t.TempDir()
	shell := func(t *testing.T, script string) string {
		t.Helper()
		c := exec.Command("bash", "-euo", "pipefail", "-c", script)
		c.Dir = files
		c.Env = append(cleanEnviron(), variableAPIKey+"="+access.Keys.Worker, variableBaseURL+"="+access.BaseURL, "INTEGRITY_COMPANY="+access.CompanyReference,
			"PATH="+programs+":"+filepath.Dir(os.Getenv(binaryVariable))+":"+os.Getenv("PATH"), "HOME="+files, "npm_config_cache="+filepath.Join(files, "npm"))
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
				t.Errorf("%q was expected:\n%s", part, out)
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
	t.Run("reserve", func(t *testing.T) {
		texts, _ := samples(t, access.BaseURL+"/en/developers/integration")
		says(t, shell(t, texts["integration/reserve.sh"]), `"status":"pending"`, link)
	})
}
