package web

import (
	"regexp"
	"strings"

	"integrityledger/handlers/web/reference"
)

// ClientOperation is an operation of the contracts in the clients.
type ClientOperation struct {
	JavaScript string   // the method; a name in Page returns one page, and the name without Page walks all pages
	Commands   []string // of the program integrity
}

// Python returns the method of the Python client.
func (o ClientOperation) Python() string {
	return strings.ToLower(regexp.MustCompile("[A-Z]").ReplaceAllString(o.JavaScript, "_$0"))
}

// Go returns the method of the Go client, whose methods return a page if there are pages.
func (o ClientOperation) Go() string {
	name := strings.TrimSuffix(o.JavaScript, "Page")
	return strings.ReplaceAll(strings.ToUpper(name[:1])+name[1:], "Api", "API")
}

// ClientOperations returns the operations of the clients by the operations of the contract. TestClientOperations
// compares them with the clients, and TestCommandsOfTheContract with the program.
func ClientOperations() map[string]ClientOperation {
	only := func(name string) ClientOperation { return ClientOperation{JavaScript: name} }
	with := func(name string, commands ...string) ClientOperation { return ClientOperation{name, commands} }
	return map[string]ClientOperation{
		"registerRecord": with("register", "register"), "registerBatch": with("registerBatch", "import", "outbox run"),
		"searchRecords": only("recordsPage"),
		"getRecord":     with("record", "lookup"), "getEvidence": with("evidence", "evidence"),
		"getEvidenceOfMany": only("evidenceOfMany"), "getTlogProof": with("tlogProof", "evidence"),
		"getPublicTlogProof": only("publicTlogProof"),
		"getReport":          with("report", "evidence"), "getPublicReport": only("publicReport"),
		"revokeRecord": with("revoke", "revoke"),
		"lookupRecord": with("lookup", "lookup"), "listChanges": with("changesPage", "changes", "reconcile"),
		"getUsage": with("usage", "usage"), "listUsageEntries": only("usageEntriesPage"),
		"reserve": with("reserve", "reserve"), "listReservations": only("reservationsPage"),
		"releaseReservation": only("releaseReservation"),
		"listCompanies":      only("companiesPage"), "createCompany": only("createCompany"),
		"updateCompany": only("setCompanyStatus"),
		"listAccess":    only("companyAccessPage"), "setAccess": only("grantKey"),
		"listWebhookAccess": only("companyWebhooksPage"), "setWebhookAccess": with("grantWebhook", "webhook create"),
		"listWebhooks": with("webhooks", "webhook list"), "createWebhook": with("createWebhook", "webhook create"),
		"getWebhook":    only("webhook"),
		"updateWebhook": only("updateWebhook"), "deleteWebhook": only("deleteWebhook"),
		"rotateWebhookSecret": only("rotateWebhookSecret"),
		"testWebhook":         with("testWebhook", "webhook test"), "replayWebhook": with("replayWebhook", "webhook replay"),
		"listDeliveries": with("deliveriesPage", "webhook deliveries"), "redeliver": with("redeliver", "webhook redeliver"),
		"comparePublicly": with("compare", "compare"), "getReceipt": only("receipt"),
		"getLogCheckpoint": with("logCheckpoint", "monitor"), "getLogTile": with("logTile", "monitor"),
		"getPartialLogTile": with("logTile", "monitor"),
		"listLogTimestamps": only("logTimestampsPage"),
		"getOrganization":   only("organization"), "listKeys": with("apiKeysPage", "apikey list"),
		"createKey": with("createApiKey", "apikey create"),
		"getKey":    with("apiKey", "apikey show"), "updateKey": only("updateApiKey"),
		"revokeKey": with("revokeApiKey", "apikey revoke"),
		"rotateKey": with("rotateApiKey", "apikey rotate"), "listMembers": with("membersPage", "member list"),
		"inviteMember": with("inviteMember", "member invite"),
		"updateMember": with("updateMember", "member role", "member disable", "member enable"),
		"endMember":    with("endMember", "member end"), "verifyCertificate": only("verifyHash"),
	}
}

// Client returns the operation in the clients, or nil if they do not have it.
func (p guidePage) Client(o reference.Operation) *ClientOperation {
	if found, ok := ClientOperations()[o.ID]; ok {
		return &found
	}
	return nil
}
