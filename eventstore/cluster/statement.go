package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
)

// SQL declares a statement in which each distributed table is marked by braces: FROM {events} e. It returns the text
// for one PostgreSQL, in which a mark is the table's name, and remembers where the marks were. Piece.Text finds them
// again by that text. Statements are declared once, in package variables, or where a text is put together.
//
// SQL panics when a statement uses a marked table's name for columns or locks, but gives it no alias: on a node the
// table has another name.
func SQL(template string) string {
	declared.RLock()
	text, ok := declared.texts[template]
	declared.RUnlock()
	if ok {
		return text
	}
	t := parseTemplate(template)
	if table := t.unnamed(); table != "" {
		panic(fmt.Sprintf("write {%s} AS %s in the statement: %s", table, table, template))
	}
	text = t.text(func(table string) string { return table })
	declared.Lock()
	defer declared.Unlock()
	declared.texts[template], declared.templates[text] = text, t
	return text
}

// Declared returns the text of each declared statement that marks a table, so that tests can try all of them.
func Declared() (texts []string) {
	declared.RLock()
	defer declared.RUnlock()
	for text, t := range declared.templates {
		if len(t.tables) > 0 {
			texts = append(texts, text)
		}
	}
	return texts
}

// declared holds the statements of the program. Their number is bounded by its source.
var declared = struct {
	sync.RWMutex
	texts     map[string]string // by template
	templates map[string]template
}{texts: map[string]string{}, templates: map[string]template{}}

// template is a statement split at its marks. texts[i] precedes tables[i], and the last text follows all tables.
type template struct{ texts, tables []string }

func parseTemplate(s string) (t template) {
	begin := 0
	for i := 0; i < len(s); i++ {
		if s[i] != '{' {
			continue
		}
		end := i + 1
		for end < len(s) && inName(rune(s[end])) {
			end++
		}
		if end == i+1 || end == len(s) || s[end] != '}' {
			continue // an array or JSON
		}
		t.texts, t.tables = append(t.texts, s[begin:i]), append(t.tables, s[i+1:end])
		begin, i = end+1, end
	}
	t.texts = append(t.texts, s[begin:])
	return t
}

func inName(r rune) bool { return r == '_' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9' }

func (t template) text(name func(table string) string) string {
	var b strings.Builder
	for i, table := range t.tables {
		b.WriteString(t.texts[i])
		b.WriteString(name(table))
	}
	b.WriteString(t.texts[len(t.tables)])
	return b.String()
}

// words splits a statement into names, keywords and names with a dot.
func words(sql string) []string {
	return strings.FieldsFunc(sql, func(r rune) bool { return !inName(r) && r != '.' && (r < 'A' || r > 'Z') })
}

// unnamed returns a marked table whose name the statement uses without giving it an alias, or an empty string.
func (t template) unnamed() string {
	used := map[string]bool{}
	for _, text := range t.texts {
		all := words(text)
		for i, word := range all {
			if name, _, column := strings.Cut(word, "."); column || i > 0 && all[i-1] == "OF" {
				used[name] = true
			}
		}
	}
	for i, table := range t.tables {
		after := t.texts[i+1]
		alias := strings.HasPrefix(strings.TrimLeft(after, " \t\n"), "AS ") ||
			len(after) > 1 && after[0] == ' ' && after[1] >= 'a' && after[1] <= 'z'
		if used[table] && !alias {
			return table
		}
	}
	return ""
}

// tableFollows lists the keywords that precede a table. Our statements write keywords in capitals.
var tableFollows = []string{"FROM", "JOIN", "INTO", "UPDATE", "USING"}

// Unmarked returns a distributed table that a statement or template names without a mark. The name may have a schema.
func Unmarked(sql string, distributed func(table string) bool) (table string, found bool) {
	for _, text := range parseTemplate(sql).texts {
		all := words(text)
		for i, word := range all {
			if i > 0 && slices.Contains(tableFollows, all[i-1]) && distributed(word) {
				return word, true
			}
		}
	}
	return "", false
}

// statements caches the texts of a piece by the texts for one PostgreSQL. The map is replaced, never changed, so that
// lookups need no lock.
type statements struct {
	mu    sync.Mutex
	known atomic.Pointer[map[string]string]
}

// Text returns the text of a statement from SQL for the node of the piece. A nil receiver returns the statement
// unchanged. A statement without distributed tables need not be declared. Text returns an error if the statement names
// a distributed table without a mark, because Citus would plan it and might query other nodes.
func (p *Piece) Text(sql string) (string, error) {
	if p == nil {
		return sql, nil
	}
	if known := p.statements.known.Load(); known != nil {
		if text, ok := (*known)[sql]; ok {
			return text, nil
		}
	}
	declared.RLock()
	t, ok := declared.templates[sql]
	declared.RUnlock()
	if !ok {
		t = template{texts: []string{sql}}
	}
	for _, table := range t.tables {
		if p.parts[table] == "" {
			return "", fmt.Errorf("table %s is marked, and is not distributed: %s", table, sql) //nolint:forbidigo // a bug
		}
	}
	if table, found := Unmarked(t.text(func(table string) string { return "{" + table + "}" }), func(name string) bool {
		return p.parts[strings.TrimPrefix(name, "public.")] != ""
	}); found {
		return "", fmt.Errorf("write {%s} and declare the statement with cluster.SQL: %s", table, sql) //nolint:forbidigo // a bug
	}
	text := t.text(func(table string) string { return p.parts[table] })
	p.statements.mu.Lock()
	defer p.statements.mu.Unlock()
	next := map[string]string{sql: text}
	if known := p.statements.known.Load(); known != nil {
		maps.Copy(next, *known)
	}
	p.statements.known.Store(&next)
	return text, nil
}

// Sender sends statements to a node: a connection or a transaction.
type Sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Send sends a batch to the node of the piece with the piece's texts. It does not change the batch.
func (p *Piece) Send(ctx context.Context, to Sender, b *pgx.Batch) pgx.BatchResults {
	if p == nil {
		return to.SendBatch(ctx, b)
	}
	placed := &pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, len(b.QueuedQueries))}
	copies := make([]pgx.QueuedQuery, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		text, err := p.Text(q.SQL)
		if err != nil {
			return pgx.FailedBatchResults(b, err)
		}
		copies[i] = *q
		copies[i].SQL, placed.QueuedQueries[i] = text, &copies[i]
	}
	return to.SendBatch(ctx, placed)
}
