package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// queries are the expressions of the dashboard and of the alert rules, as Prometheus understands them.
func queries(t *testing.T) map[string]parser.Expr {
	t.Helper()
	found := map[string]parser.Expr{}
	add := func(where, text string) {
		expr, err := parser.ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v in %s", where, err, text)
			return
		}
		found[where] = expr
	}
	groups, errs := rulefmt.ParseFile("ops/alerts.yml", false)
	if errs != nil {
		t.Fatal(errs)
	}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			if rule.Annotations["summary"] == "" || rule.Annotations["description"] == "" || rule.Labels["severity"] == "" {
				t.Errorf("alert %s lacks summary, description or severity", rule.Alert)
			}
			add("alert "+rule.Alert, rule.Expr)
		}
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ H, W, X, Y int }
			Targets []struct {
				RefID string
				Expr  string
			}
		}
		Templating struct{ List []struct{ Name string } }
	}
	text, err := os.ReadFile("ops/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	variable := strings.NewReplacer("$__rate_interval", "5m", "$job", "integrity", "$instance", ".*")
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] || p.Title == "" || p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %d %q: want an id of its own, a title and a query", p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("panel %q lies over %q or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		for _, target := range p.Targets {
			add("panel "+p.Title+" "+target.RefID, variable.Replace(target.Expr))
		}
	}
	if len(found) < 30 {
		t.Fatalf("only %d queries were found", len(found))
	}
	return found
}

// selected are the series that a query asks for, each with the labels that it names.
func selected(t *testing.T, expr parser.Expr) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		var labels []string
		if s, ok := node.(*parser.VectorSelector); ok {
			for _, m := range s.LabelMatchers {
				if m.Name != "__name__" {
					labels = append(labels, m.Name)
				}
			}
			// What an aggregation keeps must be there, too.
			for _, outer := range path {
				if a, ok := outer.(*parser.AggregateExpr); ok && !a.Without {
					labels = append(labels, a.Grouping...)
				}
			}
			names[s.Name] = append(names[s.Name], labels...)
		}
		return nil
	})
	if len(names) == 0 {
		t.Errorf("%s asks for nothing", expr)
	}
	return names
}

// TestRules runs the rules' own tests by Prometheus' own tool, where the machine has it.
func TestRules(t *testing.T) {
	t.Parallel()
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("promtool is not here (Debian package prometheus): TestQueries has parsed the rules, and nobody has evaluated them")
	}
	for _, args := range [][]string{{"check", "rules", "ops/alerts.yml"}, {"test", "rules", "ops/alerts_test.yml"}} {
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, out)
		}
	}
}
