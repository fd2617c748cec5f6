package handlers_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"integrityledger/handlers/client"
	"integrityledger/schemas"
)

// clientOperations are the operations of the clients by those of the contract, as JavaScript writes them. Empty: the
// clients have none, as nobody needs it for emission or verification, or a program of its own does it.
var clientOperations = map[string]string{
	"registerRecord": "register", "registerBatch": "registerBatch", "searchRecords": "recordsPage", "getRecord": "record", "getEvidence": "evidence",
	"revokeRecord": "revoke", "lookupRecord": "lookup", "listChanges": "changesPage", "getUsage": "usage", "listUsageEntries": "usageEntriesPage",
	"reserve": "reserve", "listReservations": "reservationsPage", "releaseReservation": "releaseReservation",
	"listCompanies": "companiesPage", "createCompany": "createCompany", "updateCompany": "setCompanyStatus", "listAccess": "companyAccessPage",
	"setAccess": "grantKey", "listWebhookAccess": "companyWebhooksPage", "setWebhookAccess": "grantWebhook",
	"listWebhooks": "webhooks", "createWebhook": "createWebhook", "getWebhook": "webhook", "updateWebhook": "updateWebhook", "deleteWebhook": "deleteWebhook",
	"rotateWebhookSecret": "rotateWebhookSecret", "testWebhook": "testWebhook", "replayWebhook": "replayWebhook", "listDeliveries": "deliveriesPage",
	"redeliver": "redeliver", "comparePublicly": "compare", "getReceipt": "receipt", "getLogCheckpoint": "logCheckpoint", "getLogTile": "logTile",
	"getPartialLogTile": "logTile", "listLogTimestamps": "logTimestampsPage",
	"getOrganization": "organization", "listKeys": "apiKeysPage", "createKey": "createApiKey", "getKey": "apiKey", "updateKey": "updateApiKey",
	"revokeKey": "revokeApiKey", "rotateKey": "rotateApiKey", "listMembers": "membersPage", "inviteMember": "inviteMember", "updateMember": "updateMember",
	"endMember": "endMember", "verifyCertificate": "verifyHash",

	"getInclusion": "", // evidence holds it
	// Documents and pages, keys that are pinned, and what operators and agents ask.
	"getContract": "", "getSchema": "", "getDownload": "", "getTrustedKeys": "", "getLimits": "", "getErrorPage": "", "getHealth": "", "getReadiness": "", "callIntegrityMcp": "",
}

// Every operation of the integrity contract, and what the clients have of the other, is in the clients for Go, JavaScript
// and Python under one name, written as each language writes it; pages have a method that walks them.
func TestClientOperations(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		check(t, err)
		return string(text)
	}
	python, javaScript, types := read("developers/python/integrity_client.py"), read("developers/javascript/client.js"), read("developers/javascript/client.d.ts")
	inGo := reflect.TypeFor[*client.Client]()
	snake := regexp.MustCompile("[A-Z]")
	defined := func(language, source, pattern, name string) {
		if !regexp.MustCompile("(?m)" + strings.ReplaceAll(pattern, "NAME", name)).MatchString(source) {
			t.Errorf("the %s client has no %s", language, name)
		}
	}
	documented := map[string]bool{}
	for _, file := range []string{schemas.OpenAPIFile, schemas.CertificationOpenAPIFile} {
		text, err := schemas.File(file)
		check(t, err)
		var contract struct {
			Paths map[string]map[string]json.RawMessage
		}
		check(t, json.Unmarshal(text, &contract))
		for path, methods := range contract.Paths {
			for method, operation := range methods {
				var o struct{ OperationID string }
				if method == "parameters" || json.Unmarshal(operation, &o) != nil || o.OperationID == "" {
					continue
				}
				documented[o.OperationID] = true
				name, known := clientOperations[o.OperationID]
				if !known && (file == schemas.OpenAPIFile || strings.HasPrefix(path, "/api/v1/organization")) {
					t.Errorf("%s is an operation of the contract: say which method of the clients it is", o.OperationID)
				}
				if name == "" {
					continue
				}
				walked := []string{name}
				if page, ok := strings.CutSuffix(name, "Page"); ok {
					walked = append(walked, page)
				}
				for _, name := range walked {
					defined("JavaScript", javaScript, `^  (async )?\*?NAME\(`, name)
					defined("TypeScript", types, `^  NAME\(`, name)
					defined("Python", python, `^    async def NAME\($|^    async def NAME\(self`, strings.ToLower(snake.ReplaceAllString(name, "_$0")))
				}
				exported := strings.TrimSuffix(name, "Page")
				exported = strings.ReplaceAll(strings.ToUpper(exported[:1])+exported[1:], "Api", "API")
				if _, ok := inGo.MethodByName(exported); !ok {
					t.Errorf("the Go client has no %s", exported)
				}
			}
		}
	}
	for operation := range clientOperations {
		if !documented[operation] {
			t.Errorf("%s is no operation of the contract", operation)
		}
	}
}
