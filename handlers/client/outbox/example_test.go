package outbox_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "modernc.org/sqlite"

	"integrityledger/domain"
	"integrityledger/handlers/client"
	"integrityledger/handlers/client/outbox"
	"integrityledger/handlers/wire"
)

// An origin system stores a final file and its declaration in one transaction, and a worker registers it.
func ExampleWorker() {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	service, key := pretend()
	defer service.Close()

	ctx := context.Background()
	db, err := sql.Open("sqlite", filepath.Join(dir, "origin.db")+"?_txlock=immediate&_pragma=synchronous(FULL)")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.ExecContext(ctx, `CREATE TABLE files (reference TEXT PRIMARY KEY, pdf BLOB NOT NULL)`); err != nil {
		log.Fatal(err)
	}
	box, err := outbox.New(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.New(client.Config{BaseURL: service.URL, APIKey: key})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	worker := outbox.NewWorker(outbox.Config{Outbox: box, Client: c, Report: func(r outbox.Report) {
		if r.Kind == outbox.Postponed || r.Kind == outbox.Halted || r.Kind == outbox.Finished {
			fmt.Println(r.Version.DocumentReference, r.Kind)
		}
	}})

	pdf := []byte("%PDF-1.7 final bytes")
	version := wire.VersionReference{CompanyReference: "c-7f3a91", Source: "billing", DocumentReference: "d-1", Version: 1}
	declaration, err := client.Declare(version, bytes.NewReader(pdf), "application/pdf", time.Now())
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, `INSERT INTO files VALUES (?, ?)`, version.DocumentReference, pdf); err != nil {
		log.Fatal(err)
	}
	if err := box.Add(ctx, tx, declaration); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	worker.Wake() // deliver the file now, without waiting for the worker

	worker.Finish() // a server would let Run continue until its context ends
	if err := worker.Run(ctx); err != nil {
		log.Fatal(err)
	}
	item, err := box.Find(ctx, version)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(item.State, item.Record.VerificationURL)
	// Output:
	// d-1 finished
	// registered https://ledger.example.org/integrity/aaaaaaaaaaaaaaaaaaaaaaaaaa
}

// pretend starts a fake service and makes a key.
func pretend() (*httptest.Server, string) {
	id := domain.NewKeyID(time.Now(), 0)
	key, _ := domain.NewAPIKey(id)
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			log.Print(err)
		}
		_, sum, declared := strings.Cut(string(body), `"sha256":"`)
		if !declared {
			fmt.Fprint(w, `{"data":{"results":[{"status":200,"data":{"contract":"integrity-evidence-v1","payload":"x",
				"inclusion":{}},"error":null}]},"error":null,"meta":{"requestId":"r"}}`)
			return
		}
		id := strings.Repeat("a", 26)
		fmt.Fprintf(w,
			`{"data":{"results":[{"status":201,"data":{"publicId":%q,"documentReference":"d-1","version":1,"sha256":%q,
			"verificationUrl":"https://ledger.example.org/integrity/%s","usage":{"period":"2026-03"}},"error":null}]},"error":null,"meta":{"requestId":"r"}}`, id, sum[:64], id)
	})), key
}
