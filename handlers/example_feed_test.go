package handlers_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"

	_ "modernc.org/sqlite" // any database with transactions will do
)

// A consumer of the change feed that loses and repeats nothing, even if it is killed: one transaction stores the events
// and the cursor.
func Example_reconciliation() {
	// Plays the service: three events in pages of two.
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		after, _ := strconv.Atoi(r.URL.Query().Get("after")) // 0 where absent
		pages := map[int]string{
			0: `{"events":[{"id":"evt_a","sequence":7},{"id":"evt_b","sequence":9}],"nextCursor":9,"hasMore":true}`,
			9: `{"events":[{"id":"evt_c","sequence":12}],"nextCursor":12,"hasMore":false}`,
		}
		page, ok := pages[after]
		if !ok {
			page = fmt.Sprintf(`{"events":[],"nextCursor":%d,"hasMore":false}`, after)
		}
		_, _ = fmt.Fprintf(w, `{"data":%s,"error":null,"meta":{"requestId":"r","epoch":1}}`, page)
	}))
	defer service.Close()

	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec(`CREATE TABLE events (id TEXT PRIMARY KEY, event TEXT NOT NULL);
		CREATE TABLE cursor (sequence INTEGER NOT NULL); INSERT INTO cursor VALUES (0)`); err != nil {
		panic(err)
	}
	for more := true; more; {
		if more, err = readPage(context.Background(), db, service.URL, "ik_…", "c-7f3a91"); err != nil {
			panic(err) // a real consumer would try again; nothing is lost
		}
	}
	var events, cursor int
	if err := db.QueryRow(
		"SELECT (SELECT count(*) FROM events), (SELECT sequence FROM cursor)",
	).Scan(&events, &cursor); err != nil {
		panic(err)
	}
	fmt.Println(events, "events, cursor", cursor)
	// Output: 3 events, cursor 12
}

// readPage stores a page and the cursor after it.
func readPage(ctx context.Context, db *sql.DB, service, key, company string) (more bool, err error) {
	var cursor int64
	if err := db.QueryRowContext(ctx, "SELECT sequence FROM cursor").Scan(&cursor); err != nil {
		return false, err
	}
	query := url.Values{"companyReference": {company}, "after": {strconv.FormatInt(cursor, 10)}, "wait": {"25"}}
	request, err := http.NewRequestWithContext(
		ctx, http.MethodGet, service+"/api/v1/integrity/changes?"+query.Encode(), nil,
	)
	if err != nil {
		return false, err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		// 429 and 503: try again after Retry-After; CURSOR_AHEAD: the service was restored
		return false, fmt.Errorf("the feed answers %s", response.Status)
	}
	var page struct {
		Data struct {
			Events     []json.RawMessage
			NextCursor int64
			HasMore    bool
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&page); err != nil {
		return false, err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // no effect after a commit
	for _, raw := range page.Data.Events {
		var event struct{ ID string }
		if err := json.Unmarshal(raw, &event); err != nil {
			return false, err
		}
		if _, err := tx.ExecContext(
			ctx, "INSERT INTO events VALUES (?, ?) ON CONFLICT DO NOTHING", event.ID, string(raw),
		); err != nil {
			return false, err
		}
	}
	if _, err := tx.ExecContext(
		ctx, "UPDATE cursor SET sequence = ? WHERE sequence = ?", page.Data.NextCursor, cursor,
	); err != nil {
		return false, err
	}
	return page.Data.HasMore, tx.Commit()
}
