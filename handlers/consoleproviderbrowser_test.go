package handlers_test

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/zitadel/oidc/v3/example/server/storage"

	"integrityledger/domain"
	"integrityledger/handlers"
	"integrityledger/handlers/oauth"
)

// A person signs in by a real provider, signs up with it and proves again who it is, on loopback, where the provider leads
// back to the address and the console is at the name.
func TestProviderInTheBrowser(t *testing.T) {
	w := openSite(t)
	box := &consoleService{service: w.service}
	config := w.config
	config.BaseURL = w.URL
	const client = "browser-client"
	storage.RegisterClients(storage.NativeClient(client, handlers.OAuthRedirect(config.BaseURL)))
	idp := startProvider(t)
	config.OAuth = oauth.New(oauth.Config{
		Issuer: idp.issuer, Audience: handlers.OAuthAudience(config.BaseURL), ClientID: client, RedirectURL: handlers.OAuthRedirect(config.BaseURL), Now: config.Now,
	})
	config.LinkMailer, config.SignUp = box.mailer(t, &config), true
	w.use(handlers.New(config))
	w.URL = strings.Replace(w.URL, "127.0.0.1", "localhost", 1)
	second := w.Organization(t, 1, domain.InternalPlan) // of the same owner
	axe := axeScript(t)
	for prefix, scheme := range map[string]string{"": "light", "/en": "dark"} {
		p := w.tab()
		on := func(name string) {
			t.Helper()
			p.do(chromedp.WaitVisible(chromedp.CSS(`main[data-page="` + name + `"]`)))
		}
		looks := func(name string) {
			t.Helper()
			p.looks(axe, scheme, "provider-"+name, prefix)
		}
		signIn := func() {
			t.Helper()
			p.click("#provider button")
			p.do(chromedp.WaitVisible(chromedp.CSS("#username")))
			p.do(chromedp.SendKeys(chromedp.CSS("#username"), "test-user@127.0.0.1"), chromedp.SendKeys(chromedp.CSS("#password"), "verysecure"))
			p.click(`button[type="submit"]`)
		}
		idp.says(map[string]any{"email": "new" + scheme + "@example.com", "email_verified": true})
		p.open(prefix + "/console")
		on("sign-in")
		looks("sign-in")
		p.click(`a[href$="/console/sign-up"]`)
		on("sign-up")
		looks("sign-up")
		signIn()
		p.do(chromedp.WaitVisible(chromedp.CSS("main form button")))
		on("organization-new")
		p.do(chromedp.SendKeys(chromedp.CSS("#organization #name"), "New "+scheme))
		p.click("#organization button")
		on("")
		p.click(".account button")
		on("sign-in")

		idp.says(map[string]any{"email": w.org.Email, "email_verified": true})
		signIn()
		p.do(chromedp.WaitVisible(chromedp.CSS("main form button")))
		p.click("main form button")
		on("choose")
		p.click(chromedp.CSS(`button[value="` + second.ID.String() + `"]`))
		on("")
		p.open(prefix + "/console/prove?to=" + prefix + "/console/security")
		on("prove")
		looks("prove")
		signIn()
		on("security")
		p.open("/oauth/signed-in?error=access_denied&state=x")
		on("provider-refused")
		looks("refused")
		for _, complaint := range p.Complaints() {
			if !strings.Contains(complaint, idp.issuer) && !strings.Contains(complaint, "status of 401") && !strings.Contains(complaint, "Clear-Site-Data") {
				t.Errorf("in the console: %s", complaint)
			}
		}
	}
	w.Audit(t)
}
