package clientcmd

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"integrityledger/cmd/integrity/cli"
	"integrityledger/cmd/integrity/config"
	"integrityledger/domain"
)

// TestAddressIsNamed: if a key is refused, or the answer does not come from this service, the error names the address,
// because the configured address may be the wrong one.
func TestAddressIsNamed(t *testing.T) {
	key, _ := domain.NewAPIKey(domain.NewKeyID(time.Now(), 0))
	for name, answer := range map[string]struct {
		status     int
		body, want string
		exit       int
	}{
		"a refused key": {
			401, `{"data":null,"error":{"code":"INVALID_KEY","status":401,"detail":"d"},"meta":{}}`, "INVALID_KEY",
			cli.ExitNegative,
		},
		"a missing scope": {
			403, `{"data":null,"error":{"code":"MISSING_SCOPE","status":403,"detail":"d"},"meta":{}}`, "MISSING_SCOPE",
			cli.ExitNegative,
		},
		"another's refusal": {404, "<html>Not Found</html>", "is this the address of the service?", cli.ExitFailed},
		"another's page":    {200, "<html>Welcome</html>", "is this the address of the service?", cli.ExitFailed},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(answer.status)
			_, _ = io.WriteString(w, answer.body) // fails if the command stops reading early
		}))
		defer server.Close()
		for _, args := range [][]string{
			{"usage"}, {"changes", "--company", "c"},
			{"reserve", "--company", "c", "--source", "s", "--document", "d", "--version", "1"}, {"webhook", "list"},
		} {
			var errs strings.Builder
			a := &cli.App{
				Out: io.Discard, Errs: &errs,
				Environ: []string{config.VariableAPIKey + "=" + key, config.VariableBaseURL + "=" + server.URL}, Now: time.Now,
			}
			root := &cobra.Command{Use: "integrity", SilenceErrors: true, SilenceUsage: true}
			root.AddCommand(Commands(a, nil)...)
			if exit := a.Run(t.Context(), root, args); exit != answer.exit || !strings.Contains(errs.String(), server.URL) ||
				!strings.Contains(errs.String(), answer.want) {
				t.Errorf("%s, %s: exit %d: %s", name, args[0], exit, errs.String())
			}
			if strings.Contains(errs.String(), key) {
				t.Errorf("%s: the key is shown: %s", name, errs.String())
			}
		}
	}
}
