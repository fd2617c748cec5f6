package client_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"time"

	"integrityledger/domain"
	"integrityledger/handlers/client"
	"integrityledger/handlers/wire"
)

// setKey puts a key into the environment, where an origin system keeps its own.
func setKey() (restore func()) {
	id := domain.NewKeyID(time.Now(), 0)
	key, _ := domain.NewAPIKey(id)
	before := os.Getenv("INTEGRITY_API_KEY")
	os.Setenv("INTEGRITY_API_KEY", key)
	return func() { os.Setenv("INTEGRITY_API_KEY", before) }
}

// Declares a final file and decides by the outcome.
func ExampleClient_Register() {
	defer setKey()()
	// Plays the service, which refuses another hash for a registered version.
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w,
			`{"data":null,"error":{"code":"VERSION_CONFLICT","status":409,"detail":"The version was declared with other data.",
			"existing":{"publicId":"aaaaaaaaaaaaaaaaaaaaaaaaaa","receivedAt":"2026-03-01T09:30:00Z"}},"meta":{"requestId":"r"}}`)
	}))
	defer service.Close()

	c, err := client.New(client.Config{BaseURL: service.URL, APIKey: os.Getenv("INTEGRITY_API_KEY")})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	version := wire.VersionReference{CompanyReference: "c-7f3a91", Source: "billing", DocumentReference: "d-1", Version: 1}
	declaration, err := client.Declare(
		version, strings.NewReader("%PDF-1.7 final bytes"), "application/pdf", time.Date(2026, 3, 1, 9, 29, 0, 0, time.UTC),
	)
	if err != nil {
		panic(err)
	}
	registered, err := c.Register(context.Background(), declaration)
	switch {
	case err == nil:
		fmt.Println("registered as", registered.PublicID)
	case client.Unknown(err):
		fmt.Println("look it up, then send the same declaration again:", err)
	case client.Refused(err):
		fmt.Println("needs correction:", err)
	default:
		fmt.Println("again after", client.RetryAfter(err))
	}
	// Output:
	// needs correction: VERSION_CONFLICT (409): The version was declared with other data.
	//   the accepted version is aaaaaaaaaaaaaaaaaaaaaaaaaa, received at 2026-03-01T09:30:00Z
}
