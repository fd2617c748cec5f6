package web

import (
	"slices"

	"integrityledger/handlers/wire"
)

// Webhooks is the list of destinations.
type Webhooks struct {
	Console  Console
	Webhooks []wire.Webhook
	Most     int
}

// Webhooks renders the list of destinations.
func (s ConsolePages) Webhooks(p Webhooks) ([]byte, error) {
	return s.renderConsole("webhooks.html", struct {
		consoleFrame
		Webhooks
	}{s.consoleFrame(p.Console), p})
}

// WebhookForm has the input fields of a destination.
type WebhookForm struct {
	URL, Description string
	Types            []string
	Problem          Problem
	Reach            string // what the service's settings let it send to: Internet, ThisComputer or Anywhere
	Local            bool   // the service is on loopback, and a setting would let it send there
}

// Ticked reports whether a type is chosen.
func (f WebhookForm) Ticked(kind string) bool { return slices.Contains(f.Types, kind) }

// AuthorizedCompany is a company whose events a destination may receive.
type AuthorizedCompany struct {
	ID, Reference string
	Authorized    bool
}

// NewWebhook is the form of a new destination.
type NewWebhook struct {
	Console        Console
	Form           WebhookForm
	Known          []string // types
	Companies      []AuthorizedCompany
	More           bool // there are more companies, which can be authorized later
	MaxDescription int
}

// NewWebhook renders the form of a new destination.
func (s ConsolePages) NewWebhook(p NewWebhook) ([]byte, error) {
	return s.renderConsole("webhook-new.html", struct {
		consoleFrame
		NewWebhook
	}{s.consoleFrame(p.Console), p})
}

// WebhookSecret shows a signing secret once.
type WebhookSecret struct {
	Console      Console
	ID, Secret   string
	Unauthorized bool // not all chosen companies could be authorized
}

// WebhookSecret renders the page with a signing secret.
func (s ConsolePages) WebhookSecret(p WebhookSecret) ([]byte, error) {
	return s.renderConsole("webhook-secret.html", struct {
		consoleFrame
		WebhookSecret
	}{s.consoleFrame(p.Console), p})
}

// WebhookPage is a destination with its companies and deliveries.
type WebhookPage struct {
	Console         Console
	Webhook         wire.Webhook
	Creator         string // the actor that created it
	CreatorName     string // what people call it; may be empty
	Form            WebhookForm
	Known           []string // types
	MaxDescription  int
	Companies       []AuthorizedCompany
	After           string // the reference before the first of Companies
	MoreCompanies   string // address of the page with more companies
	MostAuthorized  int    // number of destinations that a company may have
	Deliveries      []wire.Delivery
	Status          string // the filter
	Statuses        []string
	Pending         bool   // at least one of Deliveries is
	Now             string // address of the current state of Deliveries
	OlderDeliveries string
	Overlaps        []int // in hours, for a confirmation
}

// Webhook renders the page of a destination.
func (s ConsolePages) Webhook(p WebhookPage) ([]byte, error) { return s.webhookPage("webhook.html", p) }

// DeliveryRows renders only the rows of the deliveries.
func (s ConsolePages) DeliveryRows(p WebhookPage) ([]byte, error) {
	return s.webhookPage("delivery-rows", p)
}

// WebhookConfirmation renders the page before an action. The action is the name of the page.
func (s ConsolePages) WebhookConfirmation(p WebhookPage) ([]byte, error) {
	return s.webhookPage(p.Console.Name+".html", p)
}

func (s ConsolePages) webhookPage(name string, p WebhookPage) ([]byte, error) {
	f := struct {
		consoleFrame
		WebhookPage
	}{s.consoleFrame(p.Console), p}
	if p.Pending {
		f.Script = "consolewebhooks.js"
	}
	return s.renderConsole(name, f)
}

// DeliveryPage is a delivery with the body that the service sent and the answer of the receiver.
type DeliveryPage struct {
	Console  Console
	Webhook  wire.Webhook
	Delivery wire.Delivery
	Body     string // as it is signed; empty if nothing is sent
	Answer   string // the beginning of the receiver's answer
	Answered bool
	TookMS   *int32 // of the last attempt
}

// Delivery renders the page of a delivery.
func (s ConsolePages) Delivery(p DeliveryPage) ([]byte, error) {
	return s.renderConsole("webhook-delivery.html", struct {
		consoleFrame
		DeliveryPage
	}{s.consoleFrame(p.Console), p})
}

// Replay is the page on which past events for a destination are counted, then queued.
type Replay struct {
	Console Console
	Webhook wire.Webhook
	Typed   map[string]string // by the name of the API's member
	Problem Problem
	Counted bool
	Count   int // of events, once they are counted
	Most    int // of events in one replay
}

// Replay renders the page of a replay.
func (s ConsolePages) Replay(p Replay) ([]byte, error) {
	return s.renderConsole("replay.html", struct {
		consoleFrame
		Replay
	}{s.consoleFrame(p.Console), p})
}
