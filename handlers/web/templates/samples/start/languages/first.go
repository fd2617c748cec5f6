//go:build ignore

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"time"
)

func main() {
	document := []byte("The final bytes of a document.\n")
	now := time.Now().UTC()
	declaration, _ := json.Marshal(map[string]any{
		"companyReference": os.Getenv("INTEGRITY_COMPANY"), "source": "quick-start",
		"documentReference": fmt.Sprint("document-", now.UnixNano()), "version": 1,
		"sha256": fmt.Sprintf("%x", sha256.Sum256(document)), "sizeBytes": len(document),
		"mimeType": "text/plain", "generatedAt": now.Format(time.RFC3339),
	})
	write("document.txt", document)
	write("declaration.json", declaration)
	request, err := http.NewRequest(http.MethodPost,
		os.Getenv("INTEGRITY_BASE_URL")+"/api/v1/integrity/records", bytes.NewReader(declaration))
	if err != nil {
		log.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("INTEGRITY_API_KEY"))
	request.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: time.Minute}
	response, err := client.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	record, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode >= 300 {
		log.Fatal(response.Status, string(record), err)
	}
	write("record.json", record)
	fmt.Println(string(record))
}

func write(name string, content []byte) {
	if err := os.WriteFile(name, content, 0o600); err != nil {
		log.Fatal(err)
	}
}
