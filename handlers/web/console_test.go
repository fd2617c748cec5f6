package web

import (
	"testing"

	"integrityledger/domain"
	"integrityledger/domain/evidence"
)

// Every type of event has a text in both languages, and there are no texts for other types.
func TestEventsHaveWords(t *testing.T) {
	loaded, err := loadTexts()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []evidence.Language{evidence.Spanish, evidence.English} {
		page := loaded[l][Record].words["Console"].(map[string]any)["HistoryPage"].(map[string]any)
		words := page["Events"].(map[string]any)
		seen := map[any]domain.EventType{}
		for _, event := range domain.EventTypes() {
			word := words[string(event)]
			if other, twice := seen[word]; word == nil || twice {
				t.Errorf("%s: %s is called %v, as %s", l, event, word, other)
			}
			seen[word] = event
		}
		if len(words) != len(seen) {
			t.Errorf("%s: %d words for %d types", l, len(words), len(seen))
		}
		for event, outcomes := range page["Done"].(map[string]any) {
			for outcome, word := range outcomes.(map[string]any) {
				if other, twice := seen[word]; words[event] == nil || twice {
					t.Errorf("%s: %s %s is called %v, as %s", l, event, outcome, word, other)
				}
				seen[word] = domain.EventType(event)
			}
		}
	}
}

// An id links to its page, for the roles that may see it.
func TestIDsLeadToTheirPages(t *testing.T) {
	for id, pages := range map[string][2]string{ // for an owner and for a viewer
		"key_1": {"/en/console/keys/key_1"}, "usr_1": {"/en/console/members/usr_1"}, "whk_1": {"/en/console/webhooks/whk_1"},
		"ver_1": {"/en/console/documents/versions/ver_1", "/en/console/documents/versions/ver_1"},
		"art_1": {"/en/console/documents/art_1", "/en/console/documents/art_1"},
		"com_1": {"/en/console/companies", "/en/console/companies"},
		"stm_1": {"/en/console/publisher"}, "org_1": {}, "operator": {}, "": {},
	} {
		for i, role := range []domain.Role{domain.Owner, domain.Viewer} {
			f := consoleFrame{Console: Console{Language: evidence.English, Role: role}}
			f.Language = evidence.English
			if page := f.PageOf(id); page != pages[i] {
				t.Errorf("%s for a %s: %q", id, role, page)
			}
		}
	}
}

func TestBrowserNames(t *testing.T) {
	f := consoleFrame{C: map[string]any{"UnknownBrowser": "Unknown browser", "BrowserOn": "on"}}
	for agent, name := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36":          "Chrome on Linux",
		"Mozilla/5.0 (X11; CrOS x86_64 14541.0.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36": "Chrome on ChromeOS",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 " +
			"Edg/140.0.0.0": "Edge on Windows",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36 " +
			"OPR/120.0.0.0": "Opera on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10.15; rv:140.0) Gecko/20100101 Firefox/140.0": "Firefox on macOS",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 " +
			"Mobile/15E148 Safari/604.1": "Safari on iPhone",
		"Mozilla/5.0 (Linux; Android 15; K) AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/28.0 Chrome/130.0.0.0 " +
			"Mobile Safari/537.36": "Samsung Internet on Android",
		"Go-http-client/1.1": "Unknown browser", "": "Unknown browser", "Chrome/1": "Chrome",
		"Linux": "Unknown browser on Linux",
	} {
		if shown := f.BrowserName(agent); shown != name {
			t.Errorf("%s: %s", agent, shown)
		}
	}
}
