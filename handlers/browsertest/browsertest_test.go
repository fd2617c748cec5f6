package browsertest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

func TestMain(m *testing.M) {
	code := m.Run()
	Close()
	os.Exit(code)
}

// The next page replaces the document after an action has found its node in it.
func TestPageIsReplacedUnderAnAction(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, `<!doctype html><link rel="icon" href="data:,"><input id="name">`)
	}))
	defer site.Close()
	p := Open(t, site.URL)
	p.Open("/one")
	tries := 0
	p.Do(chromedp.QueryAfter(chromedp.CSS("#name"),
		func(ctx context.Context, to *chromedp.Target, nodes []*chromedp.Node) (chromedp.Void, error) {
			if tries++; tries == 1 {
				if _, err := cdp.Call(ctx, to, page.Navigate, page.NavigateParams{URL: site.URL + "/two"}); err != nil {
					return chromedp.Void{}, err
				}
				p.Until(`location.pathname === "/two"`)
			}
			_, err := cdp.Call(ctx, to, dom.Focus, dom.FocusParams{NodeID: nodes[0].NodeID})
			return chromedp.Void{}, err
		}))
	if tries != 2 {
		t.Errorf("%d tries", tries)
	}
	p.Until(`document.activeElement.id === "name"`)
}
