package handlers_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/zitadel/oidc/v3/example/server/storage"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/edge"
	"integrityledger/handlers/oauth"
)

// A person signs in with a real provider, signs up with it and proves the identity again, on loopback, where the
// provider redirects to the address and the console uses the host name.
func TestProviderInTheBrowser(t *testing.T) {
	t.Parallel()
	w := openSite(t)
	box := &consoleService{service: w.service}
	config := w.config
	config.BaseURL = w.URL
	const client = "browser-client"
	storage.RegisterClients(storage.NativeClient(client, edge.OAuthRedirect(config.BaseURL)))
	idp := startProvider(t)
	config.OAuth = oauth.New(oauth.Config{
		Issuer: idp.issuer, Audience: edge.OAuthAudience(config.BaseURL), ClientID: client,
		RedirectURL: edge.OAuthRedirect(config.BaseURL), Now: config.Now,
	})
	config.LinkMailer, config.SignUp = box.mailer(t, &config), true
	w.use(handlers.New(config))
	w.URL = strings.Replace(w.URL, "127.0.0.1", "localhost", 1)
	second := w.Organization(t, 1, domain.InternalPlan) // of the same owner
	p := w.tab()
	signIn := func() {
		t.Helper()
		p.click("#provider button")
		p.do(chromedp.WaitVisible(chromedp.CSS("#username")))
		p.do(
			chromedp.SendKeys(chromedp.CSS("#username"), "test-user@127.0.0.1"),
			chromedp.SendKeys(chromedp.CSS("#password"), "verysecure"),
		)
		p.click(`button[type="submit"]`)
	}
	idp.says(map[string]any{"email": "new@example.com", "email_verified": true})
	p.open("/console")
	p.on("sign-in")
	p.looks("console-provider-sign-in")
	p.click(`a[href$="/console/sign-up"]`)
	p.on("sign-up")
	p.looks("console-provider-sign-up")
	signIn()
	p.do(chromedp.WaitVisible(chromedp.CSS("main form button")))
	p.on("organization-new")
	p.do(chromedp.SendKeys(chromedp.CSS("#organization #name"), "New"))
	p.click("#organization button")
	p.on("")
	p.click(".account button")
	p.on("sign-in")

	idp.says(map[string]any{"email": w.org.Email, "email_verified": true})
	signIn()
	p.do(chromedp.WaitVisible(chromedp.CSS("main form button")))
	p.click("main form button")
	p.on("choose")
	p.click(chromedp.CSS(`button[value="` + second.ID.String() + `"]`))
	p.on("")
	p.open("/console/prove?to=/console/security")
	p.on("prove")
	p.looks("console-provider-prove")
	signIn()
	p.on("security")
	p.open("/oauth/signed-in?error=access_denied&state=x")
	p.on("provider-refused")
	p.looks("console-provider-refused")
	for _, complaint := range p.Complaints() {
		if !strings.Contains(complaint, idp.issuer) && !strings.Contains(complaint, "status of 401") &&
			!strings.Contains(complaint, "Clear-Site-Data") {
			t.Errorf("in the console: %s", complaint)
		}
	}
	w.Audit(t)
}
